"""training_preprocessor_dl and validation_preprocessor_dl: the packed tables, the errors, and the rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg2
import pytest
from psycopg2.errorcodes import (
    DATATYPE_MISMATCH,
    DUPLICATE_COLUMN,
    DUPLICATE_TABLE,
    INSUFFICIENT_PRIVILEGE,
    INVALID_PARAMETER_VALUE,
    NULL_VALUE_NOT_ALLOWED_,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
)

from fixtures import Connect, Connection, MakeRole, Sql
from packing import column, make, refused, train, validate


@pytest.fixture(autouse=True)
def clean(sql: Sql) -> None:
    sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO public")


def test_rows_come_out_as_they_went_in(sql: Sql) -> None:
    make(sql)
    train(sql, options='{"segments": 3}', buffer_size=5, normalizing_const=4)
    features, labels = column(sql, "x", "<f4"), column(sql, "label", "<i2")
    classes = sql("SELECT label_class_values FROM p_summary")[0][0]
    packed = {(*row * 4, classes[int(hot.argmax())]) for row, hot in zip(features, labels, strict=True)}
    assert packed == {(*x, label) for x, label in sql("SELECT x, label FROM t")}
    assert (labels.sum(axis=1) == 1).all()
    assert classes == ["Ant", "bee", "cat"]


COLUMNS = """SELECT array_agg(concat_ws(' ', attname, format_type(atttypid, NULL), attstorage)
             ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"""


def test_the_table_is_madlibs(sql: Sql) -> None:
    make(sql)
    train(sql, options='{"segments": 3}', buffer_size=6)
    assert sql(COLUMNS, "p") == [
        (["__dist_key__ integer p", "label bytea x", "label_shape integer[] x", "x bytea e",
          "x_shape integer[] x", "buffer_id integer p"],)
    ]  # fmt: skip
    assert sql("SELECT obj_description('p'::regclass) IS NOT NULL") == [(True,)]
    assert sql(
        """SELECT array_agg(x_shape[1] ORDER BY buffer_id), array_agg(buffer_id ORDER BY buffer_id)
           FROM p GROUP BY __dist_key__ ORDER BY min(buffer_id)"""
    ) == [([4, 5, 5], [0, 1, 2]), ([4, 4, 5], [3, 4, 5]), ([4, 4, 5], [6, 7, 8])]


@pytest.mark.postgresql
def test_each_segment_has_a_partition(sql: Sql) -> None:
    make(sql)
    train(sql, options='{"segments": 3}', buffer_size=6)
    assert sql("SELECT pg_get_partkeydef('p'::regclass)") == [("LIST (__dist_key__)",)]
    assert sql(COLUMNS, "p_1") == sql(COLUMNS, "p")
    found = sql("SELECT tableoid::regclass::text, __dist_key__ FROM p GROUP BY 1, 2 ORDER BY 1")
    assert found == [("p_0", 0), ("p_1", 1), ("p_2", 2)]


def test_the_summary_is_madlibs(sql: Sql, greenplum: bool) -> None:
    make(sql)
    train(
        sql,
        dep="number",
        buffer_size=6,
        normalizing_const=5,
        num_classes=[7],
        options='{"segments": 2, "seed": 9}',
    )
    with_types = sql(
        """SELECT array_agg(attname || ' ' || format_type(atttypid, NULL) ORDER BY attnum)
           FROM pg_attribute WHERE attrelid = 'p_summary'::regclass AND attnum > 0"""
    )
    assert with_types[0][0] == [
        "source_table text", "output_table text", "dependent_varname text[]", "independent_varname text[]",
        "dependent_vartype text[]", "number_class_values integer[]",
        "number_class_counts bigint[]", "buffer_size integer",
        "normalizing_const real", "num_classes integer[]", "distribution_rules text",
        "__internal_gpu_config__ text",
        "segments integer", "seed bigint", "total_rows bigint", "feature_specification jsonb",
        "weight_varname text", "packed_versions jsonb",
        *(["__dist_keys__ integer[]"] if greenplum else []),
    ]  # fmt: skip
    ((*row, last),) = sql(f"SELECT *{'' if greenplum else ', NULL'} FROM p_summary")
    assert row == [
        "t", "p", ["number"], ["x"], ["integer"], [0, 1, 2, 3, 4, None, None],
        [8, 8, 8, 8, 8, 0, 0], 5, 5.0,
        [7], "all_segments", "all_segments", 2, 9, 40, None, None,
        [{"rows": 40, "below": 8, "source_table": "t"}],
    ]  # fmt: skip
    in_order = "SELECT __dist_key__ FROM p GROUP BY 1 ORDER BY min(buffer_id)"
    assert last == ([key for (key,) in sql(in_order)] if greenplum else None)


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint", "real", "double precision", "numeric"])
@pytest.mark.parametrize("shape", ["{{{value}}}", "{{{{{value},1}},{{2,3}},{{4,5}}}}"])
def test_every_numeric_array_is_an_input(sql: Sql, kind: str, shape: str) -> None:
    sql(
        f"CREATE TABLE t AS SELECT i AS label, %s::{kind}[] AS x FROM generate_series(1, 3) i",
        shape.format(value=7),
    )
    train(sql, dep="label")
    features = column(sql, "x", "<f4")
    assert features.shape == ((3, 1) if "2" not in shape else (3, 3, 2))
    assert (features[0].reshape(-1)[0], sql("SELECT num_classes FROM p_summary")) == (7, [([3],)])


def test_domains_are_seen_through(sql: Sql) -> None:
    sql("CREATE DOMAIN d1 AS real[]; CREATE DOMAIN d2 AS d1; CREATE DOMAIN colour AS varchar(9)")
    sql("CREATE TABLE t AS SELECT '{1,2}'::d2 AS x, ('c' || i)::colour AS label FROM generate_series(1, 4) i")
    train(sql)
    assert column(sql, "x", "<f4").tolist() == [[1, 2]] * 4
    assert sql(
        "SELECT dependent_vartype, label_class_values, pg_typeof(label_class_values)::text FROM p_summary"
    ) == [(["public.colour"], ["c1", "c2", "c3", "c4"], "character varying[]")]


def test_bytea_images_take_the_shape_that_is_given(sql: Sql) -> None:
    sql(r"CREATE TABLE t AS SELECT i AS label, '\x0001fe80ff10'::bytea AS img FROM generate_series(1, 4) i")
    train(sql, indep="img", options='{"segments": 2, "shape": {"img": [3, 2, 1]}}', normalizing_const=255)
    assert column(sql, "img", "<f4").shape == (4, 3, 2, 1)
    assert np.array_equal(
        column(sql, "img", "<f4")[0].reshape(-1), np.array([0, 1, 254, 128, 255, 16], "f4") / np.float32(255)
    )
    sql("CREATE TABLE u AS TABLE t")
    validate(sql, "u", indep="img")
    assert column(sql, "img", "<f4", "v").shape == (4, 3, 2, 1)
    refused(
        sql,
        INVALID_PARAMETER_VALUE,
        "[6], which cannot be [2, 2]",
        out="q",
        indep="img",
        options='{"shape": [2, 2]}',
    )


def test_flat_arrays_may_be_given_a_shape(sql: Sql) -> None:
    make(sql)
    train(sql, options='{"segments": 2, "shape": [2, 2]}')
    sql("CREATE TABLE u AS SELECT label, ARRAY[x] AS x FROM t")
    validation_refused(sql, INVALID_PARAMETER_VALUE, "[1, 4], which cannot be [2, 2]", source="u")
    validate(sql, "t")
    assert column(sql, "x", "<f4", "v").shape == (40, 2, 2)


def test_plain_columns_are_one_vector(sql: Sql) -> None:
    make(sql)
    train(sql, indep="id, quantity, number")
    assert sorted(column(sql, "independent_var", "<f4").tolist()) == sorted(
        [float(i), float(q), float(n)] for i, q, n in sql("SELECT id, quantity, number FROM t")
    )
    train(sql, out="q", indep="id")
    assert sorted(column(sql, "id", "<f4", "q")[:, 0]) == list(range(1, 41))
    train(sql, out="r", indep="ARRAY[id, quantity, number]")
    assert np.array_equal(column(sql, "independent_var", "<f4", "r"), column(sql, "independent_var", "<f4"))


def test_several_inputs_and_outputs(sql: Sql) -> None:
    make(sql)
    train(sql, dep="label, quantity", indep="x, ARRAY[id]")
    assert sql("SELECT dependent_varname, independent_varname, num_classes FROM p_summary") == [
        (["label", "quantity"], ["x", "independent_var"], [3, None])
    ]
    ids, quantity = column(sql, "independent_var", "<f4"), column(sql, "quantity", "<f4")
    assert np.array_equal(ids / 4, quantity) and quantity.shape == (40, 1)
    assert np.array_equal(column(sql, "x", "<f4")[:, :1], ids)


@pytest.mark.parametrize(
    ("expression", "kind", "classes"),
    [
        ("i % 2 = 0", "boolean", ["false", "true"]),
        ("(ARRAY['Z', 'a', 'ä', NULL])[i % 4 + 1]", "text", [None, "Z", "a", "ä"]),
        ("(i % 12 - 6)::smallint", "smallint", [str(i) for i in range(-6, 6)]),
        ("('2026-01-0' || (1 + i % 2))::date", "date", ["2026-01-01", "2026-01-02"]),
        ("(CASE i % 2 WHEN 0 THEN 'x' ELSE 'yy' END)::char(3)", "character", ["x", "yy"]),
        ("NULL::text", "text", [None]),
    ],
)
def test_labels_of_many_types_are_classes(
    sql: Sql, expression: str, kind: str, classes: list[str | None]
) -> None:
    sql(
        f"CREATE TABLE t AS SELECT ARRAY[i]::real[] AS x, {expression} AS label FROM generate_series(1, 24) i"
    )
    train(sql)
    assert sql("SELECT dependent_vartype[1], label_class_values::text[], num_classes FROM p_summary") == [
        (kind, classes, [len(classes)])
    ]
    rows = zip(column(sql, "x", "<f4")[:, 0], column(sql, "label", "<i2"), strict=True)
    expected = dict(sql("SELECT x[1], rtrim(label::text) FROM t"))
    assert {x: classes[int(hot.argmax())] for x, hot in rows} == expected


def test_enums_keep_their_order(sql: Sql) -> None:
    sql("CREATE TYPE size AS ENUM ('small', 'large', 'huge')")
    sql(
        """CREATE TABLE t AS SELECT ARRAY[i]::real[] AS x, ('{huge,small,large}'::size[])[i] AS label
           FROM generate_series(1, 3) i"""
    )
    train(sql)
    assert sql("SELECT label_class_values::text[], pg_typeof(label_class_values)::text FROM p_summary") == [
        (["small", "large", "huge"], "size[]")
    ]


def test_floats_are_regression_targets_and_arrays_are_taken_as_they_are(sql: Sql) -> None:
    sql(
        """CREATE TABLE t AS SELECT ARRAY[i]::real[] AS x, i * 1.5::numeric AS a,
           ARRAY[i, i + 1]::float8[] AS b,
           ARRAY[(i = 1)::int, (i <> 1)::int] AS c, ARRAY[i = 2, true, false] AS d
           FROM generate_series(1, 4) i"""
    )
    train(sql, dep="a, b, c, d")
    x = column(sql, "x", "<f4")
    assert np.array_equal(column(sql, "a", "<f4"), x * 1.5)
    assert np.array_equal(column(sql, "b", "<f4"), np.hstack([x, x + 1]))
    assert np.array_equal(column(sql, "c", "<i2"), np.hstack([x == 1, x != 1]))
    assert np.array_equal(column(sql, "d", "<i2"), np.hstack([x == 2, x > 0, x < 0]))
    assert sql("SELECT num_classes, a_class_values, c_class_values, dependent_vartype FROM p_summary") == [
        ([None, None, 2, 3], None, None, ["numeric", "double precision[]", "integer[]", "boolean[]"])
    ]


def test_arrays_of_integers_hold_classes_and_no_counts(sql: Sql, db: Connection) -> None:
    sql(
        """CREATE TABLE t AS SELECT ARRAY[i]::real[] AS x, ARRAY[i % 3, 1 - i % 3] AS counts,
           ARRAY[(i > 1)::int, 1, 0] AS labels, CASE WHEN i > 1 THEN i % 2 END AS label
           FROM generate_series(1, 6) i"""
    )
    hint = 'options {"task": "regression"}'
    refused(sql, INVALID_PARAMETER_VALUE, 'column "counts" holds values other than 0 and 1', dep="counts")
    refused(sql, INVALID_PARAMETER_VALUE, hint, dep="counts")
    train(sql, dep="counts", options='{"segments": 2, "task": "regression"}')
    assert column(sql, "counts", "<f4").min() == -1
    train(sql, out="q", dep="labels")
    assert column(sql, "labels", "<i2", "q").sum() == 6 + 5
    assert 'column "labels" has no 1 or several in 5 of 6 rows' in db.notices[-1]
    train(sql, out="r", dep="label")
    assert 'column "label" is NULL in some rows: NULL is a class of its own' in db.notices[-1]


def test_the_task_overrides_what_types_suggest(sql: Sql) -> None:
    make(sql)
    train(sql, dep="number", options='{"segments": 2, "task": "regression"}')
    assert set(column(sql, "number", "<f4")[:, 0]) == {0, 1, 2, 3, 4}
    train(sql, out="q", dep="quantity", options='{"segments": 2, "task": "classification"}')
    assert column(sql, "quantity", "<i2", "q").shape == (40, 40)
    train(sql, out="r", dep="quantity", num_classes=[41])
    assert sql("SELECT num_classes, quantity_class_values[1:2] FROM r_summary") == [([41], [0.25, 0.5])]


def digest(sql: Sql, table: str) -> Sequence[Any]:
    return sql(
        f"SELECT md5(string_agg(concat_ws(',', __dist_key__, buffer_id, md5(x), x_shape, md5(label)), ';'"
        f" ORDER BY buffer_id)) FROM {table}"
    )


def test_the_same_rows_in_any_order_give_the_same_bytes(sql: Sql) -> None:
    make(sql)
    sql("INSERT INTO t TABLE t; INSERT INTO t (x, label) SELECT x, NULL FROM t LIMIT 5")
    sql("CREATE TABLE u AS SELECT * FROM t ORDER BY md5(id::text || label), random()")
    sql("CREATE VIEW w AS SELECT label, x::float8[] AS x FROM u")
    train(sql)
    train(sql, out="q", source="u")
    train(sql, out="r", source="w", options='{"segments": 2, "memory_mb": 16}')
    train(sql, out="s", options='{"segments": 2, "seed": 2}')
    assert digest(sql, "p") == digest(sql, "q") == digest(sql, "r") != digest(sql, "s")


def test_every_server_packs_the_same_bytes(sql: Sql) -> None:
    """The packed buffers have one fixed checksum, whatever server packs them."""
    make(sql)
    train(sql, options='{"segments": 3}', buffer_size=6)
    buffers = "concat_ws(',', buffer_id, md5(x), x_shape, md5(label))"
    found = sql(f"SELECT md5(string_agg({buffers}, ';' ORDER BY buffer_id)) FROM p")
    assert found == [("b1f7cf10d26cbd4feaebe9e5dc340357",)]


def test_a_table_larger_than_the_memory_gives_the_same_bytes(sql: Sql) -> None:
    sql(
        """CREATE TABLE t AS SELECT array_fill((i %% 4999)::real / 7, ARRAY[512]) AS x, i %% 3 AS label
           FROM generate_series(1, 12000) i""".replace("%%", "%")
    )
    train(sql)
    train(sql, out="q", options='{"segments": 2, "memory_mb": 16}')
    assert digest(sql, "p") == digest(sql, "q")
    assert sql("SELECT sum(x_shape[1]) FROM q") == [(12000,)]


def test_validation_rows_are_packed_as_the_training_rows(sql: Sql) -> None:
    make(sql)
    sql("INSERT INTO t VALUES (0, '{0,0,0,0}', NULL, 0, 0)")
    train(sql, num_classes=[6], normalizing_const=2, options='{"segments": 3, "seed": 4}')
    sql("CREATE TABLE u AS SELECT label, x AS features FROM t WHERE label IN ('bee', 'cat') OR label IS NULL")
    validate(sql, "u", indep="features")
    assert sql(
        """SELECT v.label_class_values, v.num_classes, v.normalizing_const, v.segments, v.seed,
           v.independent_varname, v.label_class_values = p.label_class_values FROM v_summary v, p_summary p"""
    ) == [([None, "Ant", "bee", "cat", None, None], [6], 2.0, 3, 4, ["features"], True)]
    packed = zip(
        column(sql, "features", "<f4", "v")[:, 0] * 2,
        column(sql, "label", "<i2", "v").argmax(axis=1),
        strict=True,
    )
    names = [None, "Ant", "bee", "cat"]
    assert {(x, names[place]) for x, place in packed} == {(x[0], label) for label, x in sql("TABLE u")}


def validation_refused(sql: Sql, code: str, text: str, **how: str) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        validate(sql, **how)
    assert caught.value.pgcode == code
    assert text in str(caught.value)
    assert sql("SELECT to_regclass('v')") == [(None,)]


def test_validation_tables_that_do_not_fit_are_refused(sql: Sql) -> None:
    make(sql)
    train(sql)
    sql("CREATE TABLE u AS SELECT x, quantity, number, x[1:2] AS short, label || 'x' AS label FROM t")
    validation_refused(sql, INVALID_PARAMETER_VALUE, "does not have: Antx, beex, catx", source="u")
    # Labels of another type count as classes if they have the same text.
    validation_refused(sql, INVALID_PARAMETER_VALUE, "does not have: 0, 1, 2, 3, 4", source="u", dep="number")
    validation_refused(sql, INVALID_PARAMETER_VALUE, "[2], which cannot be [4]", source="u", indep="short")
    validation_refused(sql, INVALID_PARAMETER_VALUE, "2 columns", source="u", dep="label,quantity")
    validation_refused(sql, UNDEFINED_TABLE, "t_summary", source="u", training="t")
    validation_refused(sql, UNDEFINED_TABLE, "nosuch", source="u", training="nosuch")
    sql("UPDATE u SET label = NULL")
    validation_refused(sql, INVALID_PARAMETER_VALUE, "does not have: NULL", source="u")


LAST = "row 41 of the scan"
BAD_ROWS = {
    "NULL": (NULL_VALUE_NOT_ALLOWED_, 'column "x" is NULL in 1 of 41 rows'),
    "'{1,NULL,3,4}'": (NULL_VALUE_NOT_ALLOWED_, 'column "x" has NULL elements in 1 of 41 rows'),
    "'{1,2,3}'": (INVALID_PARAMETER_VALUE, f"{LAST}, with {{3}} instead of {{4}}"),
    "'{{1,2},{3,4}}'": (INVALID_PARAMETER_VALUE, "with {2,2} instead of {4}"),
    "'{}'": (INVALID_PARAMETER_VALUE, "with {} instead of {4}"),
    "'{1,2,NaN,4}'": (INVALID_PARAMETER_VALUE, 'column "x" holds NaN or infinity in 1 of 41 rows'),
    "'{1,2,-Infinity,4}'": (INVALID_PARAMETER_VALUE, f"{LAST}, with -inf"),
    "'{1,2,1e300,4}'": (INVALID_PARAMETER_VALUE, "beyond the range of a 32-bit float"),
}


@pytest.mark.parametrize("value", BAD_ROWS)
def test_bad_rows_are_told_and_nothing_is_left(sql: Sql, greenplum: bool, value: str) -> None:
    make(sql)
    sql("ALTER TABLE t ALTER x TYPE float8[]")
    sql(f"INSERT INTO t VALUES (41, {value}, 'cat')")
    code, text = BAD_ROWS[value]
    refused(sql, code, text.replace(LAST, last_on_its_segment(sql)) if greenplum else text)


def last_on_its_segment(sql: Sql) -> str:
    """Return the place of row 41 as a cluster's errors give it: by its segment and the segment's scan."""
    same = "gp_segment_id = (SELECT gp_segment_id FROM t WHERE id = 41)"
    ((segment, rows),) = sql(f"SELECT gp_segment_id, count(*) FROM t WHERE {same} GROUP BY 1")
    return f"row {rows} of the scan on segment {segment}"


def test_bad_values_in_plain_columns_and_targets_name_the_column(sql: Sql) -> None:
    make(sql)
    sql("INSERT INTO t VALUES (41, '{1,2,3,4}', 'cat', NULL, 'NaN')")
    refused(sql, NULL_VALUE_NOT_ALLOWED_, 'column "number" is NULL in 1 of 41 rows', indep="id, number")
    refused(sql, INVALID_PARAMETER_VALUE, 'column "quantity" holds NaN', dep="quantity")


def test_bad_arguments_are_refused(sql: Sql) -> None:
    make(sql)
    sql("CREATE TABLE empty (x real[], label text); CREATE TABLE taken (); CREATE TABLE half_summary ()")
    sql("CREATE TABLE three AS TABLE t LIMIT 3; CREATE INDEX i ON t (id)")
    bad = INVALID_PARAMETER_VALUE
    refused(sql, UNDEFINED_TABLE, "'nosuch' does not exist", source="nosuch")
    refused(sql, UNDEFINED_TABLE, "'i' does not exist", source="i")
    refused(sql, NULL_VALUE_NOT_ALLOWED_, "input table is NULL", source=None)
    refused(sql, NULL_VALUE_NOT_ALLOWED_, "output table is NULL", out=None)
    refused(sql, NULL_VALUE_NOT_ALLOWED_, "dependent_varname is NULL", dep=None)
    refused(sql, NULL_VALUE_NOT_ALLOWED_, "independent_varname is NULL", indep=" ")
    refused(sql, DUPLICATE_TABLE, "taken", out="taken")
    refused(sql, DUPLICATE_TABLE, "half_summary", out="half")
    refused(sql, DUPLICATE_TABLE, "already exists", out="public.t")
    refused(sql, UNDEFINED_COLUMN, 'Did you mean "label"', dep="labl")
    refused(sql, UNDEFINED_COLUMN, "ctid", dep="ctid")
    refused(sql, DATATYPE_MISMATCH, '"label" of type text cannot be an input', indep="label")
    refused(sql, DATATYPE_MISMATCH, "mixes plain columns", indep="x, id")
    refused(sql, DUPLICATE_COLUMN, '"x"', dep="number", indep="x, x")
    refused(sql, bad, "is not a list of columns", indep="x::real[]")
    refused(sql, bad, "buffer_size must be a positive", buffer_size=0)
    refused(sql, bad, "normalizing_const must be a positive", normalizing_const=0)
    refused(sql, bad, "normalizing_const must be a positive", normalizing_const="NaN")
    refused(sql, bad, "has 3 distinct values", num_classes=[2])
    refused(sql, bad, "2 elements for 1 dependent", num_classes=[3, 3])
    refused(sql, bad, "has no rows", source="empty")
    refused(sql, bad, "segment", options='{"segmetns": 4}')
    refused(sql, bad, "which is not an input", options='{"shape": {"y": [4]}}')


@pytest.mark.postgresql
def test_the_names_of_partitions_must_be_free(sql: Sql) -> None:
    make(sql)
    sql("CREATE TABLE q_1 ()")
    refused(sql, DUPLICATE_TABLE, "q_1", out="q")


def test_names_of_all_kinds_are_only_names(sql: Sql) -> None:
    nasty = 'Robert"); DROP TABLE t; --é.$1 %s'
    quoted = '"' + nasty.replace('"', '""') + '"'
    make(sql)
    sql("CREATE SCHEMA other")
    sql(f'CREATE VIEW other."V.1" AS SELECT x AS {quoted}, label AS "Label" FROM t')
    train(sql, source='other."V.1"', out=f"other.{quoted}", dep='"Label"', indep=quoted)
    assert sql(f'SELECT independent_varname, dependent_varname FROM other.{quoted[:-1]}_summary"') == [
        ([nasty], ["Label"])
    ]
    assert sql(f'SELECT sum({quoted[:-1]}_shape"[1]) FROM other.{quoted}') == [(40,)]
    assert sql("SELECT count(*) FROM t") == [(40,)]
    refused(sql, INVALID_PARAMETER_VALUE, "longer than 63 bytes", out="p" * 60)
    sql(f"CREATE VIEW w AS SELECT x, label AS {'n' * 60} FROM t")
    refused(sql, "42622", "longer than 63 bytes", source="w", dep="n" * 60)


@pytest.mark.postgresql
def test_partitions_of_long_names_are_shortened(sql: Sql) -> None:
    make(sql)
    name = "ä" * 27
    train(sql, out=name, options='{"segments": 12}')
    names = [row[0] for row in sql("SELECT relname FROM pg_class WHERE relispartition AND relname LIKE 'ä%'")]
    assert len(set(names)) == 12 and all(len(n.encode()) <= 63 for n in names)


def test_tables_are_found_and_made_in_the_callers_search_path(sql: Sql, connect: Connect) -> None:
    make(sql)
    session = connect()
    sql('CREATE SCHEMA "A b"; SET search_path = nosuch, "A b", public', on=session)
    train(sql, on=session)
    assert sql("SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'p'") == [('"A b"',)]
    sql("CREATE TEMP TABLE t AS SELECT x[1:2] AS x, label FROM public.t", on=session)
    train(sql, out="q", on=session)
    assert sql('SELECT DISTINCT x_shape[2] FROM "A b".q') == [(2,)]
    train(sql, out="pg_temp.q", on=session)
    assert sql("SELECT count(*) > 0 FROM pg_temp.q", on=session) == [(True,)]


def test_a_role_packs_what_it_may_read_and_owns_the_result(
    sql: Sql, role: MakeRole, connect: Connect
) -> None:
    make(sql)
    name = role()
    session = connect(user=name)
    with pytest.raises(psycopg2.Error) as caught:
        train(sql, on=session)
    assert caught.value.pgcode == INSUFFICIENT_PRIVILEGE
    sql(f"GRANT SELECT ON t TO {name}")
    train(sql, on=session)
    assert sql(
        """SELECT DISTINCT relowner::regrole::text FROM pg_class
           WHERE relname ~ '^p(_|$)' AND relnamespace = 'public'::regnamespace"""
    ) == [(name,)]


def test_packing_takes_part_in_the_callers_transaction(sql: Sql, connect: Connect) -> None:
    make(sql)
    session = connect(autocommit=False)
    train(sql, on=session)
    session.rollback()
    assert sql("SELECT to_regclass('p')") == [(None,)]
    sql("ALTER TABLE t ADD v text DEFAULT 'new'", on=session)
    train(sql, dep="v", on=session)
    session.commit()
    assert sql("SELECT v_class_values FROM p_summary") == [(["new"],)]


@pytest.mark.postgresql
def test_rules_of_distribution_are_ignored_with_a_notice(sql: Sql, db: Connection) -> None:
    make(sql)
    train(sql, distribution_rules="gpu_segments")
    assert any("distribution_rules gpu_segments is ignored" in notice for notice in db.notices)
