"""The commands: what a session that works for a run can be asked to do, each in one transaction.

The executor asks. A topology adds the engine and sends the command to a session (`Sent`), which reads it and
carries it out: `segment/handlers.py` on any server, `cluster/` where Greenplum needs another way. `WAYS` says
of each command where it is carried out and what it needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from cerebro_plpy.store.packed.groups import GroupRow
from cerebro_plpy.store.runs.decisions import Entry
from cerebro_plpy.store.runs.drivers import Behind
from cerebro_plpy.store.runs.rates import RateRow
from cerebro_plpy.store.runs.runs import ArchitectureRow, ConfigRow, RunRow

# A registered function: its name, kind, digest and source.
FunctionRow = Mapping[str, Any]
RowShape = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One thing to do. Its fields travel as JSON."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class BesideRows(Command):
    """A command that is carried out where the rows of a segment are."""

    segment: int = 0


@dataclass(frozen=True, kw_only=True)
class StartEngine(BesideRows):
    """Have the engine ready. Where the session `commits` what it makes, it shows that it can write."""

    commits: bool = False


@dataclass(frozen=True)
class CheckedConfig:
    mst_key: int
    model_id: int
    compile_params: str
    # Names of layers that train from some epoch on.
    thawed: Sequence[str] = field(default_factory=list[str])
    batch_size: int = 1


@dataclass(frozen=True, kw_only=True)
class Check(BesideRows):
    """Describe architectures, by their model_id, and check configs against the shapes of packed rows."""

    architectures: Mapping[str, str]
    configs: Sequence[CheckedConfig]
    functions: Sequence[FunctionRow]
    max_parameters: int
    input_shapes: Sequence[RowShape]
    target_shapes: Sequence[RowShape]
    target_kinds: Sequence[str]
    null_classes: Sequence[bool]
    # Whether the answer is to say of each config how large its state is.
    sizes: bool = False
    # Which layers are computed again in the backward pass.
    recompute: bool | Sequence[str] = False
    # What a net may have on the device, in shards if it needs more.
    device_memory_mb: int | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        given = dict(fields)
        return cls(configs=[CheckedConfig(**c) for c in given.pop("configs")], **given)


@dataclass(frozen=True)
class ProbedConfig:
    mst_key: int
    model_id: int
    compile_params: str
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Probe(BesideRows):
    """Time a few mini-batches of configs on invented rows of these shapes."""

    architectures: Mapping[str, str]
    configs: Sequence[ProbedConfig]
    functions: Sequence[FunctionRow]
    input_shapes: Sequence[RowShape]
    target_shapes: Sequence[RowShape]
    target_kinds: Sequence[str]
    # Which layers are computed again in the backward pass.
    recompute: bool | Sequence[str] = False
    # What a net may have on the device, in shards if it needs more.
    device_memory_mb: int | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        given = dict(fields)
        return cls(configs=[ProbedConfig(**c) for c in given.pop("configs")], **given)


@dataclass(frozen=True, kw_only=True)
class CheckModel(BesideRows):
    """Describe one architecture, and check the length of its weights."""

    model_arch: str
    weights_bytes: int | None
    max_parameters: int
    functions: Sequence[FunctionRow]
    # Whether its layers are to be listed.
    layers: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckFunctions(BesideRows):
    """Execute sources that are to be registered."""

    functions: Sequence[FunctionRow]


@dataclass(frozen=True, kw_only=True)
class ConfigCommand(BesideRows):
    """A command about a config of a run, of the kinds that a run sends again and again."""

    run_id: int
    mst_key: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Visit(ConfigCommand):
    """Train a config on a segment, the `stop`-th of its route in an epoch.

    A `part` is one of the visits from the same state that are averaged when all segments have made theirs.
    """

    stop: int
    part: bool = False
    # For which nets and batch sizes the outputs of frozen layers are still needed, each behind a config.
    cut_configs: Sequence[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


@dataclass(frozen=True, kw_only=True)
class VisitBundle(ConfigCommand):
    """Train several configs of a run on a segment, each as if it were alone.

    They are one config on many groups of the segment, which train from an epoch on until another and are
    measured; or configs of one program of which this is the `stop`-th of their route in an epoch.
    """

    members: Sequence[int]
    until: int
    measured: Sequence[int]
    # One after the other, or in which form as one program.
    form: str
    stop: int | None = None


@dataclass(frozen=True, kw_only=True)
class Average(ConfigCommand):
    """Average the states that the segments have made in an epoch, weighted by their rows."""

    rows: Sequence[int]
    losses: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Evaluate(ConfigCommand):
    """Measure a config's state after an epoch on a segment's rows, or those of several `members`."""

    members: Sequence[int] = ()
    # As in a visit.
    cut_configs: Sequence[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


@dataclass(frozen=True, kw_only=True)
class Merge(ConfigCommand):
    """Merge what all segments have measured into metrics, for a config or several `members`."""

    members: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class GiveBack(BesideRows):
    """Let go of a run's rows; compiled models stay for the next run."""


