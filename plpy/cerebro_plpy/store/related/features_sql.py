"""The statement that computes related features, which a user can read and run.

A labelled row is a row of the caller's query; it may use only what was there before its cut-off. For each
path of foreign keys that leads down to children, one query pairs the labelled rows with the children before
their cut-offs. Aggregates of children are computed by grouping these pairs by the labelled row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.relations import planning
from cerebro_plpy.relations.paths import (
    CATEGORY,
    MOMENT,
    NUMBER,
    Path,
    PathStep,
    RelatedColumn,
    TableName,
    base_of,
    leads_back,
)
from cerebro_plpy.relations.planning import RelatedFeature
from cerebro_plpy.relations.recipe import ZONED, RelationRecipe
from cerebro_plpy.store import plain
from cerebro_plpy.store.names import literal, quote

# The number of a labelled row, and its cut-off as a moment.
NUMBER_NAME, MOMENT_NAME = "__row__", "__cutoff__"
_ROWS = "labelled"
_EPOCH = "date_part('epoch', {})"
_SECONDS = 86400
_MAYBE_INFINITE = ("float4", "float8", "numeric")
# The running values that a sweep keeps of each column. The aggregates that can be computed for a window, as
# a difference of running values; and the aggregates that can be computed over the whole past.
_RUNNING = ("count", "sum", "min", "max")
_SUBTRACTED = (planning.COUNT, planning.SUM, planning.MEAN)
_SWEPT = (*_SUBTRACTED, planning.MIN, planning.MAX, planning.SINCE_LAST)


@dataclass(frozen=True)
class _Value:
    """A column of the query of pairs: its SQL expression, and its name in that query."""

    name: str
    text: str


@dataclass(frozen=True)
class _PathQuery:
    """A query in the statement that has one row for each labelled row, with the values of some features."""

    name: str
    text: str
    features: Sequence[RelatedFeature]


def statement(
    recipe: RelationRecipe,
    columns: Sequence[str],
    cutoff: RelatedColumn,
    source: str | None = None,
    swept: Collection[Path] = (),
) -> str:
    """Return the statement that computes the columns of the caller's query and the features.

    `source` is a table that already holds the query's rows. Paths in `swept` would have too many pairs: for
    them, children and cut-offs are read together in the order of time, if `may_sweep` allows it.
    """
    rows = f"(\n{recipe.query}\n)" if source is None else source
    steps, parts = [_labelled(recipe, cutoff, rows)], []
    for number, (base, features) in enumerate(_by_base(recipe.features).items(), 1):
        in_order = [one for one in features if base in swept and may_sweep(recipe, one)]
        others = [one for one in features if one not in in_order]
        if in_order:
            parts.append(_PathWriter(recipe, base, in_order, number).sweep())
        if others:
            made, found = _PathWriter(recipe, base, others, number).write()
            steps += made
            parts += found
    return _joined(steps, parts, columns, recipe.features)


def _labelled(recipe: RelationRecipe, cutoff: RelatedColumn, rows: str) -> str:
    moment = _moment(f"q.{quote(cutoff.name)}", cutoff.element, recipe)
    return (
        f"{_ROWS} AS MATERIALIZED (\n    SELECT row_number() OVER () AS {NUMBER_NAME},"
        f" {moment} AS {MOMENT_NAME}, q.*\n    FROM {rows} AS q\n)"
    )


def may_sweep(recipe: RelationRecipe, feature: RelatedFeature) -> bool:
    """Return whether a feature can be computed without pairs: from running values, such as a running sum, at
    the cut-off and, for a window, at the beginning of the window."""
    base = base_of(feature.path)
    if not has_one_child(base) or base[-1].table not in recipe.times:
        return False
    if any(step.table in recipe.times for step in feature.path[len(base) :]):
        return False
    if feature.column is not None and feature.column.kind != NUMBER:
        return False
    return feature.aggregate in (_SUBTRACTED if feature.window is not None else _SWEPT)


def has_one_child(base: Path) -> bool:
    """Return whether a path has exactly one step down to children, which is its last step."""
    return [step.down for step in base].count(True) == 1 and base[-1].down


def pairs_of_children(recipe: RelationRecipe, path: Path, cutoff: RelatedColumn, source: str) -> str:
    """Return the statement that counts the pairs of a labelled row and a row of the first child table on a
    path, without making the pairs."""
    place = next(place for place, step in enumerate(path) if step.down)
    up, step = path[:place], path[place]
    writer = _PathWriter(recipe, up, (), 0)
    names = [f"k{number}" for number in range(len(step.to_columns))]
    parents = ", ".join(
        f"{writer.column(up, name)} AS {key}" for name, key in zip(step.from_columns, names, strict=True)
    )
    pairs = zip(step.to_columns, names, strict=True)
    children = ", ".join(f"s.{quote(name)} AS {key}" for name, key in pairs)
    keys = ", ".join(names)
    # Keys are given by their numbers: a column of the table may have the name of a key.
    places = ", ".join(str(number) for number in range(1, len(names) + 1))
    return (
        f"WITH {_labelled(recipe, cutoff, source)} SELECT coalesce(sum(a.n * b.n), 0) AS found"
        f" FROM (SELECT {parents}, count(*)::double precision AS n FROM {writer.joined()}"
        f" GROUP BY {places}) AS a"
        f" JOIN (SELECT {children}, count(*)::double precision AS n FROM {quote(*step.table)} AS s"
        f" GROUP BY {places}) AS b USING ({keys})"
    )


def rows_of_past_entities(recipe: RelationRecipe, cutoff: RelatedColumn, source: str) -> str:
    """Return the statement that counts the labelled rows whose entity has a time before the cut-off."""
    writer = _PathWriter(recipe, (), (), 0)
    text = f"WITH {_labelled(recipe, cutoff, source)} SELECT count(*)::double precision AS found"
    return f"{text} FROM {writer.joined()} WHERE {writer.entity_is_past}"


def _by_base(features: Sequence[RelatedFeature]) -> Mapping[Path, list[RelatedFeature]]:
    found: dict[Path, list[RelatedFeature]] = {}
    for feature in features:
        found.setdefault(base_of(feature.path), []).append(feature)
    return found


def _joined(
    steps: Sequence[str],
    parts: Sequence[_PathQuery],
    columns: Sequence[str],
    features: Sequence[RelatedFeature],
) -> str:
    """Return the whole statement: all queries, and a SELECT that joins the labelled rows with the
    features."""
    texts = {one.name: f"{part.name}.{quote(one.name)}" for part in parts for one in part.features}
    listed = [f"l.{quote(name)}" for name in columns]
    for feature in features:
        text = texts[feature.name]
        if feature.aggregate in (planning.COUNT, planning.SUM, planning.DISTINCT):
            text = f"coalesce({text}, 0)"
        listed.append(f"{text} AS {quote(feature.name)}")
    joins = "".join(
        f"\nLEFT JOIN {part.name} ON {part.name}.{NUMBER_NAME} = l.{NUMBER_NAME}" for part in parts
    )
    queries = ",\n".join([*steps, *(f"{part.name} AS (\n    {part.text}\n)" for part in parts)])
    return f"WITH {queries}\nSELECT {_lines(listed, 1)}\nFROM {_ROWS} AS l{joins}"


class _PathWriter:
    """A writer of the queries for one path to children, or for the entity and its parents."""

    def __init__(
        self, recipe: RelationRecipe, base: Path, features: Sequence[RelatedFeature], number: int
    ) -> None:
        self._recipe, self._base, self._features, self._number = recipe, base, features, number
        self._values: dict[tuple[Path, str | None], _Value] = {}
        downs = [place for place, step in enumerate(base, 1) if step.down]
        self._timed = [place for place in downs if base[place - 1].table in recipe.times]

    def write(self) -> tuple[list[str], list[_PathQuery]]:
        """Return the query of pairs, if this path needs it, and the queries that compute features."""
        if not self._base:
            return [], [self._of_parents()]
        sums: list[RelatedFeature] = []
        lasts: dict[str | None, list[RelatedFeature]] = {}
        tops: dict[str, list[RelatedFeature]] = {}
        for feature in self._features:
            if feature.aggregate in planning.OF_VALUES:
                tops.setdefault(self._value(feature), []).append(feature)
            elif feature.aggregate == planning.LAST:
                lasts.setdefault(feature.window, []).append(feature)
            else:
                sums.append(feature)
        parts = [self._sums(sums)] if sums else []
        parts += [self._last(window, each, number) for number, (window, each) in enumerate(lasts.items(), 1)]
        parts += [self._top(value, each, number) for number, (value, each) in enumerate(tops.items(), 1)]
        return [self._pairs_query()], parts

    @property
    def _pairs(self) -> str:
        return f"pairs_{self._number}"

    def _of_parents(self) -> _PathQuery:
        listed = [f"{self._value_text(one.path, one.value)} AS {quote(one.name)}" for one in self._features]
        text = f"SELECT {_lines([f'l.{NUMBER_NAME}', *listed], 2)}\n    FROM {self.joined()}"
        return _PathQuery(f"parents_{self._number}", text, self._features)

    def _sums(self, features: Sequence[RelatedFeature]) -> _PathQuery:
        listed = [f"{self._aggregate(one)} AS {quote(one.name)}" for one in features]
        text = (
            f"SELECT {_lines([f'p.{NUMBER_NAME}', *listed], 2)}\n    FROM {self._pairs} AS p"
            f"\n    GROUP BY p.{NUMBER_NAME}, p.{MOMENT_NAME}"
        )
        return _PathQuery(f"sums_{self._number}", text, features)

    def sweep(self) -> _PathQuery:
        """Return the query that sorts children and cut-offs together by key and time, and computes features
        from running values, such as a running sum.

        When the turn of a cut-off comes, the running values cover exactly the children before it: a child at
        the same moment has its turn after the cut-off.
        """
        up, step = self._base[:-1], self._base[-1]
        values = {one.name: self._value(one) for one in self._features if one.column is not None}
        distinct = dict.fromkeys(one.window for one in self._features if one.window is not None)
        windows = {window: -number for number, window in enumerate(distinct, 1)}
        keys = [f"k{number}" for number in range(len(step.to_columns))]
        alias = f"t{len(self._base)}"
        own = [f"{alias}.{quote(name)}" for name in step.to_columns]
        children = [*own, f"{self._time_of(len(self._base))} AS at", "1 AS turn", f"NULL AS {NUMBER_NAME}"]
        children += [f"{value.text} AS {value.name}" for value in self._values.values()]
        behind = "".join(
            self._join("LEFT JOIN", path[-1], path[:-1], self._alias(path), 0)
            for path in sorted(self._behind(), key=_by_length)
        )
        parents = _PathWriter(self._recipe, up, (), 0)
        theirs = [parents.column(up, name) for name in step.from_columns]
        nothing = ["NULL"] * len(self._values)
        wanted = f"({', '.join(own)}) IN (SELECT {', '.join(theirs)} FROM {parents.joined()})"
        texts = [
            f"SELECT {_lines(children, 3)}\n        FROM {quote(*step.table)} AS {alias}{behind}"
            f"\n        WHERE {wanted}",
            *(
                f"SELECT {_lines([*theirs, moment, str(turn), f'l.{NUMBER_NAME}', *nothing], 3)}"
                f"\n        FROM {parents.joined()}"
                for moment, turn in _turns(windows)
            ),
        ]
        union = "\n        UNION ALL\n        ".join(texts)
        names = ", ".join([*keys, "at", "turn", NUMBER_NAME, *(one.name for one in self._values.values())])
        running = ["e.*", "count(*) FILTER (WHERE e.turn = 1) OVER w AS n"]
        running.append("max(e.at) FILTER (WHERE e.turn = 1) OVER w AS last")
        for one in self._values.values():
            running += [f"{each}(e.{one.name}) OVER w AS {one.name}_{each}" for each in _RUNNING]
        known = " AND ".join(f"e.{key} IS NOT NULL" for key in keys)
        order = f"PARTITION BY {', '.join(f'e.{key}' for key in keys)} ORDER BY e.at, e.turn"
        made = {one.name: _swept(one, values.get(one.name), windows) for one in self._features}
        listed = [f"{text} AS {quote(name)}" for name, text in made.items()]
        text = (
            f"SELECT {_lines([f'r.{NUMBER_NAME}', *listed], 2)}"
            f"\n    FROM (\n        SELECT {_lines(running, 3)}"
            f"\n        FROM (\n        {union}\n        ) AS e ({names})"
            f"\n        WHERE e.at IS NOT NULL AND {known}"
            f"\n        WINDOW w AS ({order} ROWS UNBOUNDED PRECEDING)"
            f"\n    ) AS r\n    WHERE r.turn < 1\n    GROUP BY r.{NUMBER_NAME}"
        )
        return _PathQuery(f"swept_{self._number}", text, self._features)

    def _pairs_query(self) -> str:
        """Return the query that pairs the labelled rows with the rows of the path before their cut-offs."""
        columns = [f"l.{NUMBER_NAME}", f"l.{MOMENT_NAME}"]
        if self._timed:
            columns.append(f"{self._time_of(self._timed[-1])} AS at")
        columns += [f"{value.text} AS {value.name}" for value in self._values.values()]
        return f"{self._pairs} AS (\n    SELECT {_lines(columns, 2)}\n    FROM {self.joined()}\n)"

    def joined(self) -> str:
        """Return the text after FROM that joins the labelled rows with the tables of the path, and with the
        parents beyond its end."""
        text = f"{_ROWS} AS l"
        if not self._base or set(self._base[0].from_columns) - set(self._recipe.key):
            on = " AND ".join(f"t0.{quote(name)} = l.{quote(name)}" for name in self._recipe.key)
            text += f"\n    {'' if self._base else 'LEFT '}JOIN {quote(*self._recipe.entity)} AS t0 ON {on}"
        for place, step in enumerate(self._base, 1):
            text += self._join("JOIN", step, self._base[: place - 1], f"t{place}", place)
        for path in sorted(self._behind(), key=_by_length):
            text += self._join("LEFT JOIN", path[-1], path[:-1], self._alias(path), 0)
        return text

    def _join(self, how: str, step: PathStep, before: Path, alias: str, place: int) -> str:
        pairs = zip(step.to_columns, step.from_columns, strict=True)
        on = " AND ".join(f"{alias}.{quote(own)} = {self.column(before, name)}" for own, name in pairs)
        on += self._before_cutoff(step.table, alias)
        if leads_back(self._recipe.entity, (*before, step)):
            # The row itself is no other child: its own columns may say what is to be learned.
            ends = (", ".join(f"{one}.{quote(name)}" for name in self._recipe.key) for one in (alias, "l"))
            on += f" AND ({') IS DISTINCT FROM ('.join(ends)})"
        if place and self._timed and place == self._timed[-1]:
            on += self._within_widest(alias, step.table)
        return f"\n    {how} {quote(*step.table)} AS {alias} ON {on}"

    def _before_cutoff(self, table: TableName, alias: str) -> str:
        time = self._recipe.times.get(table)
        return "" if time is None else f" AND {self._moment_of(alias, time)} < l.{MOMENT_NAME}"

    @property
    def entity_is_past(self) -> str:
        """The condition that the entity's own row has a time before the cut-off."""
        return self._before_cutoff(self._recipe.entity, "t0").removeprefix(" AND ")

    def _within_widest(self, alias: str, table: TableName) -> str:
        """Return the condition that rows lie in the features' window, if all features have the same window;
        otherwise an empty text."""
        windows = {one.window for one in self._features}
        if len(windows) != 1 or None in windows:
            return ""
        (window,) = windows
        time = self._moment_of(alias, self._recipe.times[table])
        return f" AND {time} >= l.{MOMENT_NAME} - interval {literal(str(window))}"

    def _behind(self) -> set[Path]:
        """Return the paths to parents that begin at the end of this writer's path."""
        first = len(self._base) + 1
        return {one.path[:length] for one in self._features for length in range(first, len(one.path) + 1)}

    def _alias(self, path: Path) -> str:
        if len(path) <= len(self._base):
            return f"t{len(path)}"
        behind = sorted(self._behind(), key=_by_length)
        return f"t{len(self._base) + 1 + behind.index(path)}"

    def column(self, path: Path, name: str) -> str:
        """Return the SQL expression for a column of the table that a path leads to."""
        if not path and self._base and name in self._recipe.key:
            return f"l.{quote(name)}"
        return f"{self._alias(path)}.{quote(name)}"

    def _moment_of(self, alias: str, time: RelatedColumn) -> str:
        return _moment(f"{alias}.{quote(time.name)}", time.element, self._recipe)

    def _time_of(self, place: int) -> str:
        return self._moment_of(f"t{place}", self._recipe.times[self._base[place - 1].table])

    def _value(self, feature: RelatedFeature) -> str:
        """Return the name of a feature's column in the query of pairs; add the column if it is not there
        yet."""
        key = (feature.path, f"{feature.value.kind} {feature.value.name}")
        if key not in self._values:
            text = self._value_text(feature.path, feature.value)
            self._values[key] = _Value(f"v{len(self._values)}", text)
        return self._values[key].name

    def _value_text(self, path: Path, column: RelatedColumn) -> str:
        text = f"{self._alias(path)}.{quote(column.name)}"
        if column.kind == NUMBER:
            text = finite(self._alias(path), column)
        elif column.kind == MOMENT:
            # A moment that is not before the cut-off is not known yet.
            moment, cutoff = _moment(text, column.element, self._recipe), f"l.{MOMENT_NAME}"
            text = f"CASE WHEN {moment} < {cutoff} THEN {_days(cutoff, moment)} END"
        else:
            text = plain.as_text(text, column.element)
        # An entity that is not there yet has its parents, and no columns.
        known = "" if path else self.entity_is_past
        return f"CASE WHEN {known} THEN {text} END" if known else text

    def _aggregate(self, feature: RelatedFeature) -> str:
        inside = self._filter(feature.window)
        if feature.aggregate == planning.COUNT:
            return f"count(*){inside}"
        if feature.aggregate == planning.SINCE_LAST:
            return _days(f"p.{MOMENT_NAME}", f"max(p.at){inside}")
        value = f"p.{self._value(feature)}"
        function = {planning.MEAN: "avg"}.get(str(feature.aggregate), feature.aggregate)
        return f"{function}({value}){inside}"

    def _filter(self, window: str | None) -> str:
        return "" if window is None else f" FILTER (WHERE {_inside(window)})"

    def _last(self, window: str | None, features: Sequence[RelatedFeature], number: int) -> _PathQuery:
        """Return the query that computes features from the last row before each cut-off; among rows of the
        same moment, their values decide which is last."""
        values = [(f"p.{self._value(one)}", one) for one in features]
        listed = [f"{value} AS {quote(one.name)}" for value, one in values]
        ties = [f'{value} COLLATE "C"' if one.value.kind == CATEGORY else value for value, one in values]
        where = "" if window is None else f"\n    WHERE {_inside(window)}"
        text = (
            f"SELECT DISTINCT ON (p.{NUMBER_NAME}) {_lines([f'p.{NUMBER_NAME}', *listed], 2)}"
            f"\n    FROM {self._pairs} AS p{where}"
            f"\n    ORDER BY {', '.join([f'p.{NUMBER_NAME}', 'p.at DESC', *ties])}"
        )
        return _PathQuery(f"last_{self._number}_{number}", text, features)

    def _top(self, value: str, features: Sequence[RelatedFeature], number: int) -> _PathQuery:
        """Return the query that counts how often each different value occurs, and computes features of these
        counts."""
        counts = {window: f"k{n}" for n, window in enumerate(dict.fromkeys(one.window for one in features))}
        listed = []
        for feature in features:
            count = f"c.{counts[feature.window]}"
            text = f"count(*) FILTER (WHERE {count} > 0)"
            if feature.aggregate == planning.SHARE_OF_TOP:
                text = f"max({count})::double precision / nullif(sum({count}), 0)::double precision"
            listed.append(f"{text} AS {quote(feature.name)}")
        counted = [f"count(*){self._filter(window)} AS {name}" for window, name in counts.items()]
        text = (
            f"SELECT {_lines([f'c.{NUMBER_NAME}', *listed], 2)}\n    FROM (\n"
            f"        SELECT {_lines([f'p.{NUMBER_NAME}', *counted], 3)}\n        FROM {self._pairs} AS p"
            f" WHERE p.{value} IS NOT NULL\n        GROUP BY p.{NUMBER_NAME}, p.{value}\n"
            f"    ) AS c\n    GROUP BY c.{NUMBER_NAME}"
        )
        return _PathQuery(f"values_{self._number}_{number}", text, features)


