"""SQL on the rows of runs. All of it runs with the rights of the extension's owner."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, WRONG_STATE, CerebroError
from cerebro_plpy.store.writing import (
    TELL,
    BigInt,
    Json,
    Moment,
    MomentOfEnd,
    Role,
    Writing,
    as_given,
    insertion,
    selection,
    write,
)

# Code of a user's may have said what went wrong, at any length, and others see it.
LONGEST_REASON = 10_000


@dataclass(frozen=True)
class RunRow:
    """A run as its call asked for it: a row of `cerebro._run`."""

    run_id: BigInt
    owner: Role
    kind: str
    source_table: str
    validation_table: str | None
    model_table: str | None
    epochs: int
    metrics_frequency: int
    segments: int
    seed: int
    memory_mb: int
    threads: int
    use_gpus: bool
    topology: str
    arch_table: str
    selection_table: str | None
    warm_start: bool
    name: str | None
    description: str | None
    # JSON: for each packed table the digests of its partitions when the run began.
    versions: str = "{}"
    # JSON: how the search procedure is made, none if there is none; what ends the run early.
    search: str | None = None
    limits: str = "{}"
    # JSON: how the call wrote the names of its tables, by the summary's column.
    spelled: str = "{}"
    object_table: str | None = None
    # JSON: for each packed table its version when the run began, below which number its buffers are, and
    # how many rows each class of each output has.
    packed_versions: str = "{}"


@dataclass(frozen=True)
class ArchitectureRow:
    model_id: int
    model_arch: str
    parameters: int
    flops_per_row: int
    # JSON: what one row costs, by family of layers; older versions did not know.
    work: str | None = None


@dataclass(frozen=True)
class ConfigRow:
    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    backend: str
    warm_run_id: int | None = None
    warm_step: int | None = None
    epochs_before: int = 0
    source_key: int | None = None
    source_step: int | None = None
    # The name of its kind, whose configs take equally long, and the expected seconds of a visit.
    kind: str | None = None
    visit_seconds: float | None = None
    # In a cross-validated run: the config, and the fold that it leaves out; none for the model of all rows.
    # `mst_key` numbers such configs with their folds, and those of groups with their groups.
    config_key: int | None = None
    fold: int | None = None
    # In a run of groups: the number of the group whose rows it is trained on.
    group_id: int | None = None
    # The number that it had in the run that it goes on from; none for the same.
    warm_key: int | None = None
    # JSON: of a group whose classes are balanced, how many rows each class has, by output.
    class_counts: str | None = None

    @property
    def key(self) -> int:
        """The key by which the user knows the config; its seeds and its route follow from it."""
        return self.mst_key if self.config_key is None else self.config_key


_RUN_COLUMNS = selection(RunRow, "_run")
_ARCHITECTURE_COLUMNS = selection(ArchitectureRow, "_architecture")
_CONFIG_COLUMNS = selection(ConfigRow, "_config")


def searched(run: RunRow) -> Any:
    """Return the description of the run's search procedure, or None if it has none."""
    return None if run.search is None else json.loads(run.search)


def limits(run: RunRow) -> Mapping[str, Any]:
    """Return the limits and further settings of a run, such as its budget or `average_from`, by name."""
    return json.loads(run.limits)


def spelled(run: RunRow) -> Mapping[str, str]:
    """Return the run's table names as the call wrote them, by the column of each in the summary."""
    return json.loads(run.spelled)


def has_versions(run: RunRow) -> bool:
    """Return whether the run has stored `versions`: digests of the partitions of its packed tables."""
    return bool(json.loads(run.versions))


def below(run: RunRow, table: str) -> int | None:
    """Return a bound for a packed table: the run reads only buffers with lower numbers; None means no
    bound."""
    return json.loads(run.packed_versions).get(table, {}).get("below")


def class_counts(run: RunRow, config: ConfigRow | None = None) -> Mapping[str, Sequence[int] | None]:
    """Return how many training rows each class has, by output, in the order of outputs; None if unknown.

    A config on a group gets the counts of the group if it balances classes. Runs of earlier releases did not
    store the names of outputs; with class weights, they had only one output.
    """
    if config is not None and config.class_counts is not None:
        return json.loads(config.class_counts)
    return json.loads(run.packed_versions).get(run.source_table, {}).get("class_counts", {"": None})


