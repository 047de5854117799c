"""The commands that a session can carry out for a run, each in one transaction.

The executor makes a command. A topology adds the engine and sends it to a session (`Sent`), which carries it
out: by `segment/handlers.py`, or on Greenplum by `cluster/` for some commands. `WAYS` has, for each command,
where it is carried out and what it needs.
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
    """A command to a session; its fields are sent as JSON."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class BesideRows(Command):
    """A command that is carried out where the rows of a segment are."""

    segment: int = 0


@dataclass(frozen=True, kw_only=True)
class StartEngine(BesideRows):
    """Start the engine. If `commits`, a process on Greenplum also logs in where it will commit."""

    commits: bool = False


@dataclass(frozen=True)
class CheckedConfig:
    mst_key: int
    model_id: int
    compile_params: str
    # Names of the layers that `unfreeze_at` lets train from some epoch on.
    thawed: Sequence[str] = field(default_factory=list[str])
    batch_size: int = 1


@dataclass(frozen=True, kw_only=True)
class Check(BesideRows):
    """Describe architectures, given by `model_id`, and check configs against the shapes of packed rows."""

    architectures: Mapping[str, str]
    configs: Sequence[CheckedConfig]
    functions: Sequence[FunctionRow]
    max_parameters: int
    input_shapes: Sequence[RowShape]
    target_shapes: Sequence[RowShape]
    target_kinds: Sequence[str]
    null_classes: Sequence[bool]
    # Whether the answer has the size of each config's state.
    sizes: bool = False
    # Which layers are computed again in the backward pass.
    recompute: bool | Sequence[str] = False
    # The memory for a net on the device; a net that needs more is cut into shards.
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
    """Measure how long configs take for a few mini-batches, on invented rows of the given shapes."""

    architectures: Mapping[str, str]
    configs: Sequence[ProbedConfig]
    functions: Sequence[FunctionRow]
    input_shapes: Sequence[RowShape]
    target_shapes: Sequence[RowShape]
    target_kinds: Sequence[str]
    # Which layers are computed again in the backward pass.
    recompute: bool | Sequence[str] = False
    # The memory for a net on the device; a net that needs more is cut into shards.
    device_memory_mb: int | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        given = dict(fields)
        return cls(configs=[ProbedConfig(**c) for c in given.pop("configs")], **given)


@dataclass(frozen=True, kw_only=True)
class CheckModel(BesideRows):
    """Describe one architecture, and check that its weights take `weights_bytes`, if that is given."""

    model_arch: str
    weights_bytes: int | None
    max_parameters: int
    functions: Sequence[FunctionRow]
    # Whether the answer has a list of its layers.
    layers: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckFunctions(BesideRows):
    """Check functions that are to be registered, by executing their sources."""

    functions: Sequence[FunctionRow]


