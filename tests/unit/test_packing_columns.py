"""Lists of columns are parsed, and the columns become inputs and outputs."""

from __future__ import annotations

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing.columns.grammar import Item, parse_items
from cerebro_plpy.packing.columns.sources import CLASSES, ONE_HOT, VALUES, SourceColumn, inputs, outputs
from cerebro_plpy.store.names import parse_table, quote, tokens


def column(name: str, element: str, *, array: bool = False) -> SourceColumn:
    shown = element + ("[]" if array else "")
    return SourceColumn(name, element, array, shown, shown, sortable=element != "json")


KNOWN = {
    c.name: c
    for c in (
        column("a", "int4"), column("b", "float8"), column("x", "float4", array=True), column("img", "bytea"),
        column("label", "text"), column("flag", "bool"), column("hot", "int4", array=True),
        column("target", "float8", array=True), column("doc", "json"),
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("x", [Item(("x",), False)]),
        (" X1 , x2 ", [Item(("x1",), False), Item(("x2",), False)]),
        ('"Größe", "a""b,c"', [Item(("Größe",), False), Item(('a"b,c',), False)]),
        ("array[a, b],ARRAY[c]", [Item(("a", "b"), True), Item(("c",), True)]),
        ('"array"', [Item(("array",), False)]),
    ],
)
def test_lists_of_columns_are_read(text: str, items: list[Item]) -> None:
    assert parse_items(text, "independent_varname") == items


@pytest.mark.parametrize(
    "text",
    ["", "  ", ",", "x,", "x y", "a+b", "f(x)", "x::real[]", "ARRAY[]", "ARRAY[a", "ARRAY[a b]",
     "ARRAY[a,,b]", "ARRAY[1,2]", "x; DROP TABLE t", "t.x", '"x', '""', "ARRAY[ARRAY[a]]"],
)  # fmt: skip
def test_expressions_are_refused(text: str) -> None:
    with pytest.raises(CerebroError):
        parse_items(text, "independent_varname")


def test_table_names_are_read_as_sql_reads_them() -> None:
    assert parse_table("T", "table") == (None, "t")
    assert parse_table('s."T.x"', "table") == ("s", "T.x")
    assert tokens("İx") == [("name", "İx")]
    assert quote('a"b', "c.d") == '"a""b"."c.d"'
    for text in (None, " ", "a.b.c", "a-b", "a.", "t; DROP TABLE t"):
        with pytest.raises(CerebroError):
            parse_table(text, "table")


def test_plain_columns_are_one_input_and_arrays_are_one_each() -> None:
    (vector,) = inputs(parse_items("a,b", "x"), KNOWN, "t")
    assert (vector.name, vector.numpy_source, len(vector.columns)) == ("independent_var", "=f8", 2)
    (single,) = inputs(parse_items("a", "x"), KNOWN, "t")
    assert single.name == "a"
    assert [part.name for part in inputs(parse_items("x,img,ARRAY[a,b],ARRAY[b]", "x"), KNOWN, "t")] == [
        "x", "img", "independent_var", "independent_var2",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["x,a", "label", "ARRAY[x]", "hot,label", "nosuch", "flag"])
def test_inputs_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(CerebroError):
        inputs(parse_items(text, "x"), KNOWN, "t")


@pytest.mark.parametrize(
    ("text", "task", "kind"),
    [
        ("label", None, CLASSES), ("a", None, CLASSES), ("flag", None, CLASSES), ("b", None, VALUES),
        ("hot", None, ONE_HOT), ("target", None, VALUES), ("ARRAY[a,flag]", None, ONE_HOT),
        ("ARRAY[a,b]", None, VALUES),
        ("b", "classification", CLASSES), ("a", "regression", VALUES), ("hot", "regression", VALUES),
        ("target", "classification", ONE_HOT), ("flag", "regression", VALUES),
    ],
)  # fmt: skip
def test_types_say_what_labels_are_unless_the_caller_does(text: str, task: str | None, kind: str) -> None:
    (part,) = outputs(parse_items(text, "y"), KNOWN, "t", [task])
    assert part.kind == kind


@pytest.mark.parametrize(("text", "task"), [("label", "regression"), ("doc", None), ("ARRAY[x]", None)])
def test_outputs_that_cannot_be_are_refused(text: str, task: str | None) -> None:
    with pytest.raises(CerebroError):
        outputs(parse_items(text, "y"), KNOWN, "t", [task])