@dataclass(frozen=True, kw_only=True)
class NextRunId(Command):
    """Draw the number of a new run."""


@dataclass(frozen=True, kw_only=True)
class StartingWeights:
    """Weights in a row of a user's table, and the config, or the architecture, that starts from them."""

    model_id: int
    mst_key: int
    table: str
    key_column: str | None
    key: int | None
    # The version that has the weights, if the model is registered.
    version_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class WeightsOfGroups:
    """Starting weights for models of groups: the types of the columns that make groups, and which rows of the
    table hold the weights (`store/models/group_models.row_of`)."""

    model_id: int
    table: str
    types: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    # The version that has the weights, if the model is registered; rows then name its groups by their keys.
    version_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateRun(Command):
    """Write a run down, and stand behind it where that is said."""

    run: RunRow
    architectures: Sequence[ArchitectureRow]
    configs: Sequence[ConfigRow]
    weights: Sequence[StartingWeights]
    functions: Sequence[str]
    behind: Behind | None = None
    groups: Sequence[GroupRow] = field(default_factory=list[GroupRow])
    weights_of_groups: Sequence[WeightsOfGroups] = field(default_factory=list[WeightsOfGroups])

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        behind = fields["behind"]
        return cls(
            run=RunRow(**fields["run"]),
            architectures=[ArchitectureRow(**a) for a in fields["architectures"]],
            configs=[ConfigRow(**c) for c in fields["configs"]],
            weights=[StartingWeights(**w) for w in fields["weights"]],
            functions=fields["functions"],
            behind=None if behind is None else Behind(**behind),
            groups=[GroupRow(**g) for g in fields.get("groups", ())],
            weights_of_groups=[WeightsOfGroups(**w) for w in fields.get("weights_of_groups", ())],
        )


@dataclass(frozen=True, kw_only=True)
class HandRows(Command):
    """Hand a run's rows to sessions that do not see its tables: what only the caller's own session does."""

    run: RunRow

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(run=RunRow(**fields["run"]))


@dataclass(frozen=True, kw_only=True)
class HoldRun(Command):
    """Stand behind an existing run; raise an error if another session does."""

    run_id: int
    behind: Behind

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(run_id=fields["run_id"], behind=Behind(**fields["behind"]))


@dataclass(frozen=True, kw_only=True)
class ResumeRun(Command):
    """Make a run ready to go on: remove what was left half-made, and find damage."""

    run_id: int
    evaluation_epochs: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class LetGo(Command):
    """Stand behind a run no more."""

    run_id: int


@dataclass(frozen=True, kw_only=True)
class EndRun(Command):
    """Note how a run has ended, and keep the states of these configs and steps alone."""

    run_id: int
    event: str
    detail: str | None = None
    keep: Sequence[tuple[int, int]] | None = None
    # What the run has measured of each kind of config.
    rates: Sequence[RateRow] = ()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        given = dict(fields)
        return cls(rates=[RateRow(**rate) for rate in given.pop("rates", ())], **given)


@dataclass(frozen=True, kw_only=True)
class DeleteRun(Command):
    """Remove every row of a run."""

    run_id: int


@dataclass(frozen=True, kw_only=True)
class FailConfig(Command):
    """Note why a config takes no further part in its run."""

    run_id: int
    mst_key: int
    epoch: int
    segment: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Decide(Command):
    """Note decisions, and the configs that come in with them."""

    run_id: int
    entries: Sequence[Entry]
    configs: Sequence[ConfigRow]

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            run_id=fields["run_id"],
            entries=[Entry(**e) for e in fields["entries"]],
            configs=[ConfigRow(**c) for c in fields["configs"]],
        )