@dataclass(frozen=True)
class TrainedOn:
    """The rows of a packed table that a run has trained on: version, bound on buffer numbers, and digests."""

    version: int
    below: int | None
    digests: list[str]


def trained_on(run: RunRow, table: str) -> TrainedOn | None:
    """Return the rows that a run has trained on; None if unknown, or if it trained on another table."""
    found, digests = json.loads(run.packed_versions).get(table), json.loads(run.versions).get(table)
    if run.source_table != table or found is None or digests is None:
        return None
    return TrainedOn(found["version"], found["below"], digests)


@as_owner
def read_limit(db: Database, run_id: int, name: str) -> Any:
    """Return one of a run's limits by name; None if there is no such limit or no such run."""
    rows = db.query("SELECT limits FROM cerebro._run WHERE run_id = $1", ["bigint"], [run_id])
    return json.loads(rows[0]["limits"]).get(name) if rows else None


@as_owner
def next_run_id(db: Database) -> int:
    return db.query("SELECT pg_catalog.nextval('cerebro._run_id_seq') AS run_id")[0]["run_id"]


@as_owner
def creation(
    db: Database, run: RunRow, architectures: Sequence[ArchitectureRow], configs: Sequence[ConfigRow]
) -> list[Writing]:
    """Return the writings that store a run, its architectures and its configs, before any visit begins."""
    row = {**asdict(run), "owner": role_oid(db, run.owner)}
    return [
        *inserts("cerebro._run", run.run_id, [row]),
        *inserts("cerebro._architecture", run.run_id, [asdict(a) for a in architectures]),
        *inserts("cerebro._config", run.run_id, [asdict(c) for c in configs]),
        *event_of(run.run_id, "running"),
    ]


@as_owner
def add_architectures(db: Database, run_id: int, architectures: Sequence[ArchitectureRow]) -> None:
    insert_all(db, "cerebro._architecture", run_id, [asdict(a) for a in architectures])


def role_oid(db: Database, role: str) -> int:
    return db.query("SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1", ["text"], [role])[0]["oid"]


def insert_all(db: Database, table: str, run_id: int, rows: Sequence[Mapping[str, Any]]) -> None:
    write(db, inserts(table, run_id, rows))


def inserts(table: str, run_id: int, rows: Sequence[Mapping[str, Any]]) -> list[Writing]:
    """Return the writing that inserts rows of a run unless they are there; an empty list for no rows."""
    if not rows:
        return []
    given = [{"run_id": run_id, **row} for row in rows]
    names = ", ".join(given[0])
    statement = (
        f"INSERT INTO {table} ({names}) SELECT {names}"
        f" FROM pg_catalog.jsonb_populate_recordset(NULL::{table}, $1::jsonb) ON CONFLICT DO NOTHING"
    )
    return [(statement, given)]


def event_of(run_id: int, event: str, detail: str | None = None) -> list[Writing]:
    """Return the writings that store an event of a run and, unless it is `finished`, notify the sessions that
    listen."""
    shown = detail and detail[:LONGEST_REASON]
    noted = inserts("cerebro._run_event", run_id, [{"event": event, "detail": shown}])
    # The session that commits the result tables notifies of `finished`, in the same transaction.
    return noted if event == "finished" else [*noted, telling(run_id, event)]


@as_owner
def notify(db: Database, run_id: int, event: str) -> None:
    """Notify the sessions that listen of an event of a run, once this transaction is committed."""
    write(db, [telling(run_id, event)])


def telling(run_id: int, event: str, about: Sequence[Mapping[str, int]] = ({},)) -> Writing:
    """Return the writing that notifies listeners of an event of a run, once for each element of `about`."""
    return TELL, [json.dumps({"run": run_id, "event": event, **each}) for each in about]


@as_owner
def run(db: Database, run_id: int) -> RunRow:
    rows = db.query(f"SELECT {_RUN_COLUMNS} FROM cerebro._run WHERE run_id = $1", ["bigint"], [run_id])
    if not rows:
        raise CerebroError(f"there is no run {run_id}", sqlstate=WRONG_STATE)
    return RunRow(**rows[0])


