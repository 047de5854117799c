"""cerebro.train on odd tables: of many columns or classes, with a rare class, with columns without values."""

from __future__ import annotations

import json

import pytest

from trial import Trial

pytestmark = pytest.mark.slow


def train(trial: Trial, table: str, target: str, **options: object) -> list[tuple[str, float]]:
    """Train for some seconds, and return each config's net and its value of the metric."""
    trial.notices()
    return trial.sql(
        "SELECT net, value FROM cerebro.train(%s, %s, %s, '15 s', %s)",
        table, target, f"{table}_model", json.dumps(options),
    )  # fmt: skip


def test_five_hundred_columns(trial: Trial) -> None:
    columns = ", ".join(f"(sin(i) + sin(i * {n}) / 2)::real AS c{n}" for n in range(1, 501))
    trial.sql(
        f"CREATE TABLE wide AS SELECT {columns}, CASE WHEN sin(i) > 0 THEN 'up' ELSE 'down' END AS side"
        " FROM generate_series(1, 400) AS i"
    )
    board = train(trial, "wide", "side")
    # Other nets would not finish an epoch in this budget.
    assert {net.split()[0] for net, _ in board} == {"linear", "tabular", "always"}
    assert board[0][1] > 0.8


def test_three_hundred_classes(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE kinds AS SELECT (i % 300) / 300.0::float8 + sin(i) / 1e4 AS x,"
        " 'kind ' || i % 300 AS kind FROM generate_series(1, 3000) AS i"
    )
    board = train(trial, "kinds", "kind")
    assert board[0][1] > 3 / 300
    assert trial.value("SELECT cardinality(kind_class_values) FROM kinds_model_summary") == 300


def test_a_class_of_one_row_in_a_thousand(trial: Trial) -> None:
    """Always answering the other class is right in 999 of 1,000 rows, and a NOTICE says so."""
    trial.sql(
        "CREATE TABLE rare AS SELECT sin(i) AS x, CASE WHEN i % 1000 = 7 THEN 'bad' ELSE 'good' END AS state"
        " FROM generate_series(1, 5000) AS i"
    )
    board = train(trial, "rare", "state")
    assert board[0][1] > 0.99
    assert "no better than always answering" in trial.notices()


def test_columns_without_values_are_left_out(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE gaps AS SELECT sin(i) AS x, NULL::float8 AS number, NULL::text AS word,"
        " CASE WHEN sin(i) > 0 THEN 'up' ELSE 'down' END AS side FROM generate_series(1, 400) AS i"
    )
    train(trial, "gaps", "side", nets="linear", configs=1, epochs=3)
    inputs = trial.value("SELECT feature_specification::jsonb -> 'columns' FROM gaps_model_summary")
    assert [one["name"] for one in inputs] == ["x"]


def test_only_so_many_rows_as_the_budget_allows_are_packed(trial: Trial) -> None:
    """Their content chooses them, however the table is stored, and the statements by hand choose the same."""
    columns = ", ".join(f"(sin(i) * {n})::real AS c{n}" for n in range(1, 20))
    trial.sql(
        f"CREATE TABLE large AS SELECT 's' || i AS sku, {columns},"
        " CASE WHEN i % 100 > 0 THEN i % 2 > 0 END AS odd FROM generate_series(1, 30000) AS i"
    )
    trial.sql("CREATE TABLE shuffled AS SELECT * FROM large ORDER BY c7")
    packed = []
    for table in ("large", "shuffled"):
        trial.sql(f"ALTER TABLE {table} ADD PRIMARY KEY (sku)")
        trial.notices()
        trial.value(
            "SELECT cerebro.prepare_train(%s, 'odd', %s, '1 s', '{\"nets\": \"linear\"}')",
            table,
            f"{table}_m",
        )
        told = trial.notices()
        assert "about 11880 of 29700 rows are used" in told
        assert 'left out of the inputs: "sku" (a key' in told
        packed.append(
            trial.value(
                "SELECT array_agg(total_rows ORDER BY total_rows) FROM (SELECT total_rows"
                f" FROM {table}_m_packed_summary UNION ALL"
                f" SELECT total_rows FROM {table}_m_packed_validation_summary) AS n"
            )
        )
    assert packed[0] == packed[1]
    assert sum(packed[0]) == pytest.approx(11880, rel=0.02)
    view = next(line for line in told.splitlines() if "CREATE VIEW" in line)
    trial.sql(view[view.index("CREATE VIEW") :])
    assert trial.value("SELECT count(*) FROM shuffled_m_used") == sum(packed[0])
