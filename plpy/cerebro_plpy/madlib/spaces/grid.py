"""Makes configs from grids and lists, as rows of a model selection table."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import Call, Value, read_value, shorten
from cerebro_plpy.madlib.names import OPTIMIZERS
from cerebro_plpy.madlib.params import CompileParams, parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.dimension import Dimension
from cerebro_plpy.madlib.spaces.render import deduplicate, render_row
from cerebro_plpy.madlib.spaces.space import OPTIMIZER_LIST, Choice, Point, Space, read_space
from cerebro_plpy.seeding import derive

MOST_CONFIGS: Final = 10_000
# After this many duplicates in a row, nearly all points have been drawn.
PATIENCE: Final = 100


@dataclass(frozen=True)
class GridRow:
    """One row of a model selection table, without its key."""

    model_id: int
    compile_params: str
    fit_params: str


def search_configs(
    model_ids: Sequence[int | None],
    compile_grid: str | None,
    fit_grid: str | None,
    search_type: str | None = "grid",
    num_configs: int | None = None,
    random_state: int | None = None,
) -> tuple[list[GridRow], int | None]:
    """Return the rows that generate_model_configs adds, and the seed if they were drawn at random."""
    kind = (search_type or "").lower()
    if kind and "grid".startswith(kind):
        if num_configs is not None or random_state is not None:
            raise CerebroError("DL: 'num_configs' and 'random_state' must be NULL for grid search")
        return grid_configs(model_ids, compile_grid, fit_grid), None
    if kind and "random".startswith(kind):
        return random_configs(model_ids, compile_grid, fit_grid, num_configs, random_state)
    raise CerebroError(
        "DL: 'search_type' must be either 'grid' or 'random'", detail=f"It is {search_type!r:.60}."
    )


def new_configs(
    known: list[GridRow],
    model_ids: list[int],
    compile_grid: str,
    fit_grid: str,
    search_type: str | None,
    num_configs: int | None,
    random_state: int | None,
) -> tuple[list[GridRow], int | None]:
    """Return configs of a search that are not in `known`, and the seed if they were drawn at random.

    A random search draws more configs in place of the known ones.
    """
    meanings = Meanings()
    taken = {meanings.make_key(row) for row in known}
    wanted = num_configs
    while True:
        rows, random_state = search_configs(
            model_ids=model_ids,
            compile_grid=compile_grid,
            fit_grid=fit_grid,
            search_type=search_type,
            num_configs=wanted,
            random_state=random_state,
        )
        fresh = [row for row in rows if meanings.make_key(row) not in taken]
        if num_configs is None or wanted is None:
            break
        if len(fresh) >= num_configs:
            return fresh[:num_configs], random_state
        wanted += num_configs - len(fresh)
    if not fresh:
        raise CerebroError("the model selection table already holds every config of the grid")
    return fresh, random_state


def grid_configs(
    model_ids: Sequence[int | None], compile_grid: str | None, fit_grid: str | None
) -> list[GridRow]:
    """Return all configs of the grids, each once."""
    space = open_space(model_ids, compile_grid, fit_grid)
    endless = [dimension for dimension in space.dimensions() if dimension.is_drawn]
    if endless:
        raise CerebroError(
            "DL: Cannot search from a distribution with grid search",
            detail=f"{endless[0].path} is one.",
            hint="Use search_type 'random', or list the values.",
        )
    volume = space.volume
    if volume is None or volume > MOST_CONFIGS:
        size = volume if volume is not None and volume < 10**15 else "far too many"
        raise CerebroError(
            f"the grid has {size} configs",
            detail=f"At most {MOST_CONFIGS} can be generated in one call.",
            hint="Use fewer values, or search_type 'random'.",
        )
    return [to_row(choice) for choice in _distinct(space)]


def random_configs(
    model_ids: Sequence[int | None],
    compile_grid: str | None,
    fit_grid: str | None,
    num_configs: int | None,
    random_state: int | None = None,
) -> tuple[list[GridRow], int]:
    """Return configs drawn at random, all different, and the seed with which they were drawn."""
    if num_configs is None or not 1 <= num_configs <= MOST_CONFIGS:
        raise CerebroError(
            "DL: 'num_configs' cannot be NULL and needs to be a natural number for random search",
            detail=f"It is {num_configs}; at most {MOST_CONFIGS} can be generated in one call.",
        )
    space = open_space(model_ids, compile_grid, fit_grid)
    seed = secrets.randbits(31) if random_state is None else random_state
    return [to_row(choice) for choice in random_choices(space, num_configs, seed)], seed


def list_configs(
    model_ids: Sequence[int | None],
    compile_list: Sequence[str | None],
    fit_list: Sequence[str | None],
) -> list[GridRow]:
    """Return all combinations of models, compile parameters and fit parameters, each once.

    load_model_selection_table adds these configs.
    """
    if not fit_list:
        raise CerebroError("fit_params_list cannot be NULL")
    if not compile_list:
        raise CerebroError("compile_params_list cannot be NULL")
    fits = deduplicate(_texts(fit_list, "fit_params_list"), parse_fit)
    compiles = deduplicate(_texts(compile_list, "compile_params_list"), _parse_with_optimizer)
    combinations = product(_model_ids(model_ids), compiles, fits)
    return [GridRow(model_id, compiled[0], fitted[0]) for model_id, compiled, fitted in combinations]


def _parse_with_optimizer(text: str) -> CompileParams:
    return parse_compile(text, require_optimizer=True)


def _texts(items: Iterable[str | None], name: str) -> list[str]:
    texts = list(items)
    if any(text is None for text in texts):
        raise CerebroError(f"{name} cannot be NULL", detail="An element of it is NULL.")
    return [text for text in texts if text is not None]


def _model_ids(model_ids: Sequence[int | None]) -> list[int]:
    if not model_ids or None in model_ids:
        raise CerebroError("model_id_list cannot be NULL", detail="It is empty, or an element of it is NULL.")
    return sorted({model_id for model_id in model_ids if model_id is not None})


def open_space(model_ids: Sequence[int | None], compile_grid: str | None, fit_grid: str | None) -> Space:
    """Return the space of two grids.

    Raise an error for any fault that can be found before configs are drawn.
    """
    if compile_grid is None:
        raise CerebroError("compile_params_list cannot be NULL")
    if fit_grid is None:
        raise CerebroError("fit_params_list cannot be NULL")
    space = read_space(_model_ids(model_ids), compile_grid, fit_grid)
    _check_values(space)
    return space


def _check_values(space: Space) -> None:
    """Raise an error, with the path of the value, if a value or a bound is wrong in every combination."""
    for group in space.optimizers:
        names = next((item.values for item in group if item.name == "optimizer"), ("RMSprop",))
        for item in group:
            others = (None,) if item.name == "optimizer" else names
            for value, name in product(item.extremes(), others):
                chosen = {"optimizer": value} if name is None else {"optimizer": name, item.name: value}
                _check_value(item, value, lambda c=chosen: _parse_alone({"optimizer": _optimizer_text(c)}))
    for item in space.compile:
        for value in item.extremes():
            _check_value(item, value, lambda n=item.name, v=value: _parse_alone({n: v}))
    for item in space.fit:
        for value in item.extremes():
            _check_value(item, value, lambda n=item.name, v=value: parse_fit(render_row({n: v})))


def _parse_alone(values: Point) -> None:
    text = render_row({"optimizer": "RMSprop()", "loss": "mse", **values})
    try:
        parse_compile(text)
    except CerebroError as error:
        # The message should show only the value: the caller did not write the rest of the text.
        message = error.message.replace(shorten(text), shorten(render_row(values)), 1)
        raise CerebroError(message, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate) from None


def _check_value(item: Dimension, value: Value, parse: Callable[[], object]) -> None:
    try:
        parse()
    except CerebroError as error:
        said = f"{item.path} is {shorten(value, 60)}"
        path_first = item.path.startswith("$")
        raise CerebroError(
            f"{said}: {error.message}" if path_first else error.message,
            detail=error.detail if path_first else " ".join(filter(None, [f"{said}.", error.detail])),
            hint=error.hint,
            sqlstate=error.sqlstate,
        ) from None


def _enumerated(space: Space) -> list[Choice] | None:
    volume = space.volume
    return None if volume is None or volume > MOST_CONFIGS else _distinct(space)


def _distinct(space: Space) -> list[Choice]:
    by_row: dict[GridRow, Choice] = {}
    for choice in space.points():
        by_row.setdefault(to_row(choice), choice)
    return [by_row[row] for row in distinct(by_row)]


class Meanings:
    """A reader of rows that says whether two rows mean the same. It parses each text only once."""

    def __init__(self) -> None:
        self._compiled: dict[str, str] = {}
        self._fitted: dict[str, str] = {}

    def make_key(self, row: GridRow) -> tuple[int, str, str]:
        """Return a key that is equal for rows that mean the same, however they are written."""
        compiled, fitted = row.compile_params, row.fit_params
        if compiled not in self._compiled:
            self._compiled[compiled] = parse_compile(compiled).to_json()
        if fitted not in self._fitted:
            self._fitted[fitted] = parse_fit(fitted).to_json()
        return row.model_id, self._compiled[compiled], self._fitted[fitted]


def distinct(rows: Iterable[GridRow]) -> list[GridRow]:
    """Return the rows without those that mean the same as an earlier row."""
    meanings = Meanings()
    found: dict[tuple[int, str, str], GridRow] = {}
    for row in rows:
        found.setdefault(meanings.make_key(row), row)
    return list(found.values())


def random_choices(space: Space, count: int, seed: int) -> list[Choice]:
    """Return a number of points of a space, drawn at random, of which no two mean the same."""
    everything = _enumerated(space)
    if everything is not None and len(everything) < count:
        raise CerebroError(
            f"the search space has {len(everything)} configs, fewer than num_configs = {count}",
            hint=f"Ask for at most {len(everything)}, use search_type 'grid', or widen the space.",
        )
    meanings = Meanings()
    found: dict[tuple[int, str, str], Choice] = {}
    draw = duplicates = 0
    while len(found) < count:
        choice = draw_choice(space, seed, draw)
        if duplicates >= PATIENCE:
            rest = [one for one in everything or [] if meanings.make_key(to_row(one)) not in found]
            choice = _one_of_the_rest(rest, len(found), seed, draw)
        known = len(found)
        found.setdefault(meanings.make_key(to_row(choice)), choice)
        duplicates = duplicates + 1 if len(found) == known else 0
        draw += 1
    return list(found.values())


def _one_of_the_rest(rest: list[Choice], found: int, seed: int, draw: int) -> Choice:
    if not rest:
        raise CerebroError(
            f"the search space seems to hold only {found} different configs",
            detail=f"{PATIENCE} draws in a row gave nothing new.",
            hint="Ask for fewer configs, or widen the bounds.",
        )
    return rest[int(_unit(seed, draw, "rest") * len(rest))]


def examples(space: Space) -> list[GridRow]:
    """Return configs with which architectures and data can be checked for the whole space.

    In them, each architecture occurs with each optimizer and with each value of the other compile parameters.
    """
    choices: list[Choice] = []
    for model_id, (group, optimizer) in product(space.model_ids, enumerate(space.optimizers)):
        first = _first_values(optimizer, model_id)
        compiled, fitted = _first_values(space.compile, model_id), _first_values(space.fit, model_id)
        names = [i for i in optimizer if i.name == "optimizer"]
        choices += [
            Choice(model_id, group, {**first, **one}, compiled, fitted)
            for one in _one_by_one(names, model_id)
        ]
        choices += [
            Choice(model_id, group, first, {**compiled, **one}, fitted)
            for one in _one_by_one(space.compile, model_id)
        ]
    return list(dict.fromkeys(to_row(choice) for choice in choices))


def _first_values(dimensions: Iterable[Dimension], model_id: int) -> Point:
    return {item.name: item.extremes()[0] for item in dimensions if item.applies_to(model_id)}


def _one_by_one(dimensions: Iterable[Dimension], model_id: int) -> list[Point]:
    points: list[Point] = [{}]
    for item in dimensions:
        if item.applies_to(model_id):
            points += [{item.name: value} for value in item.extremes()]
    return points


def draw_choice(space: Space, seed: int, draw: int) -> Choice:
    """Return the point of a space that draw number `draw` gives.

    The same seed and number give the same point.
    """
    group = int(_unit(seed, draw, "optimizer") * len(space.optimizers))
    model_id = space.model_ids[int(_unit(seed, draw, "model_id") * len(space.model_ids))]

    def choose(dimensions: tuple[Dimension, ...], scope: str) -> Point:
        return {
            item.name: item.pick(_unit(seed, draw, f"{scope}['{item.name}']"))
            for item in dimensions
            if item.applies_to(model_id)
        }

    return Choice(
        model_id,
        group,
        choose(space.optimizers[group], f"compile['{OPTIMIZER_LIST}'][{group}]"),
        choose(space.compile, "compile"),
        choose(space.fit, "fit"),
    )


def _unit(seed: int, draw: int, dimension: str) -> float:
    """Return a number in [0, 1) that depends only on seed, draw and dimension."""
    return (derive(seed, "generate_model_configs", dimension, draw) >> 75) / 2.0**53


def to_row(choice: Choice) -> GridRow:
    """Return a point of a space as a row of a model selection table."""
    values: Point = {"optimizer": _optimizer_text(choice.optimizer), **choice.compile}
    for key in ("metrics", "weighted_metrics"):
        if isinstance(values.get(key), str | Call):
            values[key] = [values[key]]
    return GridRow(choice.model_id, render_row(values), render_row(choice.fit))


def _optimizer_text(chosen: Point) -> str:
    """Return an optimizer as text, such as `Adam(lr=0.001)`. MADlib's default is RMSprop."""
    name = chosen.get("optimizer", "RMSprop")
    folded = {known.lower(): known for known in OPTIMIZERS}
    text = folded.get(str(name).lower(), str(name))
    arguments = {key: _argument(value) for key, value in chosen.items() if key != "optimizer"}
    return f"{text}({render_row(arguments)})"


def _argument(value: Value) -> Value:
    """Return the call in a quoted call, such as a schedule. Return any other value as it is."""
    return read_value(value) if isinstance(value, str) and "(" in value else value
