"""cerebro.relate: compute features of labelled rows from the tables around an entity.

Only related rows from before a labelled row's cut-off count.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    NULL_NOT_ALLOWED,
    OUT_OF_RANGE,
    TIME_OUT_OF_RANGE,
    UNDEFINED_COLUMN,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.executor.related.schema import FoundSchema, SchemaRequest, find_schema
from cerebro_plpy.logical.options import one_of
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.relations.paths import (
    MOMENT,
    Path,
    RelatedColumn,
    TableName,
    base_of,
    is_of_siblings,
    leads_back,
)
from cerebro_plpy.relations.planning import AGGREGATES, ALL, RelatedFeature, Wishes, describe, plan
from cerebro_plpy.relations.recipe import MOMENTS, MOST_FEATURES, ZONED, RelationRecipe
from cerebro_plpy.store import names, session
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import features_sql, relations

TABLE, SQL = "table", "sql"
# A feature is dropped if a smaller share of the rows has a value.
LEAST_PRESENT = 0.01
SHOWN = 12
# With more pairs of labelled rows and children than the first number, rows are read in order of time. With
# more than the second, features are left out that compare each labelled row with all children of its parent,
# such as each flight with all flights of its carrier.
SWEPT_PAIRS, MOST_PAIRS = 2e6, 5e6
_OWN_NAMES = (features_sql.NUMBER_NAME, features_sql.MOMENT_NAME)
# The hints for times and numbers with which the server cannot compute.
_TOO_FAR = {
    TIME_OUT_OF_RANGE: "A window begins before all times that there are. Give shorter windows, or 'all'.",
    OUT_OF_RANGE: "Means of values beyond 1e150 cannot be computed. Leave such values out with a view.",
}
_WINDOW = "Give an interval above 0, or 'all'."


@dataclass(frozen=True)
class RelateCall:
    """The arguments of cerebro.relate, unchecked."""

    query: str | None
    output_table: str | None
    entity: str | None
    cutoff: str | None
    depth: int | None
    times: str | None
    windows: Sequence[str | None] | None
    aggregates: Sequence[str | None] | None
    foreign_keys: Sequence[str] | None
    omit: Sequence[str] | None
    max_features: int | None
    format: str | None


@dataclass(frozen=True)
class LabelledRows:
    """The rows of a query, with their columns and the column of their cut-offs."""

    table: Table
    columns: Mapping[str, SourceColumn]
    cutoff: RelatedColumn


def relate(db: Database, call: RelateCall) -> str:
    """Create the table of features and return a line about it.

    With format "sql", create no table, and return the statement that computes the features.
    """
    query, form = check_query(call.query), one_of(TABLE, SQL)("format", call.format)
    most = _most(call.max_features)
    aggregates, windows = _aggregates(call.aggregates), _windows(db, call.windows)
    if form == TABLE:
        names.target_table(db, call.output_table, suffixes=(packed.SUMMARY,))
    found = find_schema(db, SchemaRequest(call.entity, call.depth, call.foreign_keys, call.omit, call.times))
    with relations.rows_of_query(db, query, rows_name(), empty=form == SQL) as table:
        rows = check_rows(packed.columns_of(db, table), table, found.key, call.cutoff)
        check_keys(db, rows, found.schema.entity, found.key)
        wishes = Wishes(aggregates, windows, found.times)
        planned = plan(found.schema, found.paths, wishes, [*rows.columns, *_OWN_NAMES])
        if not planned:
            raise _nothing(found)
        if len(planned) > MOST_FEATURES:
            db.notice(
                f"of {len(planned)} features the first {MOST_FEATURES} are looked at, which a table holds;"
                " fewer windows, aggregates or tables make fewer"
            )
        recipe = RelationRecipe(
            query=query,
            entity=found.schema.entity,
            key=found.key,
            cutoff=rows.cutoff.name,
            zone=session.time_zone(db),
            zoned=_has_zone(rows.cutoff, found, planned),
            times=found.times,
            features=tuple(planned[: most if form == SQL else MOST_FEATURES]),
            search_path=db.search_path,
        )
        if form == SQL:
            return features_sql.statement(recipe, list(rows.columns), rows.cutoff)
        return _write(db, recipe, found, rows, output_table=call.output_table, most=most)


def choose_sweeps(
    db: Database, recipe: RelationRecipe, rows: LabelledRows, crowded: Collection[Path]
) -> Collection[Path]:
    """Return the `crowded` paths on which a statement reads child rows in order of time.

    Usually, a statement compares the two rows of each pair. In order of time, it cannot leave out a labelled
    row's own entity, which is thus one of the other children of its parent once its time has come.
    """
    back = {path for path in crowded if leads_back(recipe.entity, path)}
    if back and recipe.entity in recipe.times:
        text = features_sql.rows_of_past_entities(recipe, rows.cutoff, rows.table.quoted)
        if not relations.count_pairs(db, text):
            back = set[Path]()
    return {path for path in crowded if path not in back}


def count_crowds(db: Database, recipe: RelationRecipe, rows: LabelledRows) -> Mapping[Path, float]:
    """Return the paths on which there are too many pairs of rows to compare, and the number of pairs.

    A pair is a labelled row and a child row.
    """
    found = dict[Path, float]()
    for path in dict.fromkeys(base_of(feature.path) for feature in recipe.features):
        if is_of_siblings(path) or features_sql.has_one_child(path):
            text = features_sql.pairs_of_children(recipe, path, rows.cutoff, rows.table.quoted)
            pairs = relations.count_pairs(db, text)
            if pairs > SWEPT_PAIRS:
                found[path] = pairs
    return found


def _without_crowds(
    db: Database,
    recipe: RelationRecipe,
    found: FoundSchema,
    pairs: Mapping[Path, float],
    swept: Collection[Path],
) -> RelationRecipe:
    """Return the recipe without features for which far too many pairs of rows would be compared.

    Send a notice of the features left out. `pairs` has the numbers of pairs by path.
    """
    kept: list[RelatedFeature] = []
    crowded: list[RelatedFeature] = []
    for feature in recipe.features:
        base = base_of(feature.path)
        is_crowded = is_of_siblings(base) and pairs.get(base, 0) > MOST_PAIRS
        is_crowded = is_crowded and not (base in swept and features_sql.may_sweep(recipe, feature))
        (crowded if is_crowded else kept).append(feature)
    for path in dict.fromkeys(base_of(feature.path) for feature in crowded):
        names_of = [feature.name for feature in crowded if base_of(feature.path) == path]
        db.notice(
            f"left out, since {found.schema.label(path)} has {pairs[path]:.3g} pairs of rows:"
            f" {', '.join(names_of[:SHOWN])}{', …' if len(names_of) > SHOWN else ''}"
        )
    return replace(recipe, features=tuple(kept))


def _nothing(found: FoundSchema) -> CerebroError:
    return CerebroError(
        f"no feature comes of {quote(*found.schema.entity)}",
        detail="No table around it has a row to count or a column of numbers, times or words.",
        hint="Let depth be greater, name foreign_keys, or more aggregates.",
    )


def rows_name() -> str:
    """Return an unused name for the temporary table with the rows of a query."""
    return f"cerebro_related_{secrets.token_hex(4)}"


def _write(
    db: Database,
    recipe: RelationRecipe,
    found: FoundSchema,
    rows: LabelledRows,
    *,
    output_table: str | None,
    most: int,
) -> str:
    """Write the table with all features, then drop useless ones and those beyond the first `most`.

    Return a line about the table.
    """
    target = names.target_table(db, output_table, suffixes=(packed.SUMMARY,))
    check_cutoffs(db, rows)
    if not relations.count_rows(db, rows.table.quoted):
        raise CerebroError("the query gives no rows", sqlstate=WRONG_STATE)
    crowded = count_crowds(db, recipe, rows)
    swept = choose_sweeps(db, recipe, rows, crowded)
    recipe = _without_crowds(db, recipe, found, crowded, swept)
    text = features_sql.statement(recipe, list(rows.columns), rows.cutoff, rows.table.quoted, swept)
    with _explained():
        relations.write(db, target, text)
    number = relations.count_rows(db, target.quoted)
    _check_single(db, recipe, rows.table, number)
    useless = _useless(recipe.features, relations.look_at(db, target, recipe.features), number)
    kept = [feature for feature in recipe.features if feature.name not in useless]
    if not kept:
        raise CerebroError(
            f"no feature of {len(useless)} tells rows apart",
            detail=_listed(useless, ""),
            hint="Look whether cut-offs lie after the times of related rows, and keys are the entity's.",
            sqlstate=WRONG_STATE,
        )
    beyond = {feature.name: f"more than max_features, {most}" for feature in kept[most:]}
    left_out = {**useless, **beyond}
    relations.drop_columns(db, target, list(left_out))
    recipe = replace(recipe, features=tuple(kept[:most]))
    shown = features_sql.statement(recipe, list(rows.columns), rows.cutoff, swept=swept)
    relations.write_summary(db, target, recipe.as_json(), shown, left_out)
    words = {one.name: describe(one, found.schema.label(one.path)) for one in recipe.features}
    entity = quote(*recipe.entity)
    comment = f"Rows about {entity} with features of related tables, by cerebro.relate."
    relations.describe(db, target, words, comment)
    if left_out:
        db.notice(f"left out: {_listed(left_out)}")
    return f"{target.quoted} has {number} rows with {len(recipe.features)} features"


@contextmanager
def _explained() -> Iterator[None]:
    """Add a hint to the server's error if a value within the `with` block is too large."""
    try:
        yield
    except CerebroError as error:
        if error.hint is None and error.sqlstate in _TOO_FAR:
            error.hint = _TOO_FAR[error.sqlstate]
        raise