@dataclass(frozen=True, kw_only=True)
class DropStates(Command):
    """Remove states that are no longer needed: for each config, all but those after these steps."""

    run_id: int
    keep: Sequence[tuple[int, Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class TellEpochs(Command):
    """Tell whoever listens which configs have ended which epochs."""

    run_id: int
    ended: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class TellFacts(Command):
    """Tell a session on another server the facts of configs, or with a `model_id` their starting weights."""

    run_id: int
    keys: Sequence[int]
    model_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class LeaveMetrics(Command):
    """Note what it has measured: rows of `measurements.Measured`."""

    measured: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Drive(Command):
    """Carry out a run as its caller: what the session behind a run in the background does."""

    run_id: int
    role: str


@dataclass(frozen=True, kw_only=True)
class Reach(Command):
    """Have every segment of a cluster answer."""


@dataclass(frozen=True, kw_only=True)
class TryLogins(Command):
    """Find which servers of a cluster's segments refuse which others' processes."""


# Where a command is carried out: beside a segment's rows; where the tables are; where a cluster's segments
# are known; in a session that drives a run.
ROWS, TABLES, SERVERS, DRIVER = "rows", "tables", "servers", "driver"


@dataclass(frozen=True)
class Way:
    """How a command travels, and what it needs where it arrives."""

    name: str
    place: str
    engine: bool = False
    # On Greenplum: as statements that are no subtransactions of Python's (cluster/procedure.py).
    stepwise: bool = False
    # On Greenplum: may go straight to the process that has worked for the run (cluster/sessions.py).
    direct: bool = False


WAYS: Mapping[type[Command], Way] = {
    StartEngine: Way("start", ROWS, engine=True),
    Check: Way("check", ROWS, engine=True),
    CheckModel: Way("check_model", ROWS, engine=True),
    CheckFunctions: Way("check_functions", ROWS, engine=True),
    Probe: Way("probe", ROWS, engine=True),
    Visit: Way("visit", ROWS, engine=True, stepwise=True, direct=True),
    VisitBundle: Way("visit_bundle", ROWS, engine=True, stepwise=True),
    Evaluate: Way("evaluate", ROWS, engine=True, stepwise=True, direct=True),
    Average: Way("average", ROWS, engine=True, stepwise=True),
    Merge: Way("merge", ROWS, engine=True, stepwise=True),
    # Also by a process that was stopped before its engine was there.
    GiveBack: Way("give_back", ROWS),
    NextRunId: Way("next_run_id", TABLES),
    CreateRun: Way("create_run", TABLES, stepwise=True),
    HandRows: Way("hand_rows", TABLES),
    HoldRun: Way("hold_run", TABLES, stepwise=True),
    ResumeRun: Way("resume_run", TABLES, stepwise=True),
    LetGo: Way("let_go", TABLES),
    EndRun: Way("end_run", TABLES, stepwise=True),
    DeleteRun: Way("delete_run", TABLES),
    FailConfig: Way("fail_config", TABLES, stepwise=True),
    Decide: Way("decide", TABLES, stepwise=True),
    DropStates: Way("drop_states", TABLES, stepwise=True),
    TellFacts: Way("tell_facts", TABLES),
    LeaveMetrics: Way("leave_metrics", TABLES),
    TellEpochs: Way("tell_epochs", TABLES, stepwise=True),
    Drive: Way("drive", DRIVER),
    Reach: Way("reach", SERVERS),
    TryLogins: Way("try_logins", SERVERS),
}
_KINDS = {way.name: kind for kind, way in WAYS.items()}


@dataclass(frozen=True)
class Engine:
    """The engine of a run: `use_gpus` says whether it has GPUs, or what of them each segment has.

    Where a command is carried out, `gpu` is what its segment has.
    """

    backend: str
    threads: int
    use_gpus: bool | Sequence[Sequence[Any]]
    gpu: Mapping[str, Any] | None = None
    # Whether an engine that runs already will do: nets are described alike by all.
    or_any: bool = False
    # The folder of compiled programs, if an administrator has named one or, by an empty text, none.
    cache_folder: str | None = None


@dataclass(frozen=True)
class Sent:
    """A command on its way to a session: with which engine, and how long code of the caller's may take."""

    command: Command
    engine: Engine | None = None
    look_seconds: int = 0

    @property
    def way(self) -> Way:
        return WAYS[type(self.command)]

    def as_json(self) -> str:
        return json.dumps(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        engine = {} if self.engine is None else {"engine": asdict(self.engine)}
        return {**asdict(self.command), **engine, "look_seconds": self.look_seconds}

    @classmethod
    def from_request(cls, name: str, request: Mapping[str, Any]) -> Sent:
        fields = dict(request)
        engine, look_seconds = fields.pop("engine", None), fields.pop("look_seconds", 0)
        command = _KINDS[name].from_fields(fields)
        return cls(command, None if engine is None else Engine(**engine), look_seconds)

    def shown(self) -> str:
        """Return what other sessions see this session doing; the progress view reads it."""
        found = [(word, getattr(self.command, name, None)) for word, name in _SHOWN]
        words = [f"{word}={value}" for word, value in found if value is not None]
        return " ".join(["cerebro", self.way.name, *words])


_SHOWN = (("run", "run_id"), ("config", "mst_key"), ("epoch", "epoch"), ("segment", "segment"))
