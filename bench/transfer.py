"""Measures frozen layers, adapters and tables of features, against computing or training everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import contenders
import jobs
import server
import tables
import workloads
from details import Section, Tell
from jobs import Settings
from measure import PeakMemory, Spread, wait_until_quiet
from tables import Goal
from workloads import PICTURES, Config, Workload

BLOCKS = ("block_2", "block_3", "block_4")
ROWS, NEW = 6_000, 600
# A transformer encoder and how many of its blocks; ranks of adapters, and learning rates of both kinds.
WIDTH, DEPTH, RANKS, RATES = 384, 4, (2, 4), (0.01, 0.003, 0.001, 0.0003)
ENCODED = 500


_ENCODER = """
import sys
import keras
from keras import layers
width, depth = map(int, sys.argv[1:])
rows = keras.Input((64,))
x = layers.Dense(width)(layers.Reshape((8, 8))(rows))
for i in range(depth):
    query, value, key = (layers.Dense(width, name=f"{n}_{i}")(x) for n in ("query", "value", "key"))
    x = layers.LayerNormalization()(layers.Add()([x, layers.Attention()([query, value, key])]))
    x = layers.Add()([x, layers.Dense(width)(layers.Dense(2 * width, activation="gelu")(x))])
found = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling1D()(x))
print(keras.Model(rows, found).to_json())
"""


def heads(repetitions: int, options: str, tell: Tell) -> Section:
    """Measure heads on frozen layers whose outputs are kept or computed in each pass, and plain Keras."""
    ways = {
        "kept": contenders.ours(options),
        "computed in each pass": contenders.ours(json.dumps({**json.loads(options), "materialize": "off"})),
        contenders.AS_IT_COMES: contenders.peer(contenders.AS_IT_COMES, "peer_keras.py", asdict(Settings())),
    }
    with server.session() as connection:
        server.load(connection, PICTURES)
        server.make_configs(connection, PICTURES)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            wait_until_quiet()
            found = way(PICTURES, False).outcomes
            outcome = found[name] if name in found else found[contenders.OURS_FIRST]
            taken[name].append(outcome.seconds)
            tell(f"  {name} {outcome.seconds:.1f} s, accuracy {outcome.accuracy:.4f}")
    kept, *others = taken.values()
    pairs = [Spread.from_values([b / a for a, b in zip(kept, other, strict=True)]) for other in others]
    rows = [
        [name, tables.spread(Spread.from_values(found)), "" if pair is None else tables.spread(pair)]
        for (name, found), pair in zip(taken.items(), [None, *pairs], strict=True)
    ]
    goals = [
        Goal(f"heads on a frozen trunk: {name} ÷ kept", goal, pair, at_most=False)
        for name, goal, pair in zip(list(ways)[1:], (3.0, 4.0), pairs, strict=True)
    ]
    head = ["outputs of the trunk", "seconds", "÷ kept"]
    return Section("Heads on frozen layers", f"{PICTURES.about}.\n\n" + tables.markdown(head, rows), goals)


def adapters(repetitions: int, options: str, tell: Tell) -> Section:
    """Measure eight configs of an encoder with adapters beside eight configs of the encoder trained whole."""
    whole = replace(workloads.named("digits", ENCODED), name="encoder", nets=[_encoder()], epochs=1)
    moved, seconds = {}, {}
    with server.session() as connection:
        server.load(connection, whole)
        server.pack(connection, whole, server.packing_options(whole))
        server.make_configs(connection, replace(whole, configs=_encoders((0,))[:1]))
        server.fit(connection, whole, options, validate=False)
        trained = "UPDATE encoder_nets SET model_weights = m.model_weights FROM encoder_models AS m"
        server.query(connection, trained)
        for rank in RANKS:
            made = "SELECT cerebro.enable_lora('encoder_nets', 1, %s, ARRAY['query_*', 'value_*'])"
            server.query(connection, made, [rank])
        copy = server.value(connection, "SELECT length(model_weights) FROM encoder_nets WHERE model_id = 1")
        configs = {"whole": _encoders((0, 0)), "adapters": _encoders((1, 2))}
        for name, them in configs.items():
            server.make_configs(connection, replace(whole, configs=them))
            fits = [server.fit(connection, whole, options, validate=False) for _ in range(1 + repetitions)]
            moved[name] = server.hopped(connection, fits[-1][0])
            seconds[name] = Spread.from_values([taken for _, taken in fits[1:]])
            tell(f"  {name} {moved[name]} bytes, {seconds[name].median:.1f} s")
    grown = _grown(whole, configs["adapters"], options)
    share = Spread.from_values([moved["adapters"] / moved["whole"]])
    more = Spread.from_values([grown / copy])
    rows = [[name, tables.size(moved[name]), tables.spread(seconds[name])] for name in moved]
    head = [f"an encoder of {DEPTH} blocks of {WIDTH}, 8 configs", "hopped", "seconds"]
    goals = [
        Goal("adapters: bytes hopped ÷ those of whole nets", 0.05, share),
        Goal("adapters: memory that one more config takes in a session ÷ the net's weights", 1.0, more),
    ]
    return Section("Adapters", tables.markdown(head, rows), goals)


def _encoders(nets: Sequence[int]) -> list[Config]:
    return [Config(net, rate, 64 >> place) for place, net in enumerate(nets) for rate in RATES]


def _grown(workload: Workload, configs: Sequence[Config], options: str) -> float:
    """Return the bytes by which a fresh session grows with each further config of a net."""
    peaks = []
    first = configs[:: len(RATES)]
    for some in (first, configs):
        with server.session() as connection:
            server.make_configs(connection, replace(workload, configs=some))
            roots = {server.server_process(connection)}
            with PeakMemory(lambda roots=roots: roots) as peak:
                server.fit(connection, workload, options, validate=False)
            peaks.append(sum(sorted(peak.peak)[-jobs.CORES :]))
    return (peaks[1] - peaks[0]) / jobs.CORES / (len(configs) - len(first))


def features(repetitions: int, options: str, tell: Tell) -> Section:
    """Measure adding new rows to tables of features, and computing each layer from the layer before it."""
    taken: dict[str, list[float]] = {name: [] for name in ("anew", "new rows", "apart", "in turn")}
    heads = replace(PICTURES, epochs=2)
    with server.session() as connection:
        _load_deep(connection)
        for number in range(-1, repetitions):
            found = {
                "anew": _timed(connection, heads, options, _anew("deep_all")),
                "new rows": _timed(connection, heads, options, _added(connection)),
                "apart": _layers(connection, ["deep_packed"] * len(BLOCKS)),
                "in turn": _layers(connection, ["deep_packed", *(f"deep_{name}" for name in BLOCKS[:-1])]),
            }
            tell(f"  {found}")
            for name, each in found.items():
                taken[name] += [each] if number >= 0 else []
    pairs = {
        new: Spread.from_values([a / b for a, b in zip(taken[new], taken[old], strict=True)])
        for new, old in (("new rows", "anew"), ("in turn", "apart"))
    }
    rows = [
        [f"{ROWS + NEW:,} rows packed, computed and trained on", "anew"],
        [f"the last {NEW} added to those that are there", "new rows"],
        ["three layers, each from the rows", "apart"],
        ["three layers, each from the one before", "in turn"],
    ]
    text = tables.markdown(
        ["", "seconds"], [[what, tables.spread(Spread.from_values(taken[n]))] for what, n in rows]
    )
    goals = [
        Goal("a tenth of new rows ÷ all rows anew", 0.3, pairs["new rows"]),
        Goal("three layers in turn ÷ each from the rows", 0.6, pairs["in turn"]),
    ]
    return Section("Tables of features", text, goals)


def _timed(
    connection: Any, workload: Workload, options: str, steps: Sequence[tuple[str, list[object]]]
) -> float:
    """Return the seconds of `steps`, which make or update the table of features, and of a run on it."""
    name = workload.name
    server.drop(connection, [f"{name}_models", f"{name}_models_info", f"{name}_models_summary"])
    clock = time.perf_counter()
    for statement, values in steps:
        server.query(connection, statement, values)
    server.query(
        connection,
        "SELECT cerebro.madlib_fit_multiple_model('deep_block_4', %s, 'deep_configs', %s, options => %s)",
        [f"{name}_models", workload.epochs, options],
    )
    return time.perf_counter() - clock


_MATERIALIZE = "SELECT cerebro.materialize_features(%s, 'deep_nets', 1, layer => %s, output_table => %s)"


def _anew(source: str) -> list[tuple[str, list[object]]]:
    """Return the statements that pack the table `source` and make its table of features."""
    options = json.dumps({"seed": server.SEED, "shape": list(PICTURES.shape)})
    return [
        ("DROP TABLE IF EXISTS deep_packed, deep_packed_summary, deep_block_4, deep_block_4_summary", []),
        (
            "SELECT cerebro.training_preprocessor_dl(%s, 'deep_packed', 'y', 'x', num_classes => ARRAY[10],"
            " options => %s)",
            [source, options],
        ),
        (_MATERIALIZE, ["deep_packed", BLOCKS[-1], "deep_block_4"]),
    ]


def _added(connection: Any) -> list[tuple[str, list[object]]]:
    """Make the table of features of the first rows; return the statements that add the new rows to it."""
    for statement, values in _anew("deep_first"):
        server.query(connection, statement, values)
    return [
        ("SELECT cerebro.append_rows('deep_packed', 'deep_new')", []),
        ("SELECT cerebro.refresh_features('deep_block_4')", []),
    ]


def _layers(connection: Any, sources: Sequence[str]) -> float:
    made = [f"deep_{name}" for name in BLOCKS]
    server.drop(connection, [f"{table}{end}" for table in made for end in ("", "_summary")])
    clock = time.perf_counter()
    for source, layer, table in zip(sources, BLOCKS, made, strict=True):
        server.query(connection, _MATERIALIZE, [source, layer, table])
    return time.perf_counter() - clock


def _load_deep(connection: Any) -> None:
    """Load a net with two frozen convolutions in each block, and its tables of all, first and new rows."""
    layers = ((32, 64, 128, 128), 2, (32,))
    net, weights = workloads.trunk(*layers), workloads.trunk_weights(*layers)
    deep = replace(PICTURES, name="deep", nets=[net], weights=[weights])
    train = deep.make(ROWS + NEW)
    server.load_nets(connection, deep)
    server.make_configs(connection, replace(deep, configs=[c for c in deep.configs if c.net == 0]))
    server.load_table(connection, "deep_all", train)
    server.load_table(connection, "deep_first", train.part(0, ROWS))
    server.load_table(connection, "deep_new", train.part(ROWS, ROWS + NEW))


def _encoder() -> str:
    """Return the JSON of the encoder, which Keras builds in a process of its own."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "jax"}
    order = [sys.executable, "-c", _ENCODER, str(WIDTH), str(DEPTH)]
    return subprocess.run(order, env=environment, capture_output=True, text=True, check=True).stdout


PARTS = {"heads": heads, "adapters": adapters, "features": features}
