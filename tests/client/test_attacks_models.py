"""The owner of a run replaces its tables by hostile objects, which must not harm others who read the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import cerebro_db
import psycopg2
import pytest
from cerebro_db import CerebroError, Config, Database

import nets
from shell import cerebro
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow

FEATURES = 6
# A function that the owner wants others to call; it counts its calls in a sequence, which no rollback undoes.
EVIL = """
CREATE SEQUENCE models.steps; GRANT ALL ON SEQUENCE models.steps TO PUBLIC;
GRANT ALL ON SCHEMA models TO PUBLIC;
CREATE FUNCTION models.evil(anyelement) RETURNS anyelement LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM pg_catalog.nextval('models.steps'); RETURN $1; END $$;
"""
POPEN = {
    "name": "pwn", "class_name": "function", "config": "Popen", "module": "subprocess",
    "registered_name": "function", "inbound_nodes": [{"args": [["touch", "pwned"]], "kwargs": {}}],
}  # fmt: skip
FORGED = {
    "popen": {
        "module": "keras.src.models.functional", "class_name": "Functional", "registered_name": "Functional",
        "config": {"name": "m", "layers": [POPEN], "input_layers": [["pwn", 0, 0]],
                   "output_layers": [["pwn", 0, 0]]},
    },
    "huge": json.loads(nets.mlp(FEATURES, 2_000_000_000)),
    "terminal": {"module": "zzz", "class_name": "X\x1b]0;PWNED\x07\x1b[31mRED", "config": {}},
    "no model": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def owner(database: str) -> Iterator[Trial]:
    """A user with a run of one config, whose tables are in the schema `models`."""
    name = f"{database}_owner"
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('threads', '1')")
        trial.sql(f"CREATE ROLE {name} LOGIN; SELECT cerebro.grant_usage('{name}')")
        trial.sql(f"CREATE SCHEMA models AUTHORIZATION {name}; SET SESSION AUTHORIZATION {name}")
        trial.sql("SET search_path = models")
        rows = rows_of(*blobs(60, features=FEATURES))
        trial.table("blobs", "id integer, x real[], y integer", [(i, *row) for i, row in enumerate(rows)])
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [SGD], ["batch_size=10"])
        trial.fit("packed", "made", "configs", 1)
        trial.sql(EVIL)
        yield trial
        trial.sql(f"RESET SESSION AUTHORIZATION; DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


@pytest.fixture
def forging(owner: Trial) -> Iterator[Trial]:
    """Yield the owner with a copy of the model table to forge; put the original back after the test."""
    owner.sql("ALTER TABLE made RENAME TO kept; CREATE TABLE made AS SELECT * FROM kept")
    yield owner
    owner.sql("DROP TABLE made CASCADE; ALTER TABLE kept RENAME TO made")
    owner.sql("ALTER SEQUENCE models.steps RESTART")


@pytest.fixture(scope="module")
def reader(database: str, owner: Trial) -> Iterator[Database]:
    """A client that is logged in as a superuser."""
    with cerebro_db.connect(f"postgresql:///{database}") as db:
        yield db


@pytest.fixture
def config(reader: Database, owner: Trial) -> Config:
    return reader.run(owner.value("SELECT max(run_id) FROM cerebro.runs")).config(1)


def test_a_model_is_exported_by_who_may_see_the_run(config: Config) -> None:
    assert config.to_keras().count_params() == 6 * 16 + 16 + 16 * 3 + 3


def test_what_stands_in_place_of_the_models_is_not_called(
    database: str, forging: Trial, config: Config, tmp_path: Path
) -> None:
    forging.sql("CREATE VIEW seen AS SELECT evil(mst_key) AS mst_key, model_weights, model_arch FROM made")
    forging.sql("ALTER TABLE made RENAME TO was; ALTER VIEW seen RENAME TO made")
    for use in (config.to_keras, lambda: config.predict([[0.0] * FEATURES])):
        with pytest.raises(CerebroError, match="no longer a table") as refused:
            use()
        assert refused.value.sqlstate == "42809"
    run = str(config.run.run_id)
    for words in (
        ["export", run, "--config", "1", "--model", str(tmp_path / "made.keras")],
        ["predict", "models.blobs", "--x", "x", "--id", "id", "--run", run, "--config", "1"],
    ):
        done = cerebro(*words, database=database)
        assert done.code == 1 and "no longer a table" in done.err
    forging.sql("DROP VIEW made; ALTER TABLE was RENAME TO made")
    assert not forging.value("SELECT is_called FROM models.steps")


def test_what_stands_in_place_of_the_packed_rows_is_not_called(
    owner: Trial, config: Config, tmp_path: Path
) -> None:
    owner.sql("ALTER TABLE packed_summary RENAME TO was_summary")
    owner.sql("CREATE VIEW packed_summary AS SELECT *, evil(1) AS more FROM was_summary")
    try:
        with pytest.raises(CerebroError, match="no longer a table"):
            config.run.packed.export(tmp_path / "rows.npz")
    finally:
        owner.sql("DROP VIEW packed_summary; ALTER TABLE was_summary RENAME TO packed_summary")
    assert not owner.value("SELECT is_called FROM models.steps")


def test_code_that_belongs_to_a_table_is_not_called_by_an_export(forging: Trial, config: Config) -> None:
    """A plain SELECT calls the code in an index's condition and in a policy; an export must not call it."""
    forging.sql("CREATE INDEX ON made (mst_key) WHERE evil(1) = 1")
    forging.sql("CREATE POLICY p ON made USING (evil(TRUE)); ALTER TABLE made FORCE ROW LEVEL SECURITY")
    forging.sql("ALTER TABLE made ENABLE ROW LEVEL SECURITY; ALTER SEQUENCE models.steps RESTART")
    assert config.to_keras().count_params() > 0
    assert not forging.value("SELECT is_called FROM models.steps")
    config.run.db.rows("SELECT FROM models.made WHERE mst_key = 1")
    assert forging.value("SELECT is_called FROM models.steps")


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_architecture_is_refused_by_the_server(
    database: str, forging: Trial, config: Config, tmp_path: Path, name: str
) -> None:
    forging.sql("UPDATE made SET model_arch = %s", json.dumps(FORGED[name]))
    with pytest.raises(CerebroError) as refused:
        config.to_keras()
    assert refused.value.sqlstate and refused.value.sqlstate.startswith(("22", "0A", "54")), refused.value
    arguments = ("export", str(config.run.run_id), "--config", "1", "--model", str(tmp_path / "made.keras"))
    done = cerebro(*arguments, database=database)
    assert done.code == 1 and done.err.startswith("ERROR:") and "\x1b" not in done.err
    assert list(tmp_path.iterdir()) == []
