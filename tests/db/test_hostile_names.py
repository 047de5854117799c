"""Columns with names that our own SQL statements use: everything works, or packing refuses the columns."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg2
import pytest

import cerebro_plpy
from cerebro_plpy.store.packed import groups
from trial import ADAM, Trial

pytestmark = pytest.mark.fresh_caller

STORE = Path(cerebro_plpy.__file__).parent / "store"
# Names after AS in SQL statements: columns and aliases of tables.
ALIAS = re.compile(r"\bAS (?:\{?)([a-z_][a-z_0-9]*)\b")
WORDS = [
    "select", "from", "where", "group", "order", "user", "current_user", "row", "array", "all", "end",
    "case", "table", "null", "true", "ctid1", "Will Leave", 'say "so"', "it's", "a,b", "ARRAY[a]", "$1", "%s",
    "{}", "é", "back\\slash", "c0", "c1", "t0", "s0", "key", "value", "place", "k", "g", "s", "i", "m", "q",
    "r", "x0", "own", "source", "turn", "number", "__group_key__", "__config__", "__unit__", "__group__",
    "__fold__", "__weight__", "__dist_key__", "buffer_id", "split", "fold", "config", "label", "class",
    "prediction", "independent_var", "the_query", "__cerebro_place", "__cerebro_total", "x" * 40,
]  # fmt: skip
JAX = {"backend": "jax"}
ROWS = 60


def aliases(files: str = "*.py") -> list[str]:
    """Return the names after AS in the SQL of these store files, and words that are unusual as names."""
    found = {name for file in STORE.rglob(files) for name in ALIAS.findall(file.read_text())}
    return sorted({*found, *WORDS} - {"id", "y"})


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module", autouse=True)
def source(trial: Trial) -> None:
    """Make one table with all hostile names as columns, so that each statement meets all of them."""
    names = aliases()
    assert len(names) > 100 and {"__place__", "found", "key"} <= {*names, *groups.TAKEN}
    # A multiple of 13 would make nothing but zeros.
    factors = [place + 3 + (place % 13 == 10) for place in range(len(names))]
    made = [f"(i * {one} % 13)::real AS {quoted(name)}" for one, name in zip(factors, names, strict=True)]
    columns = ", ".join(made)
    trial.sql(
        f"CREATE TABLE hostile AS SELECT i AS id, (i % 2)::text AS y, {columns}"
        f" FROM generate_series(1, {ROWS}) AS i"
    )
    listed = ", ".join(quoted(name) for name in ["id", "y", *names] if name not in APART)
    trial.sql(f"CREATE VIEW in_groups AS SELECT {listed} FROM hostile")


def fresh(trial: Trial) -> None:
    tables = [f"packed{suffix}" for suffix in ("", "_summary", "_groups")]
    tables += ["packed_validation", "packed_validation_summary", "packed_validation_groups"]
    tables += [f"models{suffix}" for suffix in ("", "_info", "_summary")]
    tables += ["nets", "configs", "configs_summary", "told", "measured"]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")


def go_through(trial: Trial, source: str, **options: object) -> None:
    """Pack, train, evaluate and predict; check that tables, queries and rows get equal predictions."""
    fresh(trial)
    listed = ", ".join(quoted(name) for name in aliases() if name not in APART or source == "hostile")
    # Each group has rows to train on, whatever columns there are.
    held = {"after": "46", "on": "id"}
    trial.pack(source, "packed", "y", listed, options={"columns": "auto", "validation": held, **options})
    trial.call("load_net", "nets", "packed", "linear")
    trial.select("configs", [1], [ADAM], ["batch_size=32"], "nets")
    trial.fit("packed", "models", "configs", 1, options=JAX)
    trial.call(
        "madlib_keras_evaluate",
        "models",
        "packed_validation",
        "measured",
        mst_key=None if "group_by" in options else 1,
    )
    trial.call("madlib_predict", "models", source, "id", "*", "told", "response", mst_key=1)
    expected = trial.sql("SELECT id, class_value FROM told ORDER BY id")
    if trial.topology != "greenplum":
        query = (
            "SELECT (p.source).id, p.class"
            f" FROM cerebro.predict_query('models', 'SELECT * FROM {source}', NULL::{source}) AS p ORDER BY 1"
        )
        assert trial.sql(query) == expected
        # A column of the alias's name would be handed over in place of the row.
        row = "SELECT a_row.id, p.class FROM {} AS a_row, cerebro.predict('models', a_row) AS p ORDER BY 1"
        assert trial.sql(row.format(source)) == expected


def test_all_works_with_columns_called_as_ours(trial: Trial) -> None:
    go_through(trial, "hostile")
    trial.call("append_rows", "packed", "hostile")
    assert trial.value("SELECT count(*) FROM cerebro.describe_columns('hostile')") == len(aliases()) + 2
    trial.sql("DROP TABLE IF EXISTS parted_train, parted_test")
    trial.call("train_test_split", "hostile", "parted", 0.7, separate_output_tables=True)
    for way in ({"share": 0.3, "stratify": True}, {"by": "id"}, {"after": "3", "on": "place"}):
        fresh(trial)
        trial.pack("hostile", "packed", "y", "k, key", options={"validation": way})


@pytest.mark.parametrize("option, name", [({"group_by": "k"}, "__group__"), ({"folds": 2}, "__fold__")])
def test_a_name_that_says_the_part_of_a_row_is_refused(
    trial: Trial, option: dict[str, object], name: str
) -> None:
    with pytest.raises(psycopg2.Error, match=f'has a column "{name}"') as caught:
        trial.pack("hostile", "refused", "y", "k", options=option)
    assert caught.value.pgcode == "42701"


def test_windows_are_made_of_columns_called_as_ours(trial: Trial) -> None:
    names = [name for name in aliases() if name not in ("starts", "ends", "x", "label")]
    listed = ", ".join(map(quoted, names))
    for name in names[::7]:
        trial.sql("DROP VIEW IF EXISTS w")
        trial.call("windows", "hostile", "w", quoted(name), "id", listed, 2, label="y", label_from="next")
        assert trial.value("SELECT count(*) FROM w") > 0
    with pytest.raises(psycopg2.Error, match="also a column of the view"):
        trial.call("windows", "hostile", "w2", "label", "id", listed, 2)


# Names of a row's group and fold; source tables with these columns cannot be packed in groups or folds.
APART = {"__group__", "__fold__"}
IN_GROUPS = sorted(
    {*WORDS, *aliases("group*.py"), *aliases("same_group.py"), *aliases("pred*.py")} - groups.TAKEN - APART
)
AT_ONCE = 16


@pytest.mark.parametrize("first", range(0, len(IN_GROUPS), AT_ONCE))
def test_all_works_with_columns_of_groups_called_as_ours(trial: Trial, first: int) -> None:
    go_through(trial, "in_groups", group_by=IN_GROUPS[first : first + AT_ONCE])
    trial.call("append_rows", "packed", "in_groups")
    trial.fit("packed", "models", "configs", 1, options=JAX, warm_start=True)


@pytest.mark.parametrize("name", sorted(groups.TAKEN - APART))
def test_names_of_columns_of_results_are_refused(trial: Trial, name: str) -> None:
    trial.sql("DROP VIEW IF EXISTS named")
    trial.sql(f"CREATE VIEW named AS SELECT id AS {quoted(name)}, y, k FROM hostile")
    with pytest.raises(psycopg2.Error, match="is a column of the result tables") as caught:
        trial.pack("named", "refused", "y", "k", options={"group_by": name})
    assert caught.value.pgcode == "42701"