def _listed(left_out: Mapping[str, str], elsewhere: str = "; the summary beside the table has all") -> str:
    """Return the first features with their reasons as text.

    If there are more features, the text ends with their number and `elsewhere`, which says where they are.
    """
    shown = [f"{name} ({why})" for name, why in list(left_out.items())[:SHOWN]]
    more = len(left_out) - len(shown)
    return ", ".join(shown) + (f", and {more} more{elsewhere}" if more else "")


def _useless(
    features: Sequence[RelatedFeature], looked: Sequence[relations.WrittenColumn], rows: int
) -> dict[str, str]:
    """Return the features to drop, with the reason of each: nearly always NULL, constant, or a copy."""
    found: dict[str, str] = {}
    first: dict[str, str] = {}
    for feature, one in zip(features, looked, strict=True):
        if one.present < max(1, rows * LEAST_PRESENT):
            found[feature.name] = f"NULL in {rows - one.present} of {rows} rows"
        elif not one.varies and one.present == rows:
            found[feature.name] = "constant"
        elif one.digest in first:
            found[feature.name] = f"the same as {first[one.digest]}"
        else:
            first[one.digest] = feature.name
    return found


def check_query(query: str | None) -> str:
    """Return the query without a semicolon at its end; raise an error if the query is empty."""
    if query is None or not query.strip():
        raise CerebroError(
            "query is NULL or empty",
            hint="Give the entity's key and a cut-off for each row: SELECT id, at, churned FROM labels.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    return query.strip().rstrip(";").rstrip()


def _most(given: int | None) -> int:
    if given is None or not 1 <= given <= MOST_FEATURES:
        raise CerebroError(f"max_features is {given}", hint=f"It must be from 1 to {MOST_FEATURES}.")
    return given


def _aggregates(given: Sequence[str | None] | None) -> Sequence[str]:
    for one in given or ():
        if one not in AGGREGATES:
            raise unknown(f"no aggregate is {one}", str(one), AGGREGATES)
    return [str(one) for one in given or ()]


def _windows(db: Database, given: Sequence[str | None] | None) -> Sequence[str | None]:
    """Return the windows, the widest first; None stands for the window "all", which has no length."""
    if not given:
        raise CerebroError("windows is NULL or empty", hint="Give ARRAY['90 days', 'all'].")
    lengths: dict[str | None, float] = {}
    for window in given:
        if window is None:
            raise CerebroError("a window is NULL", hint=_WINDOW, sqlstate=NULL_NOT_ALLOWED)
        length = float("inf") if window == ALL else session.seconds(db, window)
        if length <= 0:
            raise CerebroError(f"the window {window} has no length", hint=_WINDOW)
        lengths[None if window == ALL else window] = length
    return sorted(lengths, key=lambda window: -lengths[window])


def check_rows(
    columns: Mapping[str, SourceColumn], table: Table, key: Sequence[str], cutoff: str | None
) -> LabelledRows:
    """Return the rows of a query; raise an error if they lack the entity's key or a cut-off."""
    if cutoff is None or not cutoff.strip():
        raise CerebroError(
            "cutoff is NULL or empty",
            hint="Name the column of the query that says until when related rows count.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    for name in key:
        if name not in columns:
            raise CerebroError(
                f'the query has no column "{name}", which is in the entity\'s key',
                hint=f"Name the column so in the query: SELECT customer AS {quote(name)}, … .",
                sqlstate=UNDEFINED_COLUMN,
            )
    found = columns.get(cutoff)
    if found is None:
        raise unknown(f'the query has no column "{cutoff}", which cutoff names', cutoff, list(columns))
    if found.is_array or found.element not in MOMENTS:
        raise CerebroError(
            f'the cut-off "{cutoff}" is of type {found.shown_type}',
            hint="A cut-off is a date, a timestamp or a timestamptz.",
            sqlstate=DATATYPE_MISMATCH,
        )
    taken = [name for name in _OWN_NAMES if name in columns]
    if taken:
        raise CerebroError(f'the query has a column "{taken[0]}", which stands for something else here')
    return LabelledRows(table, columns, RelatedColumn(found.name, MOMENT, found.element))


def check_keys(db: Database, rows: LabelledRows, entity: TableName, key: Sequence[str]) -> None:
    """Raise an error if the keys of the rows cannot be compared with the entity's keys.

    Send a notice if rows have keys that the entity lacks.
    """
    table = names.resolve_table(db, quote(*entity), "entity")
    for name in key:
        if not relations.can_compare(db, rows.table, name, table, name):
            given, known = (found[name].shown_type for found in (rows.columns, packed.columns_of(db, table)))
            raise CerebroError(
                f'the query gives "{name}" as {given}, and in {table.quoted} it is of type {known}',
                hint=f"Cast it in the query: SELECT {quote(name)}::{known}, … .",
                sqlstate=DATATYPE_MISMATCH,
            )
    strange = relations.count_strangers(db, rows.table, table, key)
    if strange:
        db.notice(f"{strange} rows have a key that is not in {table.quoted}: nothing is known of them")


def check_cutoffs(db: Database, rows: LabelledRows) -> None:
    """Raise an error if a row has no cut-off, since it is unclear which related rows count for such a row."""
    missing = relations.count_rows(db, f"{rows.table.quoted} AS s WHERE s.{quote(rows.cutoff.name)} IS NULL")
    if missing:
        raise CerebroError(
            f'the cut-off "{rows.cutoff.name}" is NULL in {missing} rows',
            hint="Leave such rows out of the query.",
            sqlstate=NULL_NOT_ALLOWED,
        )


def _check_single(db: Database, recipe: RelationRecipe, rows: Table, number: int) -> None:
    if number != relations.count_rows(db, rows.quoted):
        raise CerebroError(
            f"{quote(*recipe.entity)} has several rows with the same {', '.join(recipe.key)}",
            hint="Give it a primary key.",
            sqlstate=WRONG_STATE,
        )


def _has_zone(cutoff: RelatedColumn, found: FoundSchema, features: Sequence[RelatedFeature]) -> bool:
    """Return whether any of the times that the features compare has a time zone."""
    used = [cutoff, *found.times.values(), *(one.column for one in features if one.column is not None)]
    return any(one.element == ZONED for one in used)
