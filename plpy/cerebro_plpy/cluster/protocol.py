"""The protocol between a session on the coordinator and its own process on a segment.

The session can read and write every table, but it is not where the rows are. The process has rows, models and
an engine, but the server lets it read no table. So the process works, and the session finds what it needs.

Visits, evaluations and merges are orders. The process keeps what it was told. Where it lacks something, it
has done nothing yet that a second time could spoil, and says so:

    session                                   process
    Order(first, given)          ──────►
                                 ◄──────      Reply(lacking)
    finds what lacks
    Order(given)                 ──────►      trains, commits what it makes (connections.py)
                                 ◄──────      Reply(result, left) or Reply(error)
    writes down what is `left`

An order goes by `cerebro._work`, in one of two ways:

- directly: the driver of the run sends the one statement, and the coordinator passes it on as it is
  (sessions.py). That is the rule once the process has worked for the run.
- step by step: the driver calls the procedure `cerebro._command`, which carries out the statements that the
  session's Python names (procedure.py, coordinator.py). A directly sent order whose reply says that something
  lacks is sent again this way.

All else goes by messages, `cerebro._on_segment` (store/cluster/messages.py): a name, one JSON object and raw
bytes, there and back. A message is a command that goes by no order (engines are started so, and models
checked), or one of `MESSAGES` below: they carry weights, states and rows to be packed or predicted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from cerebro_plpy.commands import Engine, FunctionRow, RowShape, Sent
from cerebro_plpy.database import Database
from cerebro_plpy.store.cluster import places

# What a process lacks: its kind, and what it is about.
What = list[Any]
# What a process keeps: of which kind, about what, and the thing itself.
Given = tuple[str, Sequence[Any], Any]
# How a process finds a server: by address and port, and whether it is on the same host; None is its own.
Where = Sequence[Any] | None


@dataclass(frozen=True)
class Order:
    """A command about a config, for the process beside the rows of a distribution key.

    The process `commits` what it makes, or leaves it to the transaction that is under way in the session.
    """

    sent: Sent
    key: int
    commits: bool = True
    # Whether this is the first try: what was given for another command is forgotten.
    first: bool = True
    given: Sequence[Given] = ()

    def as_dict(self) -> dict[str, Any]:
        about = {"key": self.key, "commits": self.commits, "first": self.first, "given": self.given}
        # With the time, since the process dates what it makes by the clock of this host.
        return {"command": self.sent.way.name, "request": self.sent.as_dict(), "at": time.time(), **about}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Order:
        about = {name: value for name, value in fields.items() if name != "at"}
        return cls(Sent.from_request(about.pop("command"), about.pop("request")), **about)


@dataclass(frozen=True)
class Left:
    """Results of a command that the process has not committed."""

    visits: list[Mapping[str, Any]] = field(default_factory=list)
    # The number of parts of each visit's state.
    parts: list[int] = field(default_factory=list)
    evaluations: list[Mapping[str, Any]] = field(default_factory=list)
    metrics: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """The outcome of an order: a result with what is left to write down, what is missing, or an error."""

    result: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None
    lacking: What | None = None
    error: Mapping[str, Any] | None = None

    def as_json(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})


class Lacking(Exception):
    """Raised when a command needs something that it was not given."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        super().__init__(kind, *arguments)
        self.what: What = [kind, *arguments]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message to a process, other than a command."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Give(Message):
    """Supply what a waiting command has said it lacks; its bytes come as parts."""

    what: What
    value: Any


@dataclass(frozen=True, kw_only=True)
class ExpectBuffers(Message):
    """Make ready for the buffers of a partition, which a scan hands over by `cerebro._take_buffer`."""

    ticket: str
    role: str
    table: str
    segment: int
    version: Sequence[Any]
    buffers: Sequence[Sequence[Any]]
    # None for an input.
    kinds: Sequence[str | None]
    in_memory: bool


