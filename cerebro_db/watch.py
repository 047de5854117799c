"""Shows the progress of a run: as bars in a terminal or a notebook, or as a few lines in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from cerebro_db import markup
from cerebro_db.errors import CerebroError, needs
from cerebro_db.link import Row
from cerebro_db.terminal import harmless

if TYPE_CHECKING:
    from cerebro_db.protocols import RunRows

LOOK_SECONDS = 0.5
SHOWN = 20
PARTS = 10


@dataclass(frozen=True)
class Snapshot:
    """The progress of a run at one moment."""

    run: Row
    configs: list[Row]
    best: Row | None

    @property
    def share(self) -> float:
        return self.run["visits_done"] / max(1, self.run["visits_total"])

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds until the run is over; None before the first visits are over.

        The segments share the remaining time of all configs, but the run lasts at least as long as its
        slowest config, because no config is in two visits at once. A config without an estimate of the
        server's is taken to be as slow as the other configs.
        """
        left = [(c["visits_total"] - c["visits_done"], c["seconds_left"]) for c in self.configs]
        known = [(visits, seconds) for visits, seconds in left if seconds is not None]
        if not any(seconds for _, seconds in known):
            return None
        each = sum(seconds for _, seconds in known) / max(1, sum(visits for visits, _ in known))
        going = [visits * each if seconds is None else seconds for visits, seconds in left]
        return max(sum(going) / self.run["segments"], *going)

    def headline(self) -> str:
        run = self.run
        of_groups = f" of {run['groups']} groups" if run["groups"] else ""
        # The total number of visits of a search is not known in advance.
        visits = f"{run['visits_done']} visits"
        if not run["search"]:
            visits = f"{run['visits_done']} of {run['visits_total']} visits"
        parts = [f"run {run['run_id']}: {visits}{of_groups}"]
        if run["status"] != "running":
            parts[0] += f", {run['status']}"
        elif self.seconds_left is not None:
            parts.append(f"about {duration(self.seconds_left)} left")
        return harmless("; ".join([*parts, *([best_text(self.best)] if self.best else [])]))

    def last_line(self) -> str:
        run = self.run
        said = f"run {run['run_id']} {run['status']} after {duration(run['seconds'])}"
        said += f"; {run['groups']} groups" if run["groups"] else ""
        if run["detail"]:
            said += f": {run['detail']}"
        return harmless("; ".join([said, *([best_text(self.best)] if self.best else [])]))


def duration(seconds: float) -> str:
    """Return a number of seconds as text, in seconds, minutes or hours."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def best_text(best: Row) -> str:
    return f"best {best['dataset']} {best['metric']} {best['value']:.4g} (config {best['mst_key']})"


def config_text(config: Row) -> str:
    """Return a line of text with the progress of a config, to be shown beside its bar."""
    loss = "" if config["loss"] is None else f"  loss {config['loss']:.4g}"
    key = config["mst_key"] if config["config_key"] is None else config["config_key"]
    without = "" if config["fold"] is None else f" without fold {config['fold']}"
    return f"config {key}{without}  epoch {config['epoch']} of {config['epochs']}  {config['status']}{loss}"


def look(run: RunRows) -> Snapshot:
    """Return a snapshot of a run's progress, read from the server."""
    info = run.info()
    if info["groups"]:
        # A run of groups may have tens of thousands of configs, and no best config overall.
        return Snapshot(info, [], None)
    best = run.rows(
        "SELECT mst_key, dataset, metric, value FROM cerebro.leaderboard"
        " WHERE run_id = %s AND value IS NOT NULL AND failure IS NULL ORDER BY rank, mst_key LIMIT 1"
    )
    configs = run.rows("SELECT * FROM cerebro.progress WHERE run_id = %s ORDER BY mst_key")
    return Snapshot(info, configs, best[0] if best else None)


class Screen(Protocol):
    """An output on which the progress of a run is shown: a terminal, a notebook or a file."""

    def show(self, snapshot: Snapshot) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self, snapshot: Snapshot) -> None: ...

    def leave(self) -> None: ...