@dataclass(frozen=True, kw_only=True)
class ConfigCommand(BesideRows):
    """A command that a segment carries out for one config, or a bundle, in one epoch of a run."""

    run_id: int
    mst_key: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Visit(ConfigCommand):
    """Train a config on one segment: at the stop `stop` of its route, or on segment `stop` for a `part`.

    A `part` is a visit of an epoch with averaging, in which all segments start from the same state.
    """

    stop: int
    part: bool = False
    # Configs that need outputs of frozen layers computed once: mst_key, model_id and batch size of each.
    cut_configs: Sequence[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


@dataclass(frozen=True, kw_only=True)
class VisitBundle(ConfigCommand):
    """Train several configs of a run on a segment, each as if it were alone.

    They are one config on many groups, trained from `epoch` to `until` and measured after the epochs in
    `measured`; or, if `stop` is set, configs of one program at this stop of their routes in one epoch.
    """

    members: Sequence[int]
    until: int
    measured: Sequence[int]
    # off to train one after the other; exact or fast to train as one program.
    form: str
    stop: int | None = None


@dataclass(frozen=True, kw_only=True)
class Average(ConfigCommand):
    """Average the states that all segments made of a config in an epoch, weighted by the segments' `rows`."""

    rows: Sequence[int]
    losses: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Evaluate(ConfigCommand):
    """Measure the state of a config, or of each of several `members`, on a segment's rows after an epoch."""

    members: Sequence[int] = ()
    # As in a `Visit`.
    cut_configs: Sequence[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


@dataclass(frozen=True, kw_only=True)
class Merge(ConfigCommand):
    """Merge the evaluations of all segments into metrics, for a config or each of several `members`."""

    members: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class GiveBack(BesideRows):
    """Drop a run's rows from a session's memory; compiled models stay for the next run."""


@dataclass(frozen=True, kw_only=True)
class NextRunId(Command):
    """Return a number for a new run."""


@dataclass(frozen=True, kw_only=True)
class StartingWeights:
    """The place of starting weights, in a row of a table, and the config or architecture they are for."""

    model_id: int
    mst_key: int
    table: str
    key_column: str | None
    key: int | None
    # The version that has the weights, if the model is registered.
    version_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class WeightsOfGroups:
    """The places of starting weights for models of groups: `types` has the type of each column that makes
    groups, and `rows` names the rows of `table` with the weights (`store/models/group_models.row_of`)."""

    model_id: int
    table: str
    types: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    # The version that has the weights, if the model is registered; rows then name its groups by their keys.
    version_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateRun(Command):
    """Write the rows of a new run; if `behind` is given, this session becomes its control session."""

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
    """Copy a run's rows to a file, for sessions that do not see its tables; sent to the caller's session."""

    run: RunRow

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(run=RunRow(**fields["run"]))


@dataclass(frozen=True, kw_only=True)
class HoldRun(Command):
    """Make this session an existing run's control session; raise an error if another session is."""

    run_id: int
    behind: Behind

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(run_id=fields["run_id"], behind=Behind(**fields["behind"]))


@dataclass(frozen=True, kw_only=True)
class ResumeRun(Command):
    """Prepare a run to be resumed: remove incomplete evaluations, and repair configs with damaged states."""

    run_id: int
    evaluation_epochs: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class LetGo(Command):
    """Note that this session is no longer the control session of a run."""

    run_id: int


@dataclass(frozen=True, kw_only=True)
class EndRun(Command):
    """Note how a run has ended; if `keep` lists states, by config and step, remove all other states."""

    run_id: int
    event: str
    detail: str | None = None
    keep: Sequence[tuple[int, int]] | None = None
    # The times that the run has measured, for estimates of later runs.
    rates: Sequence[RateRow] = ()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        given = dict(fields)
        return cls(rates=[RateRow(**rate) for rate in given.pop("rates", ())], **given)


@dataclass(frozen=True, kw_only=True)
class DeleteRun(Command):
    """Remove all rows of a run from the extension's tables."""

    run_id: int


@dataclass(frozen=True, kw_only=True)
class FailConfig(Command):
    """Note why a config has failed; the run goes on without it."""

    run_id: int
    mst_key: int
    epoch: int
    segment: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Decide(Command):
    """Store decisions of a run, and the configs that these decisions add to it."""

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
    """For each config in `keep`, remove its states except at the listed steps and after the last of them."""

    run_id: int
    keep: Sequence[tuple[int, Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class TellEpochs(Command):
    """Notify listening sessions which configs have completed which epochs."""

    run_id: int
    ended: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class TellFacts(Command):
    """Tell a worker's session of a run and its configs `keys`; with `model_id`, only of starting weights."""

    run_id: int
    keys: Sequence[int]
    model_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class LeaveMetrics(Command):
    """Store the metrics that a worker's session has merged, as the fields of `measurements.Measured`."""

    measured: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Drive(Command):
    """Drive a run in the background from this session, with the rights of `role`, the run's caller."""

    run_id: int
    role: str


@dataclass(frozen=True, kw_only=True)
class Reach(Command):
    """Raise an error unless every segment of a cluster answers."""


@dataclass(frozen=True, kw_only=True)
class TryLogins(Command):
    """Find the pairs of segments in a cluster where one's server refuses logins of the other's process."""


# Where a command is carried out: beside a segment's rows; where the tables are; on the coordinator of a
# cluster, for all segments; in a session that drives a run.
ROWS, TABLES, SERVERS, DRIVER = "rows", "tables", "servers", "driver"


@dataclass(frozen=True)
class Way:
    """How a command is sent, where it is carried out, and whether it needs an engine there."""

    name: str
    place: str
    engine: bool = False
    # Whether a procedure on Greenplum runs its statements, and not Python (cluster/procedure.py).
    stepwise: bool = False
    # Whether on Greenplum it may be sent directly to the segment's process (cluster/sessions.py).
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
    # Without an engine, since the session may have been stopped before its engine started.
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
    """The engine of a command. `use_gpus` says whether it uses GPUs, or lists each segment's share of them.

    `gpu` is set where the command is carried out, to the share of its segment.
    """

    backend: str
    threads: int
    use_gpus: bool | Sequence[Sequence[Any]]
    gpu: Mapping[str, Any] | None = None
    # Whether any engine that has started may be used, since all describe a net alike.
    or_any: bool = False
    # The folder of compiled programs that an administrator has set; an empty text means no folder.
    cache_folder: str | None = None


@dataclass(frozen=True)
class Sent:
    """A command as it is sent to a session: with its engine, and the time limit for the caller's code."""

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
        """Return a text about the command for `application_name`, which the view of progress reads."""
        found = [(word, getattr(self.command, name, None)) for word, name in _SHOWN]
        words = [f"{word}={value}" for word, value in found if value is not None]
        return " ".join(["cerebro", self.way.name, *words])


_SHOWN = (("run", "run_id"), ("config", "mst_key"), ("epoch", "epoch"), ("segment", "segment"))
