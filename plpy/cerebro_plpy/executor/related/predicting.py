"""cerebro.predict_related: compute features of related tables for new rows, and predict these rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    NULL_NOT_ALLOWED,
    UNDEFINED_COLUMN,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.executor.related.relating import (
    LabelledRows,
    check_cutoffs,
    check_keys,
    check_query,
    check_rows,
    choose_sweeps,
    count_crowds,
    rows_name,
)
from cerebro_plpy.predicting import models as trained_models
from cerebro_plpy.predicting.answering import query as predictor
from cerebro_plpy.predicting.holders import RegisteredVersion, TrainedModel
from cerebro_plpy.predicting.trained import check_readable, find_model
from cerebro_plpy.relations.recipe import RelationRecipe
from cerebro_plpy.relations.recipe import read as read_recipe
from cerebro_plpy.store import names
from cerebro_plpy.store.names import Table, check_writable, quote, resolve_table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.related import features_sql, relations

# The rows from which on a child table may be read as a whole.
MANY_ROWS = 1000


def statement(db: Database, model: str | None, query: str | None) -> tuple[str, str]:
    """Write the features of a query's rows to a temporary table.

    Return the statement that predicts from this table, and the statement that drops it."""
    db.server.check_predicts_in_queries()
    if model is None or not model.strip():
        raise CerebroError("model is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    rows_query = check_query(query)
    check_writable(db, "the features of related tables")
    found = find_model(db, model, None)
    recipe = _read_recipe(db, found, model)
    check_tables(db, recipe)
    with relations.rows_of_query(db, rows_query, rows_name()) as table:
        rows = check_rows(packed.columns_of(db, table), table, recipe.key, recipe.cutoff)
        made = make_features(db, recipe, rows, rows_name())
    # An alias that moves meanwhile does not change the version whose features were made.
    same = found.holder.name if isinstance(found.holder, RegisteredVersion) else model
    text = predictor.statement(
        db, same, relations.rows_text(made), relations.row_type(db, made), mst_key=None
    )
    return relations.named_rows(text, list(rows.columns)), relations.dropping(made)


def make_features(db: Database, recipe: RelationRecipe, rows: LabelledRows, name: str) -> Table:
    """Write rows with their features of related tables to a temporary table, and return this table."""
    check_keys(db, rows, recipe.entity, recipe.key)
    check_cutoffs(db, rows)
    taken = [feature.name for feature in recipe.features if feature.name in rows.columns]
    if taken:
        raise CerebroError(
            f'the query has a column "{taken[0]}", which is a feature of related tables too',
            hint="Leave it out of the query, or give it another name there.",
        )
    many = relations.count_rows(db, rows.table.quoted) >= MANY_ROWS
    crowded = count_crowds(db, recipe, rows) if many else {}
    swept = choose_sweeps(db, recipe, rows, crowded)
    text = features_sql.statement(recipe, list(rows.columns), rows.cutoff, rows.table.quoted, swept)
    return relations.write_temporary(db, name, text)


def _read_recipe(db: Database, found: TrainedModel, model: str) -> RelationRecipe:
    """Return the recipe of the features of related tables on which a model was trained."""
    features = trained_models.features_of(found.holder.summary(db))
    recipe = None if features is None else features.relations
    if recipe is None:
        raise CerebroError(
            f"{model} was not trained on a table that cerebro.relate has made",
            hint="Predict its rows with cerebro.predict or cerebro.predict_query.",
            sqlstate=WRONG_STATE,
        )
    return read_recipe(json.dumps(recipe))


def check_tables(db: Database, recipe: RelationRecipe) -> list[Table]:
    """Return the tables that a recipe names; raise an error for tables that the caller should not read.

    A recipe may be another role's. So it must not name views of other roles or columns that do not exist.
    """
    used = {recipe.entity, *(step.table for feature in recipe.features for step in feature.path)}
    tables = [resolve_table(db, quote(*name), "related table") for name in sorted(used)]
    check_readable(
        db,
        tables,
        instead="Have the model trained on features of the tables themselves.",
        why="The model's features come from it, and are made with your rights.",
    )
    _check_columns(db, recipe, tables)
    return tables


def _check_columns(db: Database, recipe: RelationRecipe, tables: Sequence[Table]) -> None:
    """Raise an error if a column of the recipe is gone: its name in a statement could mean something else."""
    columns = {
        (feature.path[-1].table if feature.path else recipe.entity, feature.column.name)
        for feature in recipe.features
        if feature.column is not None
    }
    for table in tables:
        own = sorted(column for name, column in columns if name == (table.schema, table.name))
        for column in names.find_missing_columns(db, table, own):
            raise CerebroError(
                f'column "{column}", of which the model has features, does not exist in {table.quoted}',
                hint="Relate and train anew.",
                sqlstate=UNDEFINED_COLUMN,
            )