class Lines:
    """A screen for files, which writes one line for each tenth of the visits."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._parts = -1

    def show(self, snapshot: Snapshot) -> None:
        parts = int(snapshot.share * PARTS)
        if parts > self._parts and parts < PARTS:
            self._parts = parts
            self.say(snapshot.headline())

    def say(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def close(self, snapshot: Snapshot) -> None:
        self.say(snapshot.last_line())

    def leave(self) -> None:
        pass


class Terminal:
    """A screen for terminals: a bar for the run and one for each config, which rich redraws in place."""

    def __init__(self, file: TextIO) -> None:
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError:
            raise needs("rich", "rich, which draws the bars,") from None
        self._console = Console(file=file)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(self._bars(snapshot), refresh=True)

    def _bars(self, snapshot: Snapshot) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        room = max(1, min(SHOWN, self._console.height - 3))
        table = Table.grid(padding=(0, 1))
        table.add_row(ProgressBar(total=1.0, completed=snapshot.share, width=30), snapshot.headline())
        for config in foremost(snapshot, room):
            bar = ProgressBar(total=max(1, config["visits_total"]), completed=config["visits_done"], width=30)
            table.add_row(bar, config_text(config))
        if len(snapshot.configs) > room:
            table.add_row("", f"and {len(snapshot.configs) - room} more")
        return table

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def leave(self) -> None:
        self._live.stop()

    def close(self, snapshot: Snapshot) -> None:
        self.leave()
        self._console.print(snapshot.last_line(), highlight=False, markup=False)


class Notebook:
    """A screen for notebooks: bars in HTML, which each update replaces."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._said: list[str] = []
        self._handle: Any = display(HTML(""), display_id=True)

    def show(self, snapshot: Snapshot) -> None:
        rows = [_bar(snapshot.share, snapshot.headline())]
        for config in foremost(snapshot, SHOWN):
            share = config["visits_done"] / max(1, config["visits_total"])
            rows.append(_bar(share, config_text(config)))
        self._update("".join(rows))

    def say(self, text: str) -> None:
        self._said.append(text)

    def leave(self) -> None:
        self._update("")

    def close(self, snapshot: Snapshot) -> None:
        self._update(f"<div>{markup.text(snapshot.last_line())}</div>")

    def _update(self, bars: str) -> None:
        said = "".join(f"<div>{markup.text(text)}</div>" for text in self._said)
        self._handle.update(self._html(f"<div>{bars}{said}</div>"))


def _bar(share: float, text: str) -> str:
    bar = f'<progress max="1" value="{share:.4f}" style="width: 12em"></progress>'
    return f"<div>{bar} {markup.text(text)}</div>"


def foremost(snapshot: Snapshot, room: int) -> list[Row]:
    """Return at most `room` configs to show: those at work first, then those that wait, then all others."""
    order = {"training": 0, "evaluating": 0, "waiting": 1, "paused": 1}
    ranked = sorted(snapshot.configs, key=lambda c: (order.get(c["status"], 2), c["mst_key"]))
    return sorted(ranked[:room], key=lambda c: c["mst_key"])


def screen(file: TextIO) -> Screen:
    """Return the screen for `file`: a Terminal, Lines, or a Notebook if `file` is the stdout of one."""
    shell = sys.modules.get("IPython")
    if file is sys.stdout and shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return Notebook()
    return Terminal(file) if file.isatty() else Lines(file)


def watch(run: RunRows, shown: Screen, going: Callable[[], bool], stop: Callable[[], object]) -> None:
    """Show a run until it is over. Ctrl-C asks the server to stop it; a second Ctrl-C ends the watching."""
    asked = False
    try:
        while True:
            try:
                if not going():
                    break
                shown.show(look(run))
                time.sleep(LOOK_SECONDS)
            except KeyboardInterrupt:
                if asked:
                    shown.say(f"run {run.run_id} goes on without being watched")
                    raise
                asked = True
                shown.say(_ask_to_stop(run.run_id, stop))
    except BaseException:
        shown.leave()
        raise
    shown.close(look(run))


def _ask_to_stop(run_id: int, stop: Callable[[], object]) -> str:
    try:
        stop()
    except CerebroError as error:
        # The run may be over by now, or somebody else may have stopped it already.
        return harmless(error.message)
    return (
        f"asked run {run_id} to stop: it finishes the visits that have begun and leaves its tables."
        " Ctrl-C again looks away"
    )
