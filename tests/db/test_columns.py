"""Packing makes the same features from table columns as scikit-learn, Keras and Pillow."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import numpy as np
import psycopg2
import pytest
from PIL import Image
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from fixtures import Connect, MakeRole, Sql
from mixed import CUSTOMERS, ROWS, feature, pack, picture, specification
from packing import column
from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def customers(trial: Trial) -> None:
    trial.sql(CUSTOMERS, ROWS)


def made(sql: Sql, name: str, query: str) -> None:
    """Create a table from a query, or a view if `name` ends with _view; drop an earlier one first."""
    kind = "VIEW" if name.endswith("_view") else "TABLE"
    sql(f"DROP {kind} IF EXISTS {name}")
    sql(f"CREATE {kind} {name} AS {query}")


def vector(sql: Sql, said: dict[str, Any], width: int | None = 1, source: str = "customers") -> np.ndarray:
    """Pack the ids and one other column, and return the features of this column in the order of the ids."""
    (name,) = said
    pack(sql, f"id, {name}", {"id": {"scale": "none"}, **said}, source=source)
    found = column(sql, "independent_var", "<f4", "packed")
    assert width is None or found.shape[1] == 1 + width
    return found[np.argsort(found[:, 0]), 1:]


def rows(sql: Sql, name: str) -> np.ndarray:
    """Return a column of `customers`, in the order of the ids, as an array with one column."""
    return np.array([value for (value,) in sql(f"SELECT {name} FROM customers ORDER BY id")], object)[
        :, np.newaxis
    ]


NUMBERS = {
    "standard": StandardScaler(),
    "minmax": MinMaxScaler(),
    "robust": RobustScaler(),
    "quantile": QuantileTransformer(n_quantiles=201, output_distribution="normal", subsample=10**6),
    "log": make_pipeline(FunctionTransformer(np.log1p), StandardScaler()),
    "none": FunctionTransformer(),
}


@pytest.mark.parametrize("scale", NUMBERS)
@pytest.mark.parametrize("impute", ["mean", "median", "most_frequent", 7])
def test_numbers_are_scikit_learns(sql: Sql, scale: str, impute: Any) -> None:
    """Statistics do not count NULL, and the values that replace NULL are scaled like the others."""
    found = vector(sql, {"income": {"scale": scale, "impute": impute}}, 2)
    values = rows(sql, "income").astype(float)
    strategy: Any = (
        {"strategy": impute} if isinstance(impute, str) else {"strategy": "constant", "fill_value": impute}
    )
    filled = SimpleImputer(**strategy).fit(values).transform(values)
    scaled: Any = NUMBERS[scale].fit(values).transform(filled)
    flags: Any = MissingIndicator().fit_transform(values)
    assert np.abs(found - np.hstack([scaled, flags])).max() < (1e-6 if scale != "none" else 1e-3)


def test_a_small_deviation_far_from_zero_is_kept(sql: Sql) -> None:
    found = vector(sql, {"far": {}})
    assert np.abs(found - StandardScaler().fit_transform(rows(sql, "far").astype(float))).max() < 1e-6


def test_statistics_are_readable_and_those_of_the_training_rows(sql: Sql) -> None:
    pack(sql, "age")
    ages = [age for (age,) in sql("SELECT age FROM customers WHERE age IS NOT NULL")]
    known = feature(sql, "age")["statistics"]
    assert known == {
        "present": len(ages),
        "nulls": ROWS - len(ages),
        "mean": pytest.approx(np.mean(ages), rel=1e-6),
        "deviation": pytest.approx(np.std(ages), rel=1e-6),
        "minimum": min(ages),
        "maximum": max(ages),
    }
    made(sql, "others", "SELECT id, 3 * age AS age, gone FROM customers")
    sql("SELECT cerebro.validation_preprocessor_dl('others', 'v', 'gone', '*', 'packed')")
    assert specification(sql, "v") == specification(sql)


def test_the_order_of_rows_is_of_no_account(sql: Sql) -> None:
    pack(sql, "income, far, seen, level")
    before = sql("SELECT md5(string_agg(independent_var::text, '' ORDER BY buffer_id)) FROM packed")
    made(sql, "turned", "SELECT * FROM customers ORDER BY md5(id::text)")
    pack(sql, "income, far, seen, level", source="turned")
    after = sql("SELECT md5(string_agg(independent_var::text, '' ORDER BY buffer_id)) FROM packed")
    assert before == after


def test_one_hot_categories_are_scikit_learns(sql: Sql) -> None:
    found = vector(sql, {"city": {"encode": "one_hot", "min_count": 700}}, None)
    encoder = OneHotEncoder(min_frequency=700, handle_unknown="infrequent_if_exist", sparse_output=False)
    values = rows(sql, "city")
    assert (found == encoder.fit_transform(values)).all()
    # An unseen category is encoded as a rare one.
    made(sql, "elsewhere", "SELECT id, 'nowhere' AS city, gone FROM customers WHERE id <= 10")
    sql("DROP TABLE IF EXISTS w, w_summary")
    sql("SELECT cerebro.validation_preprocessor_dl('elsewhere', 'w', 'gone', '*', 'packed')")
    assert (column(sql, "independent_var", "<f4", "w")[:, 1:] == encoder.transform([["nowhere"]])).all()


def test_null_is_a_category_where_it_occurs(sql: Sql) -> None:
    found = vector(sql, {"plan": {"encode": "one_hot"}}, 4)
    assert (found == OneHotEncoder(sparse_output=False).fit_transform(rows(sql, "plan"))).all()


def test_ordinal_categories_are_scikit_learns(sql: Sql) -> None:
    found = vector(sql, {"level": {"encode": "ordinal"}})
    assert (found == OrdinalEncoder().fit_transform(rows(sql, "level"))).all()
    found = vector(sql, {"plan": {"encode": "ordinal"}})
    plans = np.array([[np.nan if plan is None else plan] for plan in rows(sql, "plan")[:, 0]], object)
    assert (found == OrdinalEncoder(encoded_missing_value=-2).fit_transform(plans)).all()


def test_categories_for_an_embedding_are_an_input_of_their_own(sql: Sql) -> None:
    pack(sql, "id, plan", {"id": {"scale": "none"}, "plan": {"encode": "embed"}})
    ids, found = (column(sql, name, "<f4", "packed") for name in ("independent_var", "plan"))
    codes = {None: 1, "basic": 2, "free": 3, "pro": 4}
    expected = [[codes[plan]] for (plan,) in sql("SELECT plan FROM customers ORDER BY id")]
    assert (found[np.argsort(ids[:, 0])] == expected).all()


def test_hashed_categories_keep_to_their_buckets(sql: Sql) -> None:
    pack(sql, "city", {"city": {"encode": "hash", "buckets": 8}})
    found = column(sql, "city", "<f4", "packed")
    assert {*np.unique(found)} == {1, 2, 3, 4, 5, 6, 7, 8}


def test_several_columns_are_a_column_transformer(sql: Sql) -> None:
    names = ["id", "age", "income", "level", "plan"]
    pack(sql, ", ".join(names), {"id": {"scale": "none"}, "level": {"scale": "minmax"}})
    values = np.array(sql(f"SELECT {', '.join(names)} FROM customers ORDER BY id"), object)
    numbers = FeatureUnion(
        [("z", make_pipeline(StandardScaler(), SimpleImputer())), ("null", MissingIndicator())]
    )
    expected = ColumnTransformer(
        [
            ("id", "passthrough", [0]),
            ("age", numbers, [1]),
            ("income", numbers, [2]),
            ("level", MinMaxScaler(), [3]),
            ("plan", OneHotEncoder(), [4]),
        ],
        sparse_threshold=0,
    ).fit_transform(np.where(values == None, np.array([[np.nan] * 4 + [None]], object), values))  # noqa: E711
    found = column(sql, "independent_var", "<f4", "packed")
    assert np.abs(found[np.argsort(found[:, 0])] - expected.astype(float)).max() < 1e-6


def test_dates_become_parts(sql: Sql) -> None:
    parts = ["days", "year", "quarter", "month", "day", "day_of_year", "weekday", "hour", "minute", "second"]
    found = vector(sql, {"seen": {"parts": parts, "scale": "none"}}, len(parts) + 1)
    fields = ["year", "quarter", "month", "day", "doy", "isodow", "hour", "minute", "second"]
    listed = ", ".join(f"extract({field} FROM seen AT TIME ZONE 'UTC')::float8" for field in fields)
    times = sql(f"SELECT extract(epoch FROM seen)::float8 / 86400, {listed} FROM customers ORDER BY id")
    expected = np.array(times, float)
    expected[:, 6] -= 1
    there = ~np.isnan(expected[:, 0])
    assert np.abs(found[there, :-1] - expected[there]).max() < 2e-3
    assert (found[:, -1] == ~there).all()


def test_parts_may_go_round(sql: Sql) -> None:
    found = vector(sql, {"joined": {"parts": ["month", "year"], "cyclic": True}}, 3)
    months = np.array(sql("SELECT extract(month FROM joined)::float8 - 1 FROM customers ORDER BY id"))[:, 0]
    assert np.abs(found[:, 0] - np.sin(np.pi * months / 6)).max() < 1e-6
    assert np.abs(found[:, 1] - np.cos(np.pi * months / 6)).max() < 1e-6
    years = np.array(sql("SELECT extract(year FROM joined)::float8 FROM customers ORDER BY id"))[:, 0]
    assert np.corrcoef(found[:, 2], years)[0, 1] > 0.999


def test_times_before_christ_and_far_away(sql: Sql) -> None:
    made(
        sql,
        "old",
        "SELECT * FROM (VALUES (1, '0044-03-15 BC'::date, 'a'), (2, '5000-12-31', 'b')) v(id, joined, gone)",
    )
    found = vector(sql, {"joined": {"parts": ["year", "month", "day"], "scale": "none"}}, 3, source="old")
    # 44 BC is the year -43, because NumPy counts a year 0.
    assert found.tolist() == [[-43, 3, 15], [5000, 12, 31]]


@pytest.mark.tensorflow
def test_words_are_keras_text_vectorization(sql: Sql) -> None:
    keras = pytest.importorskip("keras")
    pack(sql, "id, note", {"id": {"scale": "none"}, "note": {"tokens": 8, "vocabulary": 60}})
    ids, found = (column(sql, name, "<f4", "packed") for name in ("independent_var", "note"))
    texts = [note for (note,) in sql("SELECT note FROM customers ORDER BY id")]
    layer = keras.layers.TextVectorization(max_tokens=60, output_sequence_length=8)
    layer.adapt(texts)
    assert ["", "[UNK]", *feature(sql, "note")["vocabulary"]] == layer.get_vocabulary()
    assert (found[np.argsort(ids[:, 0])] == np.array(layer(texts))).all()


def test_words_may_be_hashed(sql: Sql) -> None:
    pack(sql, "note", {"note": {"tokens": 8, "buckets": 10}})
    found = column(sql, "note", "<f4", "packed")
    assert found[:, :5].min() >= 1 and found.max() <= 10 and (found[:, 7] == 0).all()


def images(sql: Sql, *files: bytes | None) -> None:
    sql("DROP TABLE IF EXISTS albums")
    sql("CREATE TABLE albums (id integer, photo bytea, gone text)")
    for number, data in enumerate(files):
        sql("INSERT INTO albums VALUES (%s, %s, %s)", number, data, "ab"[number % 2])


@pytest.mark.parametrize("channels, mode", [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_images_are_pillows(sql: Sql, channels: int, mode: str) -> None:
    files = [picture(1), picture(2, (40, 50), "JPEG"), picture(3, (16, 8)), picture(4, (33, 21), "JPEG", "L")]
    images(sql, *files)
    said = {"id": {"scale": "none"}, "photo": {"decode": [8, 16, channels], "divide": 1}}
    pack(sql, "id, photo", said, source="albums")
    ids, found = (column(sql, name, "<f4", "packed") for name in ("independent_var", "photo"))
    for number, data in enumerate(files):
        image = Image.open(io.BytesIO(data)).convert(mode)
        if image.size != (16, 8):
            image = image.resize((16, 8), Image.Resampling.BILINEAR)
        expected = np.asarray(image, np.float32).reshape(8, 16, channels)
        assert (found[ids[:, 0] == number][0] == expected).all()


def test_a_flat_array_gets_the_shape_that_the_option_names(sql: Sql) -> None:
    sql("DROP TABLE IF EXISTS albums")
    sql(
        "CREATE TABLE albums AS SELECT i AS id, ARRAY[i, 2, 3, 4, 5, 6]::real[] AS photo, 'a' AS gone"
        " FROM generate_series(1, 9) AS i UNION ALL SELECT 10, ARRAY[10, 2, 3, 4, 5, 6], 'b'"
    )
    pack(sql, "photo", {"photo": {"shape": [3, 2]}}, source="albums")
    (shape,) = sql("SELECT DISTINCT photo_shape[2:] FROM packed")[0]
    assert shape == [3, 2]
    found = column(sql, "photo", "<f4", "packed").reshape(10, 6)
    assert sorted(found[:, 0]) == list(range(1, 11)) and (found[:, 1:] == [2, 3, 4, 5, 6]).all()
    with pytest.raises(psycopg2.Error, match=r"6 numbers in its first row, and shape \[4, 2\] has 8"):
        pack(sql, "photo", {"photo": {"shape": [4, 2]}}, source="albums")


def test_an_image_that_is_none_is_named(sql: Sql) -> None:
    images(sql, picture(1), picture(2, kind="JPEG")[:300], b"no image", picture(3))
    with pytest.raises(psycopg2.Error, match='"photo" is not an image in 2 of 4 rows') as caught:
        pack(sql, "photo", {"photo": {"decode": [8, 8, 3]}}, source="albums")
    # On Greenplum each segment counts its own rows.
    assert re.search(r"the first is row \d of the scan", str(caught.value.diag.message_detail))
    assert sql("SELECT to_regclass('packed') IS NULL") == [(True,)]


def test_an_image_of_too_many_pixels_is_not_decoded(sql: Sql) -> None:
    file = io.BytesIO()
    Image.new("1", (9_000, 9_000)).save(file, "PNG")
    images(sql, picture(1), file.getvalue())
    with pytest.raises(psycopg2.Error) as caught:
        pack(sql, "photo", {"photo": {"decode": [8, 8, 3]}}, source="albums")
    assert "more than 64000000" in str(caught.value.diag.message_detail)


def test_columns_may_make_several_inputs(sql: Sql) -> None:
    pack(
        sql,
        "age, income, joined, x",
        {"age": {"input": "person"}, "joined": {"input": "person", "parts": ["year"]}},
    )
    shapes = {one["name"]: one["shape"] for one in specification(sql)["inputs"]}
    assert shapes == {"person": [3], "independent_var": [2], "x": [2]}


def test_auto_leaves_out_what_says_nothing_and_says_so(sql: Sql, db: psycopg2.extensions.connection) -> None:
    made(
        sql,
        "useless",
        """SELECT i AS number, md5(i::text) AS name, 5 AS five, NULL::text AS nothing,
           md5(i::text)::uuid AS unique_id, '{}'::json AS document, i % 7 AS kept,
           (ARRAY['a', 'b'])[1 + i % 2] AS gone FROM generate_series(1, 500) i""",
    )
    db.notices.clear()
    pack(sql, "*", source="useless")
    assert [one["name"] for one in specification(sql)["columns"]] == ["kept"]
    assert specification(sql)["left_out"].keys() == {
        "number",
        "name",
        "five",
        "nothing",
        "unique_id",
        "document",
    }
    assert '"five" (constant, 5 in all rows)' in "".join(db.notices)


def test_texts_that_are_numbers_are_told(sql: Sql, db: psycopg2.extensions.connection) -> None:
    made(
        sql,
        "texts",
        """SELECT CASE WHEN i % 20 = 0 THEN 'n/a' ELSE (i % 30)::text END AS price,
           '1,' || 100 + i % 40 AS size, 'r' || i % 9 AS room, (i % 30)::text AS code,
           (i % 5)::money AS paid, i % 2 AS gone
           FROM generate_series(1, 400) i""",
    )
    db.notices.clear()
    pack(sql, "*", {"code": {"encode": "one_hot"}}, source="texts")
    (said,) = (notice for notice in db.notices if "numbers" in notice)
    assert '"price" (31 values, texts of which 95% are numbers; "n/a" is not: cast it to numeric' in said
    assert '"size" (40 values, texts of which 100% are numbers: cast it' in said
    assert "room" not in said and "code" not in said
    found = {row[0]: row[8] for row in sql("SELECT * FROM cerebro.describe_columns('texts')")}
    assert "95% are numbers" in found["price"] and "cast it to numeric in a view" in found["paid"]
    assert specification(sql)["left_out"].keys() == {"paid"}
    with pytest.raises(psycopg2.Error, match='"paid" cannot be an input: money: cast it to numeric'):
        pack(sql, "paid", source="texts")


def test_numbers_beyond_doubles_are_refused_by_name(sql: Sql) -> None:
    made(
        sql,
        "vast",
        "SELECT i % 9 AS fine, 10::numeric ^ (300 + i) AS wide FROM generate_series(1, 40) i",
    )
    with pytest.raises(psycopg2.Error, match='column "wide" has numbers that a double') as caught:
        sql("SELECT * FROM cerebro.describe_columns('vast')")
    assert caught.value.pgcode == "22003" and '{"exclude": ["wide"]}' in str(caught.value)
    rows = sql("SELECT column_name FROM cerebro.describe_columns('vast', '{\"exclude\": [\"wide\"]}')")
    assert ("fine",) in rows


def test_a_column_that_is_described_and_excluded_is_told_so(sql: Sql) -> None:
    with pytest.raises(psycopg2.Error, match="It is in exclude as well"):
        pack(sql, "*", {"city": {}}, exclude=["city"])


def test_dates_beyond_timestamps_are_refused_by_name(sql: Sql) -> None:
    made(sql, "far", "SELECT i % 9 AS fine, date '5874800-01-01' + i AS day FROM generate_series(1, 40) i")
    with pytest.raises(psycopg2.Error, match='column "day" has dates that a timestamp cannot hold') as caught:
        sql("SELECT * FROM cerebro.describe_columns('far')")
    assert caught.value.pgcode == "22008"


def test_columns_are_described(sql: Sql) -> None:
    sql("ANALYZE customers")
    found = {row[0]: row for row in sql("SELECT * FROM cerebro.describe_columns('customers')")}
    listed = "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute WHERE attnum > 0"
    assert [(list(found),)] == sql(f"{listed} AND attrelid = 'customers'::regclass")
    assert found["age"][1:6] == ("integer", ROWS // 17, None, "18", "77")
    assert found["plan"][1:4] == ("text", ROWS // 4, 3)
    assert found["plan"][7]["encode"] == "one_hot"
    assert found["note"][7]["tokens"] == 64 and found["note"][8] == "7 words on average"
    assert found["id"][7:] == (None, "left out: a key: no two rows have the same")
    assert found["joined"][4:6] == ("2020-01-01 00:00:00", "2024-02-08 00:00:00")
    said = json.dumps({"columns": {"age": {"scale": "robust"}}, "exclude": ["note"]})
    found = {row[0]: row for row in sql("SELECT * FROM cerebro.describe_columns('customers', %s)", said)}
    assert found["age"][7]["scale"] == "robust" and found["note"][7:] == (None, "excluded")


WRONG = {
    "no such column": ("age, heihgt", "auto", "42703", 'column "heihgt" does not exist'),
    "an option for none": ("age", {"agee": {}}, "42703", 'column "agee" does not exist'),
    "an option for no input": (
        "age",
        {"city": {}},
        "22023",
        'option columns describes "city", which is not an input',
    ),
    "a key that nobody knows": ("age", {"age": {"scael": "log"}}, "22023", "scael"),
    "impute of a hash": ("city", {"city": {"encode": "hash", "impute": "x"}}, "42804", "impute has no"),
    "a key of another kind": ("age", {"age": {"decode": [8, 8, 3]}}, "42804", "has no key decode"),
    "another scale": ("age", {"age": {"scale": "big"}}, "22023", "scale is big"),
    "words of numbers": ("age", {"age": {"tokens": 8}}, "42804", "has no words"),
    "too many for one-hot": (
        "id",
        {"id": {"encode": "one_hot"}},
        "22023",
        "has 20000 different values, too many",
    ),
    "no list": ("age", ["age"], "22023", "option columns is"),
    "NULL where it is not filled": (
        "age",
        {"age": {"impute": "none"}},
        "22004",
        "is NULL in 1176 of 20000 rows",
    ),
    "arrays beside columns": ("ARRAY[age]", "auto", "22023", "ARRAY"),
    "an image without a size": ("photo", {"photo": {"divide": 255}}, "42804", "needs a size"),
}


@pytest.mark.parametrize("listed, columns, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_before_anything_is_made(
    sql: Sql, listed: str, columns: Any, code: str, text: str
) -> None:
    images(sql, picture(1))
    with pytest.raises(psycopg2.Error) as caught:
        pack(sql, listed, columns, source="albums" if "photo" in listed else "customers")
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert sql("SELECT to_regclass('packed'), to_regclass('packed_summary')") == [(None, None)]


def test_infinity_is_named_by_its_row(sql: Sql) -> None:
    made(
        sql,
        "endless",
        "SELECT i / (i % 4)::float8 AS q, i % 2 AS gone FROM generate_series(1, 3) i"
        " UNION ALL SELECT 'infinity', 4",
    )
    for said in ({}, {"scale": "none"}):
        with pytest.raises(psycopg2.Error, match='"q" holds NaN or infinity in 1 of 4 rows'):
            pack(sql, "q", {"q": said}, source="endless")


def test_nan_is_missing(sql: Sql) -> None:
    made(
        sql,
        "holes",
        "SELECT i AS id, CASE WHEN i = 2 THEN 'NaN'::float8 ELSE i END AS q, i % 2 AS gone"
        " FROM generate_series(1, 4) i",
    )
    found = vector(sql, {"q": {"scale": "none"}}, 2, source="holes")
    assert np.abs(found - [[1, 0], [8 / 3, 1], [3, 0], [4, 0]]).max() < 1e-6


def test_an_all_null_or_constant_column_that_was_named(sql: Sql) -> None:
    made(
        sql,
        "flat",
        "SELECT i AS id, NULL::float8 AS nothing, 5 AS five, i % 2 AS gone FROM generate_series(1, 4) i",
    )
    assert (vector(sql, {"five": {}}, source="flat") == 0).all()
    with pytest.raises(psycopg2.Error, match='"nothing" is NULL in all rows'):
        pack(sql, "nothing", source="flat")


def test_a_view_of_a_role_that_is_no_superuser_gives_the_same(
    sql: Sql, role: MakeRole, connect: Connect
) -> None:
    pack(sql, "age, city, joined")
    expected = specification(sql)
    reader = role()
    made(sql, "seen_view", "SELECT age, city, joined, gone FROM customers")
    sql(f"GRANT SELECT ON seen_view TO {reader}")
    own = connect(user=reader)
    sql("DROP TABLE packed, packed_summary")
    sql(
        "SELECT cerebro.training_preprocessor_dl('seen_view', 'packed', 'gone', '*',"
        """ options => '{"columns": "auto", "segments": 2}')""",
        on=own,
    )
    assert specification(sql)["columns"] == expected["columns"]
    with pytest.raises(psycopg2.Error, match="permission denied"):
        sql("SELECT * FROM cerebro.describe_columns('customers')", on=own)
