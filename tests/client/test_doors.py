"""First steps in the client: addresses, what a database lacks, data frames, and objects in a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import cerebro_db
import numpy as np
import pandas
import pytest
from cerebro_db import CerebroError, Database, Packed, Run
from sqlalchemy import URL

import nets
from fixtures import MakeRole

Html = Callable[[], str]


@pytest.mark.parametrize(
    "address",
    [
        "dbname={}", "host={host} dbname={} application_name=mine", "postgresql:///{}", "postgres:///{}",
        "postgresql+psycopg2:///{}", "postgresql+asyncpg:///{}", "postgresql+psycopg://?dbname={}",
    ],
)  # fmt: skip
def test_an_address_is_what_psql_or_sqlalchemy_takes(
    address: str, client_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    with cerebro_db.connect(address.format(client_database, host=os.environ["PGHOST"])) as db:
        assert db.rows("SELECT current_database() AS name") == [{"name": client_database}]


def test_services_variables_and_urls_are_addresses_as_well(
    client_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "services").write_text(f"[mine]\ndbname={client_database}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGDATABASE", "postgres")
    for address in ("service=mine", URL.create("postgresql+psycopg", database=client_database)):
        with cerebro_db.connect(address) as db:
            assert db.rows("SELECT current_database() AS name") == [{"name": client_database}]
    monkeypatch.setenv("PGDATABASE", client_database)
    cerebro_db.connect().close()


@pytest.mark.parametrize("address", ["mysql://root@localhost/x", "dbname", "://", 7, "nonsense=1"])
def test_what_is_no_address_is_refused_without_a_word_of_it(address: object) -> None:
    with pytest.raises(CerebroError) as refused:
        cerebro_db.connect(address)  # pyright: ignore[reportArgumentType]
    assert refused.value.hint and "nonsense" not in str(refused.value)


def test_what_lacks_is_said_with_the_statement_that_helps(
    empty_database: str, database: str, role: MakeRole
) -> None:
    with pytest.raises(CerebroError, match=r"has no extension cerebro\n.*CREATE EXTENSION cerebro CASCADE"):
        cerebro_db.connect(f"dbname={empty_database}")
    stranger = role(usage=False)
    with pytest.raises(CerebroError, match=rf"may not use cerebro(.|\n)*grant_usage\('{stranger}'\)"):
        cerebro_db.connect(f"dbname={database} user={stranger}")
    with pytest.raises(CerebroError, match="does not exist"):
        cerebro_db.connect("dbname=nobody_has_this")
    with pytest.raises(CerebroError, match=r"(.|\n)*HINT: Say where the server is.*make -s env"):
        cerebro_db.connect("host=/nobody/listens/here")


def test_a_frame_is_packed_and_leaves_nothing_else(client: Database) -> None:
    tables = "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
    before = {row["name"] for row in client.rows(tables)}
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [1, 0, 1, 0], "kind": list("xyxy")})
    with pytest.raises(CerebroError, match="need a name"):
        client.pack(frame, y="kind")
    packed = client.pack(frame, y="kind", into="framed")
    assert (packed.summary()["total_rows"], packed.x) == (4, ["a", "b"])
    held = client.pack(
        {"a": np.ones(2), "b": np.ones(2), "kind": np.array(["x", "y"])}, into="held", like=packed
    )
    assert len(held) == 2
    after = {row["name"] for row in client.rows(tables)}
    assert after - before == {"framed", "framed_summary", "held", "held_summary"}
    client.rows("DROP TABLE framed, framed_summary, held, held_summary")


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_a_number_that_is_none_is_found_before_anything_is_sent(client: Database, bad: float | None) -> None:
    frame = pandas.DataFrame({"a": [1.0, 2.0, bad], "y": [1, 0, 1]})
    with pytest.raises(CerebroError, match=r"column a holds NaN(.|\n)*1 of 3(.|\n)*row 2(.|\n)*dropna"):
        client.pack(frame, y="y", into="never")
    with pytest.raises(CerebroError, match=r"no column b\n.*There are a, y"):
        client.pack(frame, x="b", y="y", into="never")
    assert client.rows("SELECT to_regclass('never') AS name") == [{"name": None}]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Dens", "Dense"), ("Conv2d", "Conv2D"), ("Flaten", "Flatten")],
)
def test_a_layer_that_is_misspelt_is_told_its_name(client: Database, wrong: str, right: str) -> None:
    model = nets.mlp(2, 8, 1, "linear")
    text = (model if isinstance(model, str) else model.to_json()).replace('"Dense"', f'"{wrong}"')
    with pytest.raises(CerebroError, match=f'Did you mean "{right}"'):
        client.architectures.add(text)


def test_a_notebook_shows_what_an_object_is(client: Database, packed: Packed, run: Run) -> None:
    shown = {
        "postgresql": client._repr_html_,
        "total rows": packed._repr_html_,
        "has_weights": client.architectures._repr_html_,
        "finished after": run._repr_html_,
        "learning_rate": run.best()._repr_html_,
    }
    for word, html in shown.items():
        text = html()
        assert word in text, word
        assert "<script" not in text and text.count("<table") == text.count("</table>")
