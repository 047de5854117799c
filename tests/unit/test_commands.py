"""Each command and message has a function that carries it out, and survives a round trip through JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cerebro_plpy import commands
from cerebro_plpy.cluster import protocol
from cerebro_plpy.cluster.rows import row_commands
from cerebro_plpy.commands import ROWS, TABLES, WAYS, BesideRows, Command, ConfigCommand, Engine, Sent
from cerebro_plpy.segment import handlers
from cerebro_plpy.store.packed.groups import GroupRow
from cerebro_plpy.store.runs.decisions import Entry
from cerebro_plpy.store.runs.drivers import Behind
from cerebro_plpy.store.runs.runs import ArchitectureRow, ConfigRow, RunRow

RUN = RunRow(
    run_id=7,
    owner="ada",
    kind="many",
    source_table="public.packed",
    validation_table=None,
    model_table="public.models",
    epochs=3,
    metrics_frequency=1,
    segments=2,
    seed=1,
    memory_mb=100,
    threads=1,
    use_gpus=False,
    topology="local",
    arch_table="public.arch",
    selection_table=None,
    warm_start=False,
    name=None,
    description='a "run"',
)
CONFIG = ConfigRow(1, 1, "loss='mse'", "epochs=1", "jax")
SENT = [
    Sent(
        commands.CreateRun(
            run=RUN,
            architectures=[ArchitectureRow(1, "{}", 10, 20)],
            configs=[CONFIG],
            weights=[commands.StartingWeights(model_id=1, mst_key=-1, table="t", key_column=None, key=None)],
            functions=["abc"],
            behind=Behind(4, [5, 6]),
            groups=[GroupRow(1, '{"shop": 7}', 100, [0])],
        )
    ),
    Sent(commands.HoldRun(run_id=7, behind=Behind(4, []))),
    Sent(commands.Decide(run_id=7, entries=[Entry(1, "stop", role="ada")], configs=[CONFIG])),
    Sent(
        commands.Check(
            architectures={"1": "{}"},
            configs=[commands.CheckedConfig(1, 1, "loss='mse'")],
            functions=[],
            max_parameters=100,
            input_shapes=[[4]],
            target_shapes=[[2]],
            target_kinds=["one-hot"],
            null_classes=[False],
        ),
        Engine("jax", 2, [["0", 0.9, None, 1]]),
        look_seconds=30,
    ),
    Sent(
        commands.Visit(run_id=7, mst_key=1, epoch=2, segment=1, stop=0),
        Engine("jax", 2, True, {"device": "0", "fraction": 0.9, "memory_mb": None}),
    ),
]


def kinds(of: type[Command]) -> Iterator[type[Command]]:
    """Yield the subclasses of a class of commands at any depth that have no subclasses of their own."""
    for kind in of.__subclasses__():
        if kind.__subclasses__():
            yield from kinds(kind)
        else:
            yield kind


def at(place: str) -> set[type[Command]]:
    return {kind for kind, way in WAYS.items() if way.place == place}


def test_every_command_has_its_line_in_the_table() -> None:
    assert set(kinds(Command)) == WAYS.keys()
    assert len({way.name for way in WAYS.values()}) == len(WAYS)
    assert at(ROWS) == {kind for kind in WAYS if issubclass(kind, BesideRows)}


def test_every_command_is_carried_out_where_the_table_says() -> None:
    assert handlers.BESIDE_ROWS.keys() == at(ROWS)
    assert handlers.AT_TABLES.keys() == at(TABLES)
    stepwise = {kind for kind, way in WAYS.items() if way.stepwise}
    assert stepwise == handlers.WRITING.keys() | set(kinds(ConfigCommand))


@pytest.mark.parametrize("sent", SENT, ids=[sent.way.name for sent in SENT])
def test_a_command_arrives_as_it_was_sent(sent: Sent) -> None:
    assert Sent.from_request(sent.way.name, json.loads(sent.as_json())) == sent


def test_a_session_shows_what_it_is_at() -> None:
    assert SENT[-1].shown() == "cerebro visit run=7 config=1 epoch=2 segment=1"
    assert SENT[1].shown() == "cerebro hold_run run=7"


def test_every_message_is_taken_by_a_process() -> None:
    direct = {protocol.Give, protocol.ExpectBuffers, protocol.EndLoad, protocol.LogIn, protocol.GiveLeft}
    assert set(protocol.MESSAGES.values()) == row_commands.ABOUT_ROWS.keys() | direct
    assert not protocol.MESSAGES.keys() & {way.name for way in WAYS.values()}
