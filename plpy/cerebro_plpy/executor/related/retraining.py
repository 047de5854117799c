"""Makes the rows on which a model over related tables is retrained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.executor.models import named_tables
from cerebro_plpy.executor.related.predicting import check_tables, make_features
from cerebro_plpy.executor.related.relating import check_rows, rows_name
from cerebro_plpy.relations.recipe import RelationRecipe
from cerebro_plpy.relations.recipe import read as read_recipe
from cerebro_plpy.store import session
from cerebro_plpy.store.models import model_versions, retraining
from cerebro_plpy.store.models.retraining import RELATIONS
from cerebro_plpy.store.names import Table, resolve_table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.related import relations

Recipe = Mapping[str, Any]
_OWN_MODEL = "Register a version of the model yourself, and retrain that."


def find_source(
    db: Database, recipe: Recipe, source: str | None, name: str, version: int
) -> tuple[Table, Recipe]:
    """Return the table to train on, and the recipe, which names the table or query that the rows come from.

    For a model over related tables, features are computed again: for the rows of the recipe's query, or for
    the rows of `source`. A source that cerebro.relate has made is taken as it is.
    """
    if recipe.get(RELATIONS) is None:
        table = resolve_table(db, source or recipe["source"], "source table")
        return table, {**recipe, "source": table.quoted}
    known = read_recipe(json.dumps(recipe[RELATIONS]))
    if source is not None:
        table = resolve_table(db, source, "source table")
        beside = relations.recipe_beside(db, table)
        if beside is not None:
            return table, {**recipe, "source": table.quoted, RELATIONS: json.loads(beside)}
        known = replace(
            known, query=relations.rows_text(table), author=session.current_user(db), search_path=""
        )
    elif not _is_own(db, known, name, version):
        raise CerebroError(
            f"{name}@{version} is trained on the rows of a query that somebody else has written",
            detail="The query would run with your rights.",
            hint="Give the labelled rows: source => 'a table with key, cut-off and target'.",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    tables = check_tables(db, known)
    named_tables.check_known(db, tables, name, version, _OWN_MODEL)
    with relations.rows_of_query(db, known.query, rows_name(), search_path=known.search_path) as table:
        rows = check_rows(packed.columns_of(db, table), table, known.key, known.cutoff)
        made = make_features(db, known, rows, retraining.RELATED)
    return made, {**recipe, RELATIONS: json.loads(known.as_json())}


def _is_own(db: Database, known: RelationRecipe, name: str, version: int) -> bool:
    """Return whether the caller has registered the version and, as far as is known, written its query."""
    writers = {model_versions.registered_by(db, name, version), known.author}
    return writers <= {session.current_user(db), ""}


def keep_relations(db: Database, recipe: Recipe) -> None:
    """Write the recipe of the related features beside the training rows, where packing looks for it."""
    if recipe.get(RELATIONS) is not None:
        relations.write_summary(db, retraining.learned_rows(), json.dumps(recipe[RELATIONS]))
