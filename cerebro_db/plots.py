"""Draws pictures of a run: learning curves, its configs side by side, the timeline of its segments."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import CerebroError, needs
from cerebro_db.link import Row
from cerebro_db.terminal import harmless

if TYPE_CHECKING:
    from cerebro_db.protocols import RunRows

KINDS = ("curves", "configs", "timeline")
# The plots of a run of groups, whose configs are too many to be told apart.
OF_GROUPS = ("groups",)
BARS = 40
NAMED = 8
NAMED_LENGTH = 30
# A cross-validated config has the mean of its folds.
_MEASURED = """
SELECT CASE WHEN p.fold IS NULL THEN m.mst_key ELSE p.config_key END AS mst_key, m.epoch, m.dataset, m.metric,
    avg(m.value) AS value
FROM cerebro.metrics AS m LEFT JOIN cerebro.progress AS p USING (run_id, mst_key)
WHERE m.run_id = %s GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
"""
_VISITS = """
SELECT CASE WHEN p.fold IS NULL THEN v.mst_key ELSE p.config_key END AS mst_key, v.segment,
    extract(epoch FROM v.started_at)::float8 AS began, extract(epoch FROM v.ended_at)::float8 AS ended
FROM cerebro.visits AS v LEFT JOIN cerebro.progress AS p USING (run_id, mst_key)
WHERE v.run_id = %s ORDER BY v.started_at
"""
_GROUPS = """
SELECT dataset, metric, value FROM cerebro.groups
WHERE run_id = %s AND NOT is_fallback AND value NOT IN ('NaN', 'Infinity', '-Infinity')
"""
# More bars than this are drawn as pixels: as shapes they would make a file of many megabytes.
DRAWN_AS_SHAPES = 3000


class Picture:
    """A figure of matplotlib that shows itself in a notebook."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, in the format of its suffix (.png, .svg or .pdf); return the path."""
        self.figure.savefig(path, bbox_inches="tight", dpi=150)
        return Path(path)

    def svg(self) -> str:
        """Return the picture as an SVG element that can be put into HTML."""
        import matplotlib

        text = io.StringIO()
        # Write text as text, which can be searched and copied and is smaller than outlines.
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            self.figure.savefig(text, format="svg", bbox_inches="tight", dpi=150)
        found = text.getvalue()
        return found[found.index("<svg") :]

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.figure.savefig(data, format="png", bbox_inches="tight", dpi=100)
        return data.getvalue()


def picture(run: RunRows, kind: str | None = None) -> Picture:
    """Draw one kind of picture of a run, such as "curves", or by default every kind that suits the run."""
    if kind is not None and kind not in _DRAW:
        raise CerebroError(f"there is no picture {kind!r}", hint=f"There are {', '.join(_DRAW)}.")
    wanted = (OF_GROUPS if run.info()["groups"] else KINDS) if kind is None else (kind,)
    figure = _figure(10, 4.2 * len(wanted))
    for axes, one in zip(figure.subplots(len(wanted), squeeze=False)[:, 0], wanted, strict=True):
        _DRAW[one](run, axes)
    return Picture(figure)


def importance(found: Sequence[Row], title: str) -> Picture:
    """Draw the importance of each column to a model as a bar with its interval, the greatest on top."""
    shown = found[:BARS]
    names = [row["column_name"] for row in shown]
    spans = [
        [row["importance"] - row["low"] for row in shown],
        [row["high"] - row["importance"] for row in shown],
    ]
    return _bars(names, [row["importance"] for row in shown], title, "what it is worth to the metric", spans)


def explanation(found: Sequence[Row], title: str) -> Picture:
    """Draw how much each column of one row adds to the model's score as a bar, the greatest on top."""
    shown = found[:BARS]
    names = [
        row["column_name"]
        if row["value"] is None
        else f"{row['column_name']} = {row['value'][:NAMED_LENGTH]}"
        for row in shown
    ]
    return _bars(names, [row["contribution"] for row in shown], title, "what it adds to the score")


