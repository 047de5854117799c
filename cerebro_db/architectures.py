"""Reads and changes a database's table of architectures, which the configs of runs are made from."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psycopg2

from cerebro_db import link, markup, models
from cerebro_db.errors import CerebroError
from cerebro_db.link import Connection, Row
from cerebro_db.protocols import Server
from cerebro_db.statements import Raw, call, table_name

if TYPE_CHECKING:
    import pandas


_PIECE = 2**24
_COLUMNS = ("model_id", "name", "description", "has_weights")
# A live keras.Model; the JSON of one, as text or as a dict. Keras need not be installed for the latter.
Model = str | Mapping[str, Any] | Any


class Home(Server, Protocol):
    """A database that has a table of architectures, and that finds free names for new tables."""

    @property
    def architectures(self) -> Architectures: ...

    def free_name(self, wanted: str) -> str:
        """Return `wanted`, or, if a table has this name, `wanted` with a number behind it."""
        ...


class Architectures:
    """A table of architectures, to which nets can be added."""

    def __init__(self, db: Server, table: str) -> None:
        self._db = db
        self.table = table

    def _repr_html_(self) -> str:
        listed = self._listed()
        rows = [list(row.values()) for row in listed]
        return markup.titled(f"Architectures in {self.table}", markup.table(_COLUMNS, rows))

    def add(
        self, model: Model, *, weights: bool = False, name: str | None = None, description: str | None = None
    ) -> int:
        """Add a `keras.Model`, or the JSON of one, and return its model_id.

        With `weights`, every config with this architecture starts from the current weights of the model.
        Otherwise only the statistics of adapted Normalization layers are kept, as a part of the architecture.
        """
        return self.add_json(
            architecture_json(model) if weights else adapted_json(model),
            flat_weights(model) if weights else None,
            name=name or getattr(model, "name", None),
            description=description,
        )

    def add_json(
        self, text: str, weights: bytes | None, *, name: str | None = None, description: str | None = None
    ) -> int:
        """Add the JSON of an architecture, with weights as 32-bit floats or None; return its model_id."""
        with self._db.session() as connection:
            statement = call(
                "load_keras_model",
                self.table,
                text,
                model_weights=_sent(connection, weights),
                name=name,
                description=description,
            )
            link.execute(connection, statement)
            # The call locks the table until the end of the transaction.
            last = f"SELECT pg_catalog.max(model_id) AS model_id FROM {table_name(self.table)}"
            return link.execute(connection, last)[0]["model_id"]

    def enable_lora(
        self,
        model_id: int,
        lora_rank: int,
        layers: Sequence[str] | None = None,
        train: Sequence[str] | None = None,
    ) -> int:
        """Add a copy of an architecture with low-rank adapters on the layers `layers`; return its model_id.

        In the names of layers, `*` stands for any letters. The layers in `train` are trained whole, by
        default the output layers. All other layers are frozen.
        """
        statement = call(
            "enable_lora", self.table, model_id, lora_rank, layers=layers or None, train=train or None
        )
        return self._db.rows(statement)[0]["enable_lora"]

    def remove(self, model_id: int) -> None:
        """Remove an architecture from the table; drop the table if it was the last one."""
        self._db.rows(call("delete_keras_model", self.table, model_id))

    def ids(self) -> list[int]:
        """Return the model_id of every architecture in the table."""
        if not self._db.rows("SELECT 1 WHERE pg_catalog.to_regclass(%s) IS NOT NULL", table_name(self.table)):
            return []
        rows = self._db.rows(f"SELECT model_id FROM {table_name(self.table)} ORDER BY model_id")
        return [row["model_id"] for row in rows]

    def chosen(self, wanted: Any) -> Sequence[int]:
        """Return the model_ids of `wanted`, or all if it is None; add models and JSON in `wanted` first."""
        if wanted is None:
            found = self.ids()
            if not found:
                raise CerebroError(
                    f"there is no architecture in {self.table}",
                    hint='Add one with db.architectures.add(model), or give "model" in the grid.',
                    shell="Add one in SQL, with cerebro.load_net or cerebro.load_keras_model.",
                )
            return found
        models = wanted if isinstance(wanted, list | tuple) else [wanted]
        return [model if isinstance(model, int) else self.add(model) for model in models]

    def list(self) -> pandas.DataFrame:
        """Return all architectures as a data frame."""
        from cerebro_db.frames import frame

        return frame(self._listed(), _COLUMNS)

    def _listed(self) -> Sequence[Row]:
        query = (
            "SELECT model_id, name, description, model_weights IS NOT NULL AS has_weights"
            f" FROM {table_name(self.table)} ORDER BY model_id"
        )
        return self._db.rows(query) if self.ids() else []


def architecture_json(model: Model) -> str:
    """Return an architecture as JSON text, whether it is a `keras.Model`, JSON text or a dict."""
    if isinstance(model, str):
        return model
    if isinstance(model, Mapping):
        return json.dumps(model)
    if hasattr(model, "to_json"):
        return model.to_json()
    raise CerebroError(
        f"{type(model).__name__} is not an architecture", hint="Give a keras.Model, or its to_json()."
    )


def adapted_json(model: Model) -> str:
    """Return an architecture as JSON text that includes the statistics of adapted Normalization layers."""
    if isinstance(model, str | Mapping) or not hasattr(model, "to_json"):
        return architecture_json(model)
    # Keras writes these attributes as if they had been arguments of the layer.
    adapted = [layer for layer in models.normalizations(model) if _is_adapted(layer)]
    try:
        for layer in adapted:
            layer.input_mean = layer.adapt_mean.numpy().tolist()
            layer.input_variance = layer.adapt_variance.numpy().tolist()
        return model.to_json()
    finally:
        for layer in adapted:
            layer.input_mean = layer.input_variance = None


def _sent(connection: Connection, weights: bytes | None) -> bytes | Raw | None:
    """Return the weights as a value for a statement.

    Large weights are first sent to a temporary table in pieces, since a statement needs twice their size.
    """
    if weights is None or len(weights) <= _PIECE or not _may_make_temporary(connection):
        return weights
    table = f"cerebro_weights_{secrets.token_hex(6)}"
    link.execute(
        connection,
        f"CREATE TEMPORARY TABLE {table} (place pg_catalog.int4, part pg_catalog.bytea) ON COMMIT DROP",
    )
    for place, start in enumerate(range(0, len(weights), _PIECE)):
        piece = psycopg2.Binary(weights[start : start + _PIECE])
        link.execute(connection, f"INSERT INTO pg_temp.{table} VALUES (%s, %s)", (place, piece))
    nothing = "pg_catalog.decode('', 'hex')"
    return Raw(f"(SELECT pg_catalog.string_agg(part, {nothing} ORDER BY place) FROM pg_temp.{table})")


def _may_make_temporary(connection: Connection) -> bool:
    wanted = "pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')"
    return bool(link.execute(connection, f"SELECT {wanted} AS may")[0]["may"])


def _is_adapted(layer: Any) -> bool:
    """Return whether a Normalization layer has statistics other than its initial mean 0 and variance 1."""
    return layer.built and bool(layer.adapt_mean.numpy().any() or (layer.adapt_variance.numpy() != 1).any())


def flat_weights(model: Any) -> bytes:
    """Return the weights of a `keras.Model` as the server stores them: 32-bit floats, array after array."""
    if not hasattr(model, "get_weights"):
        raise CerebroError("JSON has no weights", hint="Give the keras.Model itself, or weights=False.")
    return b"".join(array.astype("<f4").tobytes() for array in model.get_weights())
