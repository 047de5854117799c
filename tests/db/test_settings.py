"""A call uses the settings at the time of the call; comments on packed tables may have quoted names."""

from __future__ import annotations

from trial import Trial, blobs, rows_of

FEATURES = 4


def test_each_call_of_a_statement_sees_what_was_set_before_it(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(40, features=FEATURES)))
    trial.sql(
        "DO $$ BEGIN INSERT INTO cerebro.settings VALUES ('segments', '1');"
        " PERFORM cerebro.training_preprocessor_dl('blobs', 'in_one', 'y', 'x');"
        " UPDATE cerebro.settings SET value = '3' WHERE name = 'segments';"
        " PERFORM cerebro.training_preprocessor_dl('blobs', 'in_three', 'y', 'x');"
        " DELETE FROM cerebro.settings WHERE name = 'segments'; END $$"
    )
    assert trial.value("SELECT segments FROM in_one_summary") == 1
    assert trial.value("SELECT segments FROM in_three_summary") == 3


def test_what_a_packed_table_was_made_from_stands_in_its_comment(trial: Trial) -> None:
    name = "o'\\ne"
    trial.table(f'"{name}"', "x real[], y integer", rows_of(*blobs(40, features=FEATURES)))
    for way in ("on", "off"):
        trial.sql(f"SET standard_conforming_strings = {way}")
        trial.call("training_preprocessor_dl", f'"{name}"', f"packed_{way}", "y", "x")
        trial.sql("RESET standard_conforming_strings")
        said = trial.value(f"SELECT obj_description('packed_{way}'::regclass)")
        assert name in said
