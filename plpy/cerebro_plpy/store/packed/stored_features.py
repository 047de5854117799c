"""SQL on tables of features: packed tables of outputs of a net's frozen layers for another table's rows.

It runs with the caller's rights. Each buffer has the key and the number of the buffer that it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.store.names import quote

if TYPE_CHECKING:
    from cerebro_plpy.store.packed.packed import Field, PackedOutput

FEATURES_OF = ("features_of", "jsonb")


@dataclass(frozen=True)
class StoredFeatures:
    """The origin of a table of features, as its summary stores it: the packed table, the net and the
    layers."""

    # The packed table, and the net with its weights.
    source_table: str
    arch_table: str
    model_id: int
    # The last of the layers, all of them, and what they are: their weights and form.
    layer: str
    layers: Sequence[str]
    digest: str
    # The column of the features; the shapes of the rows that the net takes.
    column: str
    input_shapes: Sequence[Sequence[int]]

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def read(given: Any) -> StoredFeatures | None:
    """Return the origin in `given`, a value from the summary of a user's table of features; raise an error if
    `materialize_features` cannot have written it."""
    if given is None:
        return None
    texts = ("source_table", "arch_table", "layer", "digest", "column")
    if (
        not isinstance(given, Mapping)
        or not all(isinstance(given.get(name), str) for name in texts)
        or type(given.get("model_id")) is not int
        or not _is_list_of(given.get("layers"), str)
        or not isinstance(given.get("input_shapes"), list)
        or not all(_is_list_of(shape, int) for shape in given["input_shapes"])
    ):
        raise CerebroError(
            f"{FEATURES_OF[0]} in the summary of the packed table is not what materialize_features writes",
            hint="Make the table of features again.",
            sqlstate=DATA_CORRUPTED,
        )
    names = StoredFeatures.__dataclass_fields__
    return StoredFeatures(**{name: given[name] for name in names})


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


def write(db: Database, output: PackedOutput, source: str, key: int, buffer_id: int, field: Field) -> None:
    """Insert the features of one buffer of `source`, under the same key and number, with the buffer's labels
    and other columns."""
    (column,) = output.independents
    kept = [name for one in output.columns if one != column for name in (one, f"{one}_shape")]
    rest = [*(quote(name) for name in kept), "buffer_id", *(name for name, _ in output.part_columns)]
    listed = ", ".join(rest)
    names = f"__dist_key__, {quote(column)}, {quote(column + '_shape')}, {listed}"
    db.query(
        f"INSERT INTO {output.table.quoted} ({names}) SELECT __dist_key__, $1, $2, {listed}"
        f" FROM {source} WHERE __dist_key__ = $3 AND buffer_id = $4",
        ["bytea", "integer[]", "integer", "integer"],
        [*field, key, buffer_id],
    )