@as_owner
def own_run(db: Database, run_id: int | None, role: str, members: bool = False) -> RunRow:
    """Return a run of `role` or, with `members`, of a role in which `role` is a member. The error is the same
    whether the run belongs to another role or does not exist."""
    mine = (
        "pg_has_role($2::name, owner, 'USAGE')"
        if members
        else "owner = (SELECT oid FROM pg_roles WHERE rolname = $2)"
    )
    rows = db.query(
        f"SELECT {_RUN_COLUMNS} FROM cerebro._run WHERE run_id = $1 AND kind <> 'evaluation' AND {mine}",
        ["bigint", "text"],
        [run_id, role],
    )
    if not rows:
        raise no_such_run(run_id)
    return RunRow(**rows[0])


def no_such_run(run_id: int | None) -> CerebroError:
    return CerebroError(
        f"you have no run {'NULL' if run_id is None else run_id}",
        hint="SELECT run_id, status FROM cerebro.runs shows your runs.",
        sqlstate=INSUFFICIENT_PRIVILEGE,
    )


@as_owner
def last_event(db: Database, run_id: int) -> str | None:
    """Return the last event of a run, or None if there is no such run."""
    rows = db.query(
        "SELECT event FROM cerebro._run_event WHERE run_id = $1 ORDER BY at DESC LIMIT 1",
        ["bigint"],
        [run_id],
    )
    return rows[0]["event"] if rows else None


@as_owner
def has_finished(db: Database, run_id: int) -> bool:
    """Return whether a run has ever finished: since then, only the states of its results are stored."""
    found = "SELECT FROM cerebro._run_event WHERE run_id = $1 AND event = 'finished' LIMIT 1"
    return bool(db.query(found, ["bigint"], [run_id]))


@as_owner
def configs(db: Database, run_id: int) -> list[ConfigRow]:
    rows = db.query(
        f"SELECT {_CONFIG_COLUMNS} FROM cerebro._config WHERE run_id = $1 ORDER BY mst_key",
        ["bigint"],
        [run_id],
    )
    return [ConfigRow(**row) for row in rows]


def engines_of(run: RunRow, rows: Sequence[ConfigRow]) -> tuple[str, dict[int, str]]:
    """Return the engine of a run with these configs, and other engines by `model_id`."""
    # A search that has not begun has no configs yet; its description names the engines.
    described = searched(run) or {}
    by_model = {int(model_id): name for model_id, name in described.get("backends", {}).items()}
    by_model |= {row.model_id: row.backend for row in rows}
    backend = described["backend"] if "backend" in described else rows[0].backend
    return backend, {model_id: name for model_id, name in by_model.items() if name != backend}


@as_owner
def architectures(db: Database, run_id: int) -> list[ArchitectureRow]:
    rows = db.query(
        f"SELECT {_ARCHITECTURE_COLUMNS} FROM cerebro._architecture WHERE run_id = $1 ORDER BY model_id",
        ["bigint"],
        [run_id],
    )
    return [ArchitectureRow(**row) for row in rows]


@dataclass(frozen=True)
class Standing:
    """How far a config has come: its last committed step, its failure, and the epochs already evaluated."""

    mst_key: int
    step: int
    loss: float | None
    failure: str | None
    evaluated: list[int]


@dataclass(frozen=True)
class PartRow:
    """A visit whose state is averaged with those of the other segments' visits."""

    mst_key: int
    epoch: int
    segment: int
    rows: int
    loss: float | None


@as_owner
def standings(db: Database, run_id: int) -> dict[int, Standing]:
    rows = db.query(
        "SELECT c.mst_key, COALESCE(v.step, c.source_step, 0) AS step, v.loss, f.reason AS failure,"
        " ARRAY(SELECT DISTINCT m.epoch FROM cerebro._metric AS m"
        "   WHERE m.run_id = c.run_id AND m.mst_key = c.mst_key) AS evaluated"
        " FROM cerebro._config AS c LEFT JOIN (SELECT DISTINCT ON (x.mst_key) x.mst_key, x.step, x.loss"
        "   FROM cerebro._visit AS x WHERE x.run_id = $1 AND x.step > 0 ORDER BY x.mst_key, x.step DESC) AS v"
        "   ON v.mst_key = c.mst_key"
        " LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key"
        " WHERE c.run_id = $1",
        ["bigint"],
        [run_id],
    )
    return {row["mst_key"]: Standing(**row) for row in rows}


