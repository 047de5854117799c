"""What passes between a session on the coordinator and its own process on a segment.

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

All else goes by messages, `cerebro._on_segment` (store/cluster/messages.py): a command's name, one JSON
object and raw bytes, there and back. They start engines, have models checked, and carry weights, states and
rows to be packed or predicted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cerebro_plpy.segment.commands import CommandRequest

# What lacks: of which kind, about what.
What = list[Any]
# What a process keeps: of which kind, about what, and the thing itself.
Given = tuple[str, Sequence[Any], Any]
# How a server is found from a process's host: None is its own; one without an address is on the same host.
Where = Sequence[Any] | None


@dataclass(frozen=True)
class Order:
    """A command about a config, for the process beside the rows of a distribution key.

    The process `commits` what it makes, or leaves it to the transaction that is under way in the session.
    """

    command: str
    request: CommandRequest
    key: int
    commits: bool = True
    # Whether this is the first try: what was given for another command is forgotten.
    first: bool = True
    given: Sequence[Given] = ()

    def as_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Left:
    """What a command has made and the process has not committed."""

    visits: list[Mapping[str, Any]] = field(default_factory=list)
    evaluations: list[Mapping[str, Any]] = field(default_factory=list)
    metrics: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """What became of an order: a result and what is left to be written down, or what lacks, or an error."""

    result: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None
    lacking: What | None = None
    error: Mapping[str, Any] | None = None

    def as_json(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})


class Lacking(Exception):
    """What a command needs and was not given."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        super().__init__(kind, *arguments)
        self.what: What = [kind, *arguments]
