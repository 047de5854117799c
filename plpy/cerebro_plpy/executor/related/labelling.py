"""cerebro.labels: compute labels of an entity at past cut-offs, from the related rows after each cut-off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    DUPLICATE_COLUMN,
    NULL_NOT_ALLOWED,
    PROGRAM_LIMIT_EXCEEDED,
    UNDEFINED_COLUMN,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.executor.related.schema import all_keys, entity_key, named_keys, read_table, read_times
from cerebro_plpy.relations import labels as terms
from cerebro_plpy.relations.paths import MOMENT, NUMBER, ForeignKey, RelatedColumn, RelatedTable, TableName
from cerebro_plpy.relations.planning import COUNT
from cerebro_plpy.store import names, session
from cerebro_plpy.store.names import literal, quote, resolve_table
from cerebro_plpy.store.related import relations

# More cut-offs, over one an hour for eleven years, mean that the unit of `every` was forgotten.
MOST_CUTOFFS = 100_000


@dataclass(frozen=True)
class LabelsCall:
    """The arguments of cerebro.labels, unchecked."""

    entity: str | None
    target: str | None
    over: str | None
    every: str | None
    output_table: str | None
    label: str | None
    times: str | None
    foreign_keys: Sequence[str] | None
    starts: str | None
    ends: str | None


def labels(db: Database, call: LabelsCall) -> str:
    """Create the table of labels; return a line with the number of its rows."""
    term = terms.parse(call.target)
    _check_length(db, "over", call.over)
    _check_length(db, "every", call.every)
    if call.label is None or not call.label.strip():
        raise CerebroError("label is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    target = names.target_table(db, call.output_table)
    entity = _name(db, call.entity, "entity")
    child, column = _inside(db, term)
    tables = {name: read_table(db, name) for name in dict.fromkeys((entity, child))}
    times, _ = read_times(db, call.times, tables)
    keys = all_keys(db, call.foreign_keys)
    key = entity_key(tables[entity][0], keys)
    _check_names(key, call.label)
    about = relations.LabelSource(
        entity=entity,
        key=key,
        entity_time=times.get(entity),
        child_key=_key_between(entity, child, keys, named_keys(db, call.foreign_keys)),
        child_time=times.get(child) or _only_time(db, tables[child][0]),
        column=None if column is None else _number(tables[child][0], column),
        term=term,
        over=str(call.over),
        every=str(call.every),
    )
    first, last = relations.span_of_labels(db, about, call.starts, call.ends)
    if first is None or last is None or first > last:
        raise CerebroError(
            f"no cut-off has {call.over} after it and as much before it in {quote(*child)}",
            hint="Give a shorter over, or starts and ends.",
            sqlstate=WRONG_STATE,
        )
    count = relations.count_cutoffs(db, about, (first, last))
    if count > MOST_CUTOFFS:
        raise CerebroError(
            f"there are {count:.0f} cut-offs from {first} to {last}, one every {call.every}",
            detail=f"There may be at most {MOST_CUTOFFS}.",
            hint="Give a longer every, with its unit: '30' are seconds. Or give starts and ends.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )
    relations.write_labels(db, target, about, call.label, (first, last))
    return f"{target.quoted} has {relations.count_rows(db, target.quoted)} rows"


def _check_length(db: Database, what: str, interval: str | None) -> None:
    if interval is None or session.seconds(db, interval) <= 0:
        raise CerebroError(f"{what} is {interval or 'NULL'}", hint="Give an interval above 0: '30 days'.")


def _check_names(key: Sequence[str], label: str) -> None:
    """Raise an error if two columns of the table of labels would have the same name."""
    columns = [*key, relations.CUTOFF, label]
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise CerebroError(
            f'the labels would have two columns "{twice}"',
            detail=f'They have the key of the entity, the cut-off "{relations.CUTOFF}" and the label.',
            hint="Give another label." if twice == label else "Rename the column of the key with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )


def _name(db: Database, text: str | None, what: str) -> TableName:
    table = resolve_table(db, text, what)
    return table.schema, table.name


def _inside(db: Database, term: terms.LabelTerm) -> tuple[TableName, str | None]:
    """Return the table in a label's term, and the column that the term aggregates; None if it counts rows."""
    if term.aggregate == COUNT:
        return _name(db, term.inside, "table of the target"), None
    marks = names.tokens(term.inside)
    if len(marks) < 3 or marks[-2] != ("mark", ".") or marks[-1][0] != "name":
        raise CerebroError(
            f"{term.aggregate}({term.inside}) names no column",
            hint=f"Name table and column: {term.aggregate}(orders.amount).",
        )
    written = "".join(quote(text) if kind == "name" else text for kind, text in marks[:-2])
    return _name(db, written, "table of the target"), marks[-1][1]


def _number(table: RelatedTable, name: str) -> RelatedColumn:
    column = table.column(name)
    if column is None:
        raise CerebroError(
            f'{quote(*table.name)} has no column "{name}" of numbers that you may read',
            sqlstate=UNDEFINED_COLUMN,
        )
    if column.kind != NUMBER:
        raise CerebroError(
            f'column "{name}" of {quote(*table.name)} has no numbers', sqlstate=DATATYPE_MISMATCH
        )
    return column


def _key_between(
    entity: TableName, child: TableName, keys: Sequence[ForeignKey], named: Sequence[ForeignKey]
) -> ForeignKey:
    """Return the only key that leads from the child to the entity; of several, the one that is named."""
    leading = [key for key in keys if (key.child, key.parent) == (child, entity)]
    found = [key for key in leading if key in named] or leading
    if len(found) != 1:
        raise CerebroError(
            f"{len(found) or 'no'} foreign keys lead from {quote(*child)} to {quote(*entity)}",
            hint="One is needed: a label is about a table that refers to the entity itself."
            " Name the key as orders (customer) REFERENCES customers (id) in foreign_keys.",
            sqlstate=WRONG_STATE,
        )
    return found[0]


def _only_time(db: Database, table: RelatedTable) -> RelatedColumn:
    moments = [column for column in table.columns if column.kind == MOMENT]
    if len(moments) != 1:
        listed = ", ".join(column.name for column in moments) or "none"
        example = {".".join(table.name): moments[0].name if moments else "…"}
        raise CerebroError(
            f"nothing says when a row of {quote(*table.name)} came to be",
            detail=f"Its columns of dates and times: {listed}.",
            hint=f"Name the column: times => {literal(json.dumps(example))}.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    db.notice(f"the time of a row of {quote(*table.name)} is {moments[0].name}")
    return moments[0]
