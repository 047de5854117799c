"""MADlib's functions that convert arrays to the bytes of a packed table and back."""

from __future__ import annotations

import psycopg2
import pytest

from fixtures import Sql


def test_arrays_come_back_from_their_bytes(sql: Sql) -> None:
    reals = "SELECT cerebro.convert_bytea_to_real_array(cerebro.convert_array_to_bytea('{1.5,-2,0}'::real[]))"
    ones = (
        "SELECT cerebro.convert_bytea_to_smallint_array("
        "cerebro.convert_array_to_bytea('{0,1,-3}'::smallint[]))"
    )
    assert sql(reals) == [([1.5, -2.0, 0.0],)]
    assert sql(ones) == [([0, 1, -3],)]
    assert sql("SELECT encode(cerebro.convert_array_to_bytea('{1}'::smallint[]), 'hex')") == [("0100",)]


def test_bytes_that_are_no_array_are_refused(sql: Sql) -> None:
    with pytest.raises(psycopg2.Error, match="5 bytes are not a whole number of 4-byte values"):
        sql("SELECT cerebro.convert_bytea_to_real_array('\\x0000000000')")
