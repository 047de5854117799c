"""The recipe of a table of related features: a JSON document from which they can be computed again.

It is stored with a model and may come from anybody, so everything in it is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.relations.paths import (
    CATEGORY,
    MOMENT,
    NUMBER,
    ForeignKey,
    Path,
    PathStep,
    RelatedColumn,
    TableName,
)
from cerebro_plpy.relations.planning import AGGREGATES, OF_ROWS, RelatedFeature

VERSION, AUTHOR = 1, "author"
# As many as fit into a row of a table.
MOST_STEPS, MOST_FEATURES = 3, 800
ZONED = "timestamptz"
MOMENTS = ("date", "timestamp", ZONED)


@dataclass(frozen=True)
class RelationRecipe:
    """A recipe: the query of the labelled rows, the entity that the rows are about, and the features."""

    query: str
    entity: TableName
    # The columns of the query that hold the entity's key, named as there.
    key: tuple[str, ...]
    cutoff: str
    # The time zone of moments without a zone, if they are compared with moments that have one.
    zone: str
    # Whether some moments have a zone, so that all are compared in UTC.
    zoned: bool
    # The times of timed tables.
    times: Mapping[TableName, RelatedColumn]
    features: tuple[RelatedFeature, ...]
    # The search_path by which the query's names are read, and the role that has written the query. Recipes of
    # earlier versions have neither.
    search_path: str = ""
    author: str = ""

    def as_json(self) -> str:
        return json.dumps(
            {
                "version": VERSION,
                "query": self.query,
                "entity": list(self.entity),
                "key": list(self.key),
                "cutoff": self.cutoff,
                "zone": self.zone,
                "zoned": self.zoned,
                "times": [[*table, *_column_as_json(time)] for table, time in self.times.items()],
                "features": [_feature_as_json(feature) for feature in self.features],
                "search_path": self.search_path,
                AUTHOR: self.author,
            },
            ensure_ascii=False,
        )


def _column_as_json(column: RelatedColumn) -> list[str]:
    return [column.name, column.kind, column.element]


def _feature_as_json(feature: RelatedFeature) -> Mapping[str, Any]:
    return {
        "name": feature.name,
        "path": [_step_as_json(step) for step in feature.path],
        "aggregate": feature.aggregate,
        "column": None if feature.column is None else _column_as_json(feature.column),
        "window": feature.window,
    }


def _step_as_json(step: PathStep) -> Mapping[str, Any]:
    key = step.key
    return {
        "down": step.down,
        "child": list(key.child),
        "columns": list(key.columns),
        "parent": list(key.parent),
        "of": list(key.of),
    }


def read(text: str) -> RelationRecipe:
    """Return the recipe in a document. Raise an error if `as_json` cannot have written the document."""
    try:
        given = json.loads(text)
        if given["version"] != VERSION:
            raise _corrupt(f"its version is {given['version']!r}, this one reads {VERSION}")
        return RelationRecipe(
            query=_text(given["query"]),
            entity=_table(given["entity"]),
            key=_names(given["key"]),
            cutoff=_text(given["cutoff"]),
            zone=_text(given["zone"]),
            zoned=_flag(given["zoned"]),
            times=dict(map(_time, given["times"])),
            features=tuple(map(_feature, _few(given["features"], MOST_FEATURES))),
            search_path=str(given.get("search_path", "")),
            author=str(given.get(AUTHOR, "")),
        )
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise _corrupt(f"{type(error).__name__}, {error}") from None


def _time(given: Any) -> tuple[TableName, RelatedColumn]:
    schema, table, *column = given
    time = _column(column)
    if time.element not in MOMENTS:
        raise _corrupt(f"a time is of type {time.element}")
    return (_text(schema), _text(table)), time


def _feature(given: Mapping[str, Any]) -> RelatedFeature:
    path: Path = tuple(map(_step, _few(given["path"], MOST_STEPS)))
    aggregate, window = given["aggregate"], given["window"]
    column = None if given["column"] is None else _column(given["column"])
    is_aggregate = any(step.down for step in path)
    if is_aggregate != (aggregate in AGGREGATES) or (aggregate is not None and not is_aggregate):
        raise _corrupt(f"a feature has the aggregate {aggregate!r}")
    if (column is None) != (aggregate in OF_ROWS):
        raise _corrupt(f"a feature with the aggregate {aggregate} has the column {given['column']!r}")
    return RelatedFeature(
        name=_text(given["name"]),
        path=path,
        aggregate=aggregate,
        column=column,
        window=None if window is None else _text(window),
    )


def _step(given: Mapping[str, Any]) -> PathStep:
    columns, of = _names(given["columns"]), _names(given["of"])
    if len(columns) != len(of):
        raise _corrupt("a step has impossible values")
    key = ForeignKey(child=_table(given["child"]), columns=columns, parent=_table(given["parent"]), of=of)
    return PathStep(key, _flag(given["down"]))


def _column(given: Any) -> RelatedColumn:
    name, kind, element = map(_text, given)
    if kind not in (NUMBER, MOMENT, CATEGORY):
        raise _corrupt(f"a kind is {kind!r}")
    return RelatedColumn(name, kind, element)


def _table(given: Any) -> TableName:
    schema, name = map(_text, given)
    return schema, name


def _names(given: Any) -> tuple[str, ...]:
    found = tuple(map(_text, _few(given, 32)))
    if not found:
        raise _corrupt("a key has no columns")
    return found


def _few(given: Any, most: int) -> list[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise _corrupt(f"a list is missing, or longer than {most}")
    return given


def _flag(given: Any) -> bool:
    if not isinstance(given, bool):
        raise _corrupt(f"a flag is {given!r}")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise _corrupt(f"a text is {given!r}")
    return given


def _corrupt(problem: str) -> CerebroError:
    return CerebroError(
        f"the recipe of the related features cannot be used: {problem}",
        detail="It is in the feature specification of the packed table and of the model.",
        hint="Make the table again with cerebro.relate, and train on it.",
        sqlstate=DATA_CORRUPTED,
    )
