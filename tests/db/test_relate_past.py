"""Rows at or after a cut-off change no feature, in random schemas that are made from seeds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest

from cerebro_plpy.relations import recipe
from cerebro_plpy.relations.paths import MOMENT, RelatedColumn, base_of, leads_back
from cerebro_plpy.store.related import features_sql
from fixtures import Connect
from trial import Trial

START = datetime(2026, 1, 1)
CUTOFFS = [START + timedelta(days=days) for days in (20, 40, 55)]
TABLES = 4
ALL = ["count", "sum", "mean", "min", "max", "stddev", "last", "since_last", "distinct", "share_of_top"]


class RandomSchema:
    """Random tables t0 (the entity) to t3 with foreign keys, in either direction or within a table."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.rows = {f"t{n}": chance.randrange(12, 40) for n in range(TABLES)}
        # Each foreign key as (child table, column, parent table).
        self.keys: list[tuple[str, str, str]] = []
        for n in range(1, TABLES):
            other, own = f"t{chance.randrange(n)}", f"t{n}"
            child, parent = chance.choice([(own, other), (other, own)])
            self.keys.append((child, f"k{len(self.keys)}", parent))
        for name in self.rows:
            if chance.random() < 0.3:
                self.keys.append((name, f"k{len(self.keys)}", name))
        self.chance = chance

    def create(self, trial: Trial) -> None:
        for name in self.rows:
            trial.sql(f"CREATE TABLE {name} (id integer PRIMARY KEY, t timestamp, a integer, b text, c date)")
        for child, column, parent in self.keys:
            key = f"{column} integer REFERENCES {parent} DEFERRABLE INITIALLY DEFERRED"
            trial.sql(f"ALTER TABLE {child} ADD {key}")
        trial.sql("CREATE TABLE labels AS SELECT i AS id, at::timestamp FROM generate_series(1, %s) AS i,"
                  " unnest(%s) AS at", self.rows["t0"], CUTOFFS)  # fmt: skip
        trial.sql("BEGIN")
        for name, number in self.rows.items():
            self.insert(trial, name, range(1, number + 1), self.some_moment)
        trial.sql("COMMIT")

    def some_moment(self) -> datetime:
        return START + timedelta(hours=self.chance.randrange(1440))

    def late_moment(self) -> datetime:
        """Return a random time after the last cut-off, or the cut-off itself."""
        return CUTOFFS[-1] + timedelta(days=self.chance.choice([0, 0, 1, 300]))

    def insert(self, trial: Trial, name: str, numbers: range, moment: Callable[[], datetime]) -> None:
        keys = [(column, parent) for child, column, parent in self.keys if child == name]
        listed = ", ".join(["id", "t", "a", "b", "c", *(column for column, _ in keys)])
        for number in numbers:
            t = self.chance.choice([moment(), moment(), moment(), None])
            own = [number, t, self.chance.randrange(100), f"v{self.chance.randrange(4)}", moment().date()]
            refers = [self.chance.choice([None, *range(1, self.rows[parent] + 1)]) for _, parent in keys]
            places = ", ".join(["%s"] * (len(own) + len(refers)))
            trial.sql(f"INSERT INTO {name} ({listed}) VALUES ({places})", *own, *refers)


def made(trial: Trial, statement: str, at: datetime) -> list[tuple[Any, ...]]:
    """Return the features of one cut-off, rounded because sums may be added in another order."""
    found = trial.sql(f"SELECT * FROM ({statement}) AS m WHERE at = '{at}' ORDER BY id")
    return [tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row) for row in found]


# PostgreSQL's own. With Greenplum's, 20, these statements are planned for minutes.
LIMITS = "SET join_collapse_limit = 8; SET from_collapse_limit = 8"


@pytest.fixture(autouse=True)
def limits(trial: Trial) -> Iterator[None]:
    trial.sql(LIMITS)
    yield
    trial.sql("RESET join_collapse_limit; RESET from_collapse_limit")


@pytest.mark.parametrize("seed", range(8))
def test_what_is_not_before_a_cut_off_changes_no_feature(seed: int, trial: Trial, connect: Connect) -> None:
    schema = RandomSchema(seed)
    trial.sql("DROP TABLE IF EXISTS labels, t0, t1, t2, t3, made, made_summary CASCADE")
    schema.create(trial)
    times = json.dumps(dict.fromkeys(schema.rows, "t"))
    trial.sql(
        "SELECT cerebro.relate('SELECT id, at FROM labels', 'made', entity => 't0', cutoff => 'at',"
        " times => %s, windows => ARRAY['5 days', 'all'], aggregates => %s, max_features => 800)",
        times, ALL,
    )  # fmt: skip
    statement = trial.value("SELECT statement FROM made_summary")
    made_by = recipe.read(json.dumps(trial.value("SELECT related_recipe FROM made_summary")))
    bases = {base_of(feature.path) for feature in made_by.features}
    # In order of time, an entity would count among the other children of its parent.
    bases = {base for base in bases if not leads_back(made_by.entity, base)}
    at_time = RelatedColumn("at", MOMENT, "timestamp")
    swept = features_sql.statement(made_by, ["id", "at"], at_time, swept=bases)
    assert ("swept_" in swept) == any(features_sql.has_one_child(base) for base in bases)
    assert trial.value("SELECT count(*) FROM pg_attribute WHERE attrelid = 'made'::regclass") > 12
    before = {at: made(trial, statement, at) for at in CUTOFFS}
    assert {at: made(trial, swept, at) for at in CUTOFFS} == before
    assert {len(rows) for rows in before.values()} == {schema.rows["t0"]}
    with closing(connect()) as connection:
        scratch = Trial(connection)
        scratch.sql(LIMITS)
        scratch.sql("BEGIN; SET CONSTRAINTS ALL DEFERRED")
        for name in schema.rows:
            schema.insert(scratch, name, range(1001, 1030), schema.late_moment)
        for each in (statement, swept):
            assert {at: made(scratch, each, at) for at in CUTOFFS} == before
        scratch.sql("ROLLBACK")
        for at in CUTOFFS:
            # Delete all rows that are not before the cut-off: the features stay the same.
            scratch.sql("BEGIN; SET session_replication_role = replica")
            for name in schema.rows:
                if name != "t0":
                    scratch.sql(f"DELETE FROM {name} WHERE t >= %s", at)
                scratch.sql(f"UPDATE {name} SET c = c + 1000 WHERE c >= %s", at.date())
            assert made(scratch, statement, at) == before[at]
            scratch.sql("ROLLBACK")