def _bars(
    names: Sequence[str],
    values: Sequence[float],
    title: str,
    label: str,
    spans: Sequence[Sequence[float]] | None = None,
) -> Picture:
    figure = _figure(8, 1.2 + 0.32 * max(1, len(names)))
    axes = figure.subplots()
    if names:
        places = range(len(names))
        axes.barh(places, values, color=["C0" if value >= 0 else "C3" for value in values], xerr=spans)
        axes.set_yticks(places, [_shown(name) for name in names])
        axes.invert_yaxis()
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set(title=_shown(title), xlabel=label)
    else:
        _nothing(axes, "there is nothing to show")
    return Picture(figure)


def _figure(width: float, height: float) -> Any:
    """Create a matplotlib figure without pyplot, which would keep the figure and choose a GUI backend."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise needs("plot", "matplotlib, which draws the pictures,") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _curves(run: RunRows, axes: Any) -> None:
    """Draw a line for each config: the metric that ranks the configs, by epoch. Only the best have labels."""
    ranked = run.rows(
        "SELECT mst_key, dataset, metric FROM cerebro.leaderboard"
        " WHERE run_id = %s AND value IS NOT NULL ORDER BY rank, mst_key"
    )
    if not ranked:
        return _nothing(axes, "no config has been measured")
    metric, dataset = ranked[0]["metric"], ranked[0]["dataset"]
    points: dict[int, list[tuple[int, float]]] = {}
    for row in run.rows(_MEASURED):
        if (row["metric"], row["dataset"]) == (metric, dataset) and row["value"] is not None:
            points.setdefault(row["mst_key"], []).append((row["epoch"], row["value"]))
    best = [row["mst_key"] for row in ranked[:NAMED]]
    for key in sorted(points, key=lambda key: key in best):
        epochs, values = zip(*points[key], strict=True)
        style = _best_style(best.index(key), key) if key in best else _other_style()
        axes.plot(epochs, values, marker="o", markersize=3, **style)
    axes.set(xlabel="epoch", ylabel=_shown(f"{dataset} {metric}"), title="Learning curves")
    axes.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(*_in_order(handles, labels, [f"config {key}" for key in best]), fontsize="small", ncols=2)
    return None


def _best_style(place: int, key: int) -> dict[str, Any]:
    return {"color": f"C{place}", "linewidth": 1.8, "label": f"config {key}", "zorder": 3}


def _other_style() -> dict[str, Any]:
    return {"color": "0.75", "linewidth": 0.8}


def _in_order(
    handles: Sequence[Any], labels: Sequence[str], wanted: Sequence[str]
) -> tuple[list[Any], list[str]]:
    found = dict(zip(labels, handles, strict=True))
    present = [label for label in wanted if label in found]
    return [found[label] for label in present], present


def _configs(run: RunRows, axes: Any) -> None:
    """Draw parallel coordinates: a line for each config through its differing parameters and its metric."""
    ranked = configs(run)
    if not ranked:
        return _nothing(axes, "no config has been measured")
    values = [row["value"] for row in ranked]
    columns = {**differing([row["params"] for row in ranked]), ranked[0]["metric"]: values}
    heights = {name: _scaled(column) for name, column in columns.items()}
    for number in reversed(range(len(ranked))):
        line = [column[number] for column in heights.values()]
        best = number < NAMED
        style = _best_style(number, ranked[number]["mst_key"]) if best else _other_style()
        axes.plot(range(len(line)), line, **style)
    for place, column in enumerate(columns.values()):
        axes.axvline(place, color="0.4", linewidth=0.8, zorder=0)
        for height, text in _ticks(column):
            axes.annotate(
                _shown(text), (place, height), xytext=(3, 0), textcoords="offset points", fontsize="x-small"
            )
    axes.set_xticks(range(len(columns)), list(map(_shown, columns)))
    axes.set(yticks=[], title="Configs: what differs between them, and what they reached", ylim=(-0.06, 1.06))
    axes.margins(x=0.08)
    return None


def configs(run: RunRows) -> list[Row]:
    """Return the leaderboard rows of the measured configs, best first, with their parameters as a dict."""
    return run.rows(
        "SELECT *, cerebro.read_params(compile_params, fit_params) AS params FROM cerebro.leaderboard"
        " WHERE run_id = %s AND value IS NOT NULL AND failure IS NULL ORDER BY rank, mst_key"
    )


def flat(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters without nested calls: an optimizer's `learning_rate` is a key of its own."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and value.keys() == {"name", "arguments"}:
            found[name] = value["name"]
            inner = flat(value["arguments"])
            found.update(inner if name == "optimizer" else {f"{name}.{k}": v for k, v in inner.items()})
        else:
            found[name] = value
    return found


def differing(params: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the parameters whose values differ between the configs, each with a list of these values."""
    flats = [flat(one) for one in params]
    names = dict.fromkeys(name for one in flats for name in one)
    columns = {name: [one.get(name) for one in flats] for name in names}
    return {name: column for name, column in columns.items() if len(set(map(str, column))) > 1}


