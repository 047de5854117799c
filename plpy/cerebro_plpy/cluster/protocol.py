"""The protocol between a session on the coordinator and its own process on a segment.

The session can read and write every table, but it is not where the rows are. The process has rows, models and
an engine, but the server lets it read no table. So the process does the work, and the session supplies facts.

Visits, evaluations and merges are sent as orders. The process keeps the facts that it was sent. If it lacks
something, it replies so before it changes anything, and the order is sent again:

    session                                   process
    Order(first, given)          ──────►
                                 ◄──────      Reply(lacking)
    finds what is lacking
    Order(given)                 ──────►      trains, commits what it makes (connections.py)
                                 ◄──────      Reply(result, left) or Reply(error)
    stores the results that are `left`

An order is a call of `cerebro._work`, made in one of two ways:

- directly: the driving session sends this one statement, and the coordinator passes it on (sessions.py). This
  is the usual way once the process has worked for the run.
- step by step: the driving session calls the procedure `cerebro._command`, which runs the statements that the
  session's Python returns (procedure.py, coordinator.py). If the reply to a directly sent order says that
  something is lacking, the order is sent again in this way.

Everything else is sent as messages, by `cerebro._on_segment` (store/cluster/messages.py): a name, one JSON
object and raw bytes, with an answer of the same form. A message is a command that is no order, for example to
start an engine or to check a model, or one of `MESSAGES` below, with weights, states, or rows.
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

# Something that a process lacks: its kind and its arguments, for example ["config", run_id, mst_key].
What = list[Any]
# Something that a process is given and keeps: its kind, its arguments and its value.
Given = tuple[str, Sequence[Any], Any]
# Where a server is: its address, its port, and whether it is on the same host; None is the process's own.
Where = Sequence[Any] | None


@dataclass(frozen=True)
class Order:
    """A command about a config, sent to the process on the segment that has the rows of distribution `key`.

    If `commits`, the process commits its results. Otherwise it returns them, and the session stores them in
    its current transaction.
    """

    sent: Sent
    key: int
    commits: bool = True
    # Whether this is the first try of the command. The process then drops what an earlier command was given.
    first: bool = True
    given: Sequence[Given] = ()

    def as_dict(self) -> dict[str, Any]:
        about = {"key": self.key, "commits": self.commits, "first": self.first, "given": self.given}
        # With the time, because the process dates its results by the clock of this host.
        return {"command": self.sent.way.name, "request": self.sent.as_dict(), "at": time.time(), **about}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Order:
        about = {name: value for name, value in fields.items() if name != "at"}
        return cls(Sent.from_request(about.pop("command"), about.pop("request")), **about)


@dataclass(frozen=True)
class Left:
    """The results of a command that the process has not committed and that the session must store."""

    visits: list[Mapping[str, Any]] = field(default_factory=list)
    # The number of parts of each visit's state.
    parts: list[int] = field(default_factory=list)
    evaluations: list[Mapping[str, Any]] = field(default_factory=list)
    metrics: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """A reply to an order: a result with what is `left` to store, what is `lacking`, or an error."""

    result: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None
    lacking: What | None = None
    error: Mapping[str, Any] | None = None

    def as_json(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})


class Lacking(Exception):
    """Raised if a command in a segment's process needs something that the process was not given."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        super().__init__(kind, *arguments)
        self.what: What = [kind, *arguments]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message from a session to its process on a segment, other than a command.

    A field `ticket` names the scan or the load of a partition that the message is about.
    """

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Give(Message):
    """Supply the thing that the current command lacks; bytes are sent as parts of the message."""

    what: What
    value: Any


@dataclass(frozen=True, kw_only=True)
class ExpectBuffers(Message):
    """Prepare to receive the buffers of a partition, which a scan passes to `cerebro._take_buffer`."""

    ticket: str
    role: str
    table: str
    segment: int
    version: Sequence[Any]
    buffers: Sequence[Sequence[Any]]
    # The kind of target of each column; None for an input.
    kinds: Sequence[str | None]
    in_memory: bool


@dataclass(frozen=True, kw_only=True)
class EndLoad(Message):
    """End the load of a partition after its scan; raise an error if a buffer is missing."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class LogIn(Message):
    """Try to log in at the servers in `where`; the answer has the numbers of the servers that refuse."""

    where: Sequence[Where]


@dataclass(frozen=True, kw_only=True)
class GiveLeft(Message):
    """Return the states that the last visit made and that are not committed; drop them from memory."""


@dataclass(frozen=True, kw_only=True)
class OpenRows(Message):
    """Prepare to receive rows to be packed, which a scan passes to `cerebro._take_row`.

    `sample` says, for each column, whether the message has a sample value of it as a part.
    """

    ticket: str
    columns: Sequence[Mapping[str, Any]]
    sample: Sequence[bool]
    seed: int
    memory: int
    # The number of folds or groups, if rows are divided into some.
    parts: int | None = None


@dataclass(frozen=True, kw_only=True)
class SortRows(Message):
    """Sort the received rows by their hashes; the answer has the hashes, and the labels found in the rows."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class DealRows(Message):
    """Prepare to deal the rows to buffers; their places in the order of all rows are sent as a part."""

    ticket: str
    deal: Mapping[str, Any]
    keys: Sequence[int]
    places: Sequence[Sequence[int] | None]
    widths: Sequence[int | None]
    # Whether rows are dealt group by group.
    grouped: bool = False


@dataclass(frozen=True, kw_only=True)
class GiveClasses(Message):
    """Return which classes occur in each group, among the rows that this process has dealt to buffers."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class TakeGpu(Message):
    """Set this process's share of a GPU.

    The message `ExpectRows` cannot hold it, since all processes get the same `ExpectRows`.
    """

    device: str
    fraction: float
    memory_mb: int | None


@dataclass(frozen=True, kw_only=True)
class ExpectRows(Message):
    """Load a model, and prepare to receive rows to predict.

    A sample value of each column, and the model's weights, are sent as parts.
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
    """Predict the rows that do not fill a batch; all rows have been received."""

    ticket: str


@dataclass(frozen=True, kw_only=True)
class CloseRows(Message):
    """Drop the rows that were received with a ticket."""

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
    """The answer to a message: a result, notices for the caller, and raw bytes."""

    result: Any
    told: Sequence[str]
    parts: Sequence[memoryview]


def tell(db: Database, key: int, message: Message | Sent, parts: Sequence[bytes] = ()) -> Answered:
    """Send a message to this session's process on the segment of a distribution key; return the answer."""
    return _answered(*places.exchange(db, key, *_packed(message), parts))


def tell_all(db: Database, message: Message, parts: Sequence[bytes] = ()) -> list[Answered]:
    """Send a message to this session's processes on all segments; return their answers in segment order."""
    return [_answered(*answer) for answer in places.exchange_all(db, *_packed(message), parts)]


def _packed(message: Message | Sent) -> tuple[str, Mapping[str, Any]]:
    if isinstance(message, Sent):
        return message.way.name, {"request": message.as_dict()}
    return _NAMES[type(message)], {"request": asdict(message)}


def _answered(head: Mapping[str, Any], parts: Sequence[memoryview]) -> Answered:
    return Answered(head["result"], head["told"], parts)