@dataclass(frozen=True, kw_only=True)
class EndLoad(Message):
    """End a load after its scan; a missing buffer is an error."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class LogIn(Message):
    """Try to log in at these servers; the answer numbers those that refuse."""

    where: Sequence[Where]


@dataclass(frozen=True, kw_only=True)
class GiveLeft(Message):
    """Give the state that the last visit has made, and keep it no longer."""


@dataclass(frozen=True, kw_only=True)
class OpenRows(Message):
    """Make ready for rows to be packed, which a scan hands over by `cerebro._take_row`.

    `sample` says for which columns a sample value comes as a part.
    """

    ticket: str
    columns: Sequence[Mapping[str, Any]]
    sample: Sequence[bool]
    seed: int
    memory: int
    # The folds or groups that rows are in.
    parts: int | None = None


@dataclass(frozen=True, kw_only=True)
class SortRows(Message):
    """Put the rows in the order of their hashes; the answer has the hashes, and the labels that were met."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class DealRows(Message):
    """Be ready to give the rows to buffers; their places among all rows come as a part."""

    ticket: str
    deal: Mapping[str, Any]
    keys: Sequence[int]
    places: Sequence[Sequence[int] | None]
    widths: Sequence[int | None]
    # Whether rows are dealt group by group.
    grouped: bool = False


@dataclass(frozen=True, kw_only=True)
class GiveClasses(Message):
    """Ask which classes occur in each group among the rows that have been given away."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class TakeGpu(Message):
    """Tell a process its share of its host's GPUs, which a message to all processes at once cannot name."""

    device: str
    fraction: float
    memory_mb: int | None


@dataclass(frozen=True, kw_only=True)
class ExpectRows(Message):
    """Load a model, and make ready for rows to be predicted.

    A value of each column, and the weights, come as parts.
    """

    ticket: str
    engine: Engine
    seed: int
    columns: Sequence[Mapping[str, Any]]
    shapes: Sequence[RowShape]
    model_arch: str
    functions: Sequence[FunctionRow]
    outputs: Sequence[Mapping[str, Any]]
    choice: Mapping[str, Any]
    batch_rows: int

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        given = dict(fields)
        return cls(engine=Engine(**given.pop("engine")), **given)


@dataclass(frozen=True, kw_only=True)
class PredictRest(Message):
    """Predict the last rows, now that all have come."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class CloseRows(Message):
    """Let go of the rows that came with a ticket."""

    ticket: str


MESSAGES: Mapping[str, type[Message]] = {
    "give": Give,
    "expect_buffers": ExpectBuffers,
    "end_load": EndLoad,
    "log_in": LogIn,
    "give_left": GiveLeft,
    "open_rows": OpenRows,
    "sort_rows": SortRows,
    "deal_rows": DealRows,
    "give_classes": GiveClasses,
    "take_gpu": TakeGpu,
    "expect_rows": ExpectRows,
    "predict_rest": PredictRest,
    "close_rows": CloseRows,
}
_NAMES: Mapping[type[Message], str] = {kind: name for name, kind in MESSAGES.items()}


@dataclass(frozen=True)
class Answered:
    """An answer: a result, lines for the caller, and raw bytes."""

    result: Any
    told: Sequence[str]
    parts: Sequence[memoryview]


def tell(db: Database, key: int, message: Message | Sent, parts: Sequence[bytes] = ()) -> Answered:
    """Send a message to this session's process beside a key's rows."""
    return _answered(*places.exchange(db, key, *_packed(message), parts))


def tell_all(db: Database, message: Message, parts: Sequence[bytes] = ()) -> list[Answered]:
    """Send a message to this session's processes on all segments at once; return answers in segment order."""
    return [_answered(*answer) for answer in places.exchange_all(db, *_packed(message), parts)]


def _packed(message: Message | Sent) -> tuple[str, Mapping[str, Any]]:
    if isinstance(message, Sent):
        return message.way.name, {"request": message.as_dict()}
    return _NAMES[type(message)], {"request": asdict(message)}


def _answered(head: Mapping[str, Any], parts: Sequence[memoryview]) -> Answered:
    return Answered(head["result"], head["told"], parts)