def _is_numeric(column: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in column)


def _is_log(column: Sequence[Any]) -> bool:
    return min(column) > 0 and max(column) / min(column) > 50


def _scaled(column: Sequence[Any]) -> list[float]:
    """Return a height from 0 to 1 for each value: numbers by value or logarithm, texts by sorted place."""
    if not _is_numeric(column):
        names = sorted(set(map(str, column)))
        return [names.index(str(value)) / max(1, len(names) - 1) for value in column]
    numbers = [math.log(value) for value in column] if _is_log(column) else list(column)
    low, high = min(numbers), max(numbers)
    return [(number - low) / (high - low) if high > low else 0.5 for number in numbers]


def _ticks(column: Sequence[Any]) -> list[tuple[float, str]]:
    """Return the heights and texts of the axis labels: every text, or the least and greatest of numbers."""
    heights = _scaled(column)
    if _is_numeric(column):
        ends = {min(column), max(column)}
        found = {
            height: f"{value:.4g}" for height, value in zip(heights, column, strict=True) if value in ends
        }
    else:
        found = {height: str(value) for height, value in zip(heights, column, strict=True)}
    return sorted(found.items())


def _timeline(run: RunRows, axes: Any) -> None:
    """Draw one line for each segment, with a bar for each visit; the best configs have colours."""
    visits = run.rows(_VISITS)
    if not visits:
        return _nothing(axes, "there was no visit")
    start = visits[0]["began"]
    known = {row["mst_key"]: f"C{place}" for place, row in enumerate(configs(run)[:NAMED])}
    segments = sorted({visit["segment"] for visit in visits})
    for segment in segments:
        own = [visit for visit in visits if visit["segment"] == segment]
        bars = [(visit["began"] - start, visit["ended"] - visit["began"]) for visit in own]
        colors = [known.get(visit["mst_key"], "0.75") for visit in own]
        drawn = axes.broken_barh(
            bars, (segment - 0.4, 0.8), facecolors=colors, edgecolor="white", linewidth=0.3
        )
        drawn.set_rasterized(len(visits) > DRAWN_AS_SHAPES)
    axes.set_yticks(segments, [f"segment {segment}" for segment in segments])
    axes.set(
        xlabel="seconds",
        title="Timeline: which config trained on which segment when; the best have their colours",
    )
    return None


def _groups(run: RunRows, axes: Any) -> None:
    """Draw a histogram of the metric that the best config of each group has reached."""
    found = run.rows(_GROUPS)
    if not found:
        return _nothing(axes, "no group has been measured")
    axes.hist([row["value"] for row in found], bins=BARS)
    what = f"{found[0]['dataset']} {found[0]['metric']}"
    axes.set(xlabel=_shown(what), ylabel="groups", title="The best of each group")
    return None


def _shown(text: object) -> str:
    """Return text for matplotlib: control characters are spelled out, and `$` does not begin a formula."""
    return harmless(text).replace("$", r"\$")


def _nothing(axes: Any, why: str) -> None:
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes)
    axes.set_axis_off()


_DRAW = {"curves": _curves, "configs": _configs, "timeline": _timeline, "groups": _groups}