@as_owner
def parts(db: Database, run_id: int) -> list[PartRow]:
    """Return the visits whose states are to be averaged, or were averaged and are still stored."""
    rows = db.query(
        "SELECT mst_key, epoch, segment, rows, loss FROM cerebro._visit"
        " WHERE run_id = $1 AND step < 0 ORDER BY mst_key, epoch, segment",
        ["bigint"],
        [run_id],
    )
    return [PartRow(**row) for row in rows]


@as_owner
def forget_part(db: Database, run_id: int, mst_key: int, step: int) -> None:
    """Delete a visit and its state, which was to be averaged, so that the visit is made again."""
    for table in ("_state", "_visit"):
        db.query(
            f"DELETE FROM cerebro.{table} WHERE run_id = $1 AND mst_key = $2 AND step = $3",
            ["bigint", "integer", "integer"],
            [run_id, mst_key, step],
        )


@as_owner
def step_back(db: Database, run_id: int, mst_key: int, step: int) -> None:
    """Delete a config's visits and states after a step, so that these visits are made again."""
    for table in ("_state", "_visit"):
        db.query(
            f"DELETE FROM cerebro.{table} WHERE run_id = $1 AND mst_key = $2 AND step > $3",
            ["bigint", "integer", "integer"],
            [run_id, mst_key, step],
        )


@as_owner
def config(db: Database, run_id: int, mst_key: int) -> ConfigRow:
    rows = db.query(
        f"SELECT {_CONFIG_COLUMNS} FROM cerebro._config WHERE run_id = $1 AND mst_key = $2",
        ["bigint", "integer"],
        [run_id, mst_key],
    )
    return ConfigRow(**rows[0])


@as_owner
def configs_among(db: Database, run_id: int, keys: Sequence[int]) -> list[ConfigRow]:
    rows = db.query(
        f"SELECT {_CONFIG_COLUMNS} FROM cerebro._config WHERE run_id = $1 AND mst_key = ANY ($2)",
        ["bigint", "integer[]"],
        [run_id, list(keys)],
    )
    return [ConfigRow(**row) for row in rows]


@as_owner
def state_origin(db: Database, run_id: int, mst_key: int, step: int) -> int:
    """Return the key of the config under which a config's state is stored: the first state of a clone is
    stored only under its source, which may be a clone too."""
    found = config(db, run_id, mst_key)
    while found.source_key is not None and found.source_step == step:
        found = config(db, run_id, found.source_key)
    return found.mst_key


@as_owner
def model_arch(db: Database, run_id: int, model_id: int) -> str:
    return db.query(
        "SELECT model_arch FROM cerebro._architecture WHERE run_id = $1 AND model_id = $2",
        ["bigint", "integer"],
        [run_id, model_id],
    )[0]["model_arch"]


# The segment of a visit that stands for all segments, since it has averaged their states.
EVERY_SEGMENT = -1


@dataclass(frozen=True)
class VisitRow:
    run_id: BigInt
    mst_key: int
    step: int
    epoch: int
    segment: int
    rows: BigInt
    loss: float | None
    logs: Json
    state_bytes: BigInt
    read_seconds: float
    train_seconds: float
    write_seconds: float
    started_at: Moment
    pid: int
    # On Greenplum and Citus the distribution key of the rows beside which it was made.
    place: int = 0
    # The processor time of the process during the visit, and its memory at the end.
    cpu_seconds: float | None = None
    memory_bytes: BigInt | None = None
    ended_at: MomentOfEnd = None


# What a visit or an evaluation writes may be there already: its session was lost between the commit and
# the answer, or a session of a caller that died has gone on to its end. It is the same then, bit for bit.
VISIT_ROWS = insertion("cerebro._visit", VisitRow)


def write_visit(db: Database, visit: VisitRow) -> None:
    write_visits(db, [visit])


def write_visits(db: Database, visits: Sequence[VisitRow]) -> None:
    write(db, [(VISIT_ROWS, [as_given(visit) for visit in visits])])