def finite(alias: str, column: RelatedColumn) -> str:
    """Return the SQL for a column's value as a number, with NULL for NaN and infinity, which would outweigh
    all other values in an aggregate."""
    through = "::integer" if column.element == "bool" else ""
    text = f"{alias}.{quote(column.name)}{through}::double precision"
    is_safe = column.element not in _MAYBE_INFINITE
    return text if is_safe else f"CASE WHEN abs({text}) < 'Infinity' THEN {text} END"


def _turns(windows: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the moments at which a labelled row needs running values, as SQL, each with a turn.

    They are its cut-off, with turn 0, and the beginning of each window, with the turn in `windows`. The turn
    decides the order of rows of the same moment: lower ones come first.
    """
    cutoff = f"l.{MOMENT_NAME}"
    begins = [(f"{cutoff} - interval {literal(window)}", turn) for window, turn in windows.items()]
    return [(cutoff, 0), *begins]


def _swept(feature: RelatedFeature, value: str | None, windows: Mapping[str, int]) -> str:
    """Return the SQL that computes a feature from the running values at the cut-off and, if the feature has a
    window, at the window's beginning."""

    def between(name: str) -> str:
        end = f"max(r.{name}) FILTER (WHERE r.turn = 0)"
        if feature.window is None:
            return end
        begin = f"max(r.{name}) FILTER (WHERE r.turn = {windows[feature.window]})"
        return f"({end} - coalesce({begin}, 0))"

    if value is None:
        if feature.aggregate == planning.COUNT:
            return between("n")
        return _days("max(r.at) FILTER (WHERE r.turn = 0)", between("last"))
    number = f"nullif({between(f'{value}_count')}, 0)"
    match feature.aggregate:
        case planning.SUM:
            return f"CASE WHEN {number} > 0 THEN {between(f'{value}_sum')} END"
        case planning.MEAN:
            return f"{between(f'{value}_sum')} / {number}"
    return between(f"{value}_{feature.aggregate}")


def _inside(window: str) -> str:
    return f"p.at >= p.{MOMENT_NAME} - interval {literal(window)}"


def _by_length(path: Path) -> tuple[int, str]:
    return len(path), repr(path)


def _lines(texts: Sequence[str], depth: int) -> str:
    """Return SQL expressions separated by commas, each on a line of its own."""
    return f",\n{'    ' * depth}".join(texts)


def _moment(text: str, element: str, recipe: RelationRecipe) -> str:
    """Return the SQL for a time as a timestamp without time zone; if any time of the recipe has a zone, it is
    in UTC."""
    if not recipe.zoned:
        if element == ZONED:
            return f"({text} AT TIME ZONE {literal(recipe.zone)})"
        return text if element == "timestamp" else f"{text}::timestamp"
    if element != ZONED:
        text = f"({text}::timestamp AT TIME ZONE {literal(recipe.zone)})"
    return f"({text} AT TIME ZONE 'UTC')"


def _days(later: str, earlier: str) -> str:
    """Return the SQL for the number of days between two moments; NULL if one of them is infinite."""
    seconds = f"{_EPOCH.format(later)} - {_EPOCH.format(earlier)}"
    return f"nullif(({seconds}) / {_SECONDS}, 'Infinity'::double precision)"
