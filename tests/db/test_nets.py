"""cerebro.load_net makes a net that fits a packed table, from a line of layers or from a name."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, execute
from mixed import CUSTOMERS, picture
from predicting import has_keras
from trial import Trial

SAID = {"city": {"encode": "embed"}, "note": {"tokens": 8, "vocabulary": 100}, "plan": {"encode": "one_hot"}}
LINE = "Dense(16, activation='relu'), Dropout(0.2), Dense(8, kernel_regularizer=L2(l2=0.01))"


@pytest.fixture(scope="module", autouse=True)
def packed(trial: Trial) -> None:
    trial.sql(CUSTOMERS, 400)
    trial.pack("customers", "mixed", "gone", "age, city, note, plan, x", options={"columns": SAID})
    trial.sql("CREATE TABLE albums (photo bytea, kind text, price real)")
    for number in range(12):
        trial.sql("INSERT INTO albums VALUES (%s, %s, %s)", picture(number), "abc"[number % 3], number)
    trial.pack("albums", "pictures", "kind", "photo", options={"columns": {"photo": {"decode": [16, 16, 3]}}})
    trial.pack("albums", "prices", "price", "photo", options={"columns": {"photo": {"decode": [16, 16, 3]}}})
    trial.sql(
        "CREATE TABLE waves AS SELECT i % 2 AS y, ARRAY("
        "  SELECT ARRAY[sin(i + j), cos(i * j)] FROM generate_series(1, 20) j) AS x"
        " FROM generate_series(1, 30) i"
    )
    trial.pack("waves", "series", "y", "x")


@pytest.fixture(autouse=True)
def no_nets(trial: Trial) -> None:
    trial.sql("DROP TABLE IF EXISTS nets")


def load(trial: Trial, packed: str, net: str, **params: object) -> list[int]:
    return trial.value(
        "SELECT cerebro.load_net('nets', %s, %s, %s)", packed, net, json.dumps(params) if params else None
    )


def shown(trial: Trial, model_id: int) -> list[tuple[str, list[int], int]]:
    return trial.sql("SELECT class, shape, parameters FROM cerebro.show_net('nets', %s)", model_id)


def test_a_line_of_layers_stands_between_the_tables_inputs_and_outputs(trial: Trial) -> None:
    (model_id,) = load(trial, "mixed", LINE)
    found = shown(trial, model_id)
    codes = trial.value(
        "SELECT jsonb_array_length(c->'values') + 2 FROM mixed_summary,"
        " jsonb_array_elements(feature_specification->'columns') c WHERE c->>'name' = 'city'"
    )
    kinds = [kind for kind, _, _ in found]
    assert sorted(kinds) == sorted(
        ["InputLayer"] * 4 + ["Embedding"] * 2
        + ["Flatten", "GlobalAveragePooling1D", "Concatenate", "Dense", "Dropout", "Dense", "Dense"]
    )  # fmt: skip
    width = next(shape[1] for kind, shape, _ in found if kind == "Embedding" and shape[0] == 1)
    assert ("Embedding", [1, width], codes * width) in found
    assert found[-1] == ("Dense", [2], 18)
    config = trial.value("SELECT model_arch FROM nets")["config"]["layers"]
    assert [one["config"].get("activation") for one in config if one["class_name"] == "Dense"][::2] == [
        "relu",
        "softmax",
    ]


SELDOM = [
    ("mixed", "linear", {}, ("Dense", [2])),
    ("mixed", "tabm", {"width": 8, "members": 3, "pieces": 4}, ("GlobalAveragePooling1D", [2])),
    ("prices", "realmlp", {"width": 4, "frequencies": 3}, ("Rescaling", [1])),
    ("prices", "image", {"width": 4, "depth": 1}, ("Rescaling", [1])),
    ("series", "LSTM(4)", {}, ("Dense", [2])),
]


@pytest.mark.parametrize(
    "packed, net, params, last",
    [
        *(pytest.param(*one, marks=pytest.mark.slow) for one in SELDOM),
        ("mixed", "tabular", {"width": 8, "depth": 1}, ("Dense", [2])),
        ("prices", "tabm", {"width": 4, "members": 2}, ("Rescaling", [1])),
        ("mixed", "realmlp", {"width": 8, "depth": 2}, ("Dense", [2])),
        ("mixed", "text", {"width": 4}, ("Dense", [2])),
        ("pictures", "image", {"width": 4, "depth": 2}, ("Dense", [3])),
        ("series", "series", {"width": 4, "depth": 3}, ("Dense", [2])),
        ("pictures", "Conv2D(4, 3), MaxPooling2D(2)", {}, ("Dense", [3])),
    ],
)
def test_starting_points_train(
    trial: Trial, packed: str, net: str, params: dict[str, object], last: object
) -> None:
    (model_id,) = load(trial, packed, net, **params)
    assert shown(trial, model_id)[-1][:2] == last
    loss = "mse" if packed == "prices" else "categorical_crossentropy"
    trial.sql("DROP TABLE IF EXISTS out, out_summary")
    trial.sql(
        "SELECT cerebro.madlib_fit(%s, 'out', 'nets', %s, %s, 'batch_size=16', 1)",
        packed, model_id, f"loss='{loss}',optimizer='Adam()'",
    )  # fmt: skip
    assert trial.value("SELECT training_loss_final < 1e6 FROM out_summary")


@pytest.mark.postgresql
def test_a_net_of_usual_layers_is_checked_without_an_engine(trial: Trial, connect: Connect) -> None:
    sessions = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'cerebro %'"
    )
    session = connect()
    ((before,),) = execute(session, sessions)
    execute(session, "SELECT cerebro.load_net('nets', 'series', 'Flatten(), Dense(8)')")
    ((arch,),) = execute(session, "SELECT model_arch FROM nets")
    execute(session, "SELECT cerebro.load_keras_model('nets', %s)", (json.dumps(arch),))
    assert execute(session, sessions) <= [(before,)]
    assert not has_keras(session)


def test_lists_give_a_net_for_each_combination(trial: Trial) -> None:
    found = load(trial, "mixed", "tabular", width=[8, 16], depth=[1, 2, 3])
    assert found == [1, 2, 3, 4, 5, 6]
    names = trial.sql("SELECT name FROM nets ORDER BY model_id")
    assert names[0] == ("tabular width=8 depth=1 dropout=0.1 activation=relu",)


@pytest.mark.slow
def test_a_search_draws_depth_and_width(trial: Trial) -> None:
    trial.sql("SELECT cerebro.load_net('nets', 'mixed', $$Dense({4, 8}, 'relu') * {1..2}$$)")
    trial.call(
        "madlib_keras_automl", "mixed", "drawn", "nets", "drawn_best", [1, 2, 3, 4],
        "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'optimizer': ['Adam']}]}",
        "{'batch_size': [32]}", "asha", "num_configs=4, num_iterations=3", options={"threads": 1},
    )  # fmt: skip
    drawn = trial.sql("SELECT model_id, name FROM drawn_info JOIN nets USING (model_id) ORDER BY 1")
    assert [model_id for model_id, _ in drawn] == [1, 2, 3, 4]
    assert len({name for _, name in drawn}) == 4


WRONG = {
    "an unknown name": ("mixed", "tabula", {}, "no net is called tabula"),
    "nets without number": (
        "mixed",
        "tabular",
        {"width": list(range(8, 208)), "depth": [1, 2, 3], "dropout": [0.0, 0.1]},
        "params give 1200 nets",
    ),
    "an unknown parameter": ("mixed", "tabular", {"widht": 3}, "'tabular' has no parameter widht"),
    "a wrong parameter": ("mixed", "tabular", {"width": 0}, "option width is 0"),
    "no image": ("mixed", "image", {}, "needs an input of three dimensions"),
    "no layer": ("mixed", "Dens(3), Flatten()", {}, "Dens"),
    "code": ("mixed", "__import__('os').system('true')", {}, "is not a call such as Dense"),
    "too many arguments": ("mixed", "Dense(3, 'relu', 4)", {}, "more arguments without a name than units"),
    "an argument twice": ("mixed", "Dense(3, units=4)", {}, "given units twice"),
    "an argument that Keras does not know": ("mixed", "Dense(3, unit=4)", {}, "unit"),
    "a slip in a layer's name": ("mixed", "Dens(3)", {}, 'Did you mean "Dense"?'),
    "no comma": ("mixed", "Dense(3) Dense(2)", {}, "Write layers with commas between them"),
    "no such activation": ("mixed", "Dense(3, 'rellu')", {}, '"rellu". Did you mean "relu"?'),
    "no such regularizer": ("mixed", "Dense(3, bias_regularizer='l7')", {}, 'No regularizer is called "l7"'),
    "a layer that runs code": ("mixed", "Lambda(function='x'), Dense(2)", {}, "Lambda"),
}


@pytest.mark.parametrize("packed, net, params, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(
    trial: Trial, packed: str, net: str, params: dict[str, object], text: str
) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        load(trial, packed, net, **params)
    assert text in f"{caught.value}", caught.value
    assert trial.value("SELECT to_regclass('nets')") is None


def test_who_comes_second_to_a_name_is_told(trial: Trial) -> None:
    """A table that another transaction is making cannot be seen yet; the server's own index notices it."""
    failed: list[str | None] = []

    def make() -> None:
        try:
            execute(other, "SELECT cerebro.load_net('nets', 'series', 'Dense(2)')")
        except psycopg2.Error as error:
            failed.append(error.pgcode)

    with closing(psycopg2.connect(trial.connection.dsn)) as other:
        trial.sql("BEGIN; CREATE TABLE nets (a integer)")
        thread = threading.Thread(target=make)
        thread.start()
        asked = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
        deadline = time.monotonic() + 60
        while not trial.value(asked, other.get_backend_pid()) and time.monotonic() < deadline:
            time.sleep(0.02)
        trial.sql("COMMIT")
        thread.join()
    assert failed == ["42P07"]
