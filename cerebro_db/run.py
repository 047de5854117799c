"""A run, while it goes on and afterwards, and its configs with the models that they have become."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cerebro_db import frames, groups, judged, markup, models, plan, rows, stored
from cerebro_db import watch as watching
from cerebro_db.errors import CerebroError
from cerebro_db.link import Row
from cerebro_db.packing import Packed
from cerebro_db.plan import Plan
from cerebro_db.plots import flat
from cerebro_db.space import read_grid
from cerebro_db.statements import Columns, call, names, table_name

if TYPE_CHECKING:
    import pandas

    from cerebro_db.architectures import Home
    from cerebro_db.plots import Picture

_INFO = "SELECT * FROM cerebro.runs WHERE run_id = %s"
_FOREMOST = """SELECT rank, mst_key, metric, value, loss, epoch, compile_params, fit_params
    FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank, mst_key LIMIT 8"""
LOOK_SECONDS = (0.05, 0.5)
# The states of a run that is not over.
GOING = ("running", "paused")


class Run:
    """A call that trains a set of configs on one packed table."""

    def __init__(
        self, db: Home, run_id: int, *, statements: Sequence[str] = (), packed: Packed | None = None
    ) -> None:
        self.db = db
        self.run_id = run_id
        self.statements = tuple(statements)
        self._packed = packed

    def __repr__(self) -> str:
        return f"<run {self.run_id}>"

    def _repr_html_(self) -> str:
        snapshot = watching.look(self)
        info = snapshot.run
        title = f"Run {self.run_id}" + (f" · {info['name']}" if info["name"] else "")
        said = snapshot.headline() if info["status"] in GOING else snapshot.last_line()
        shown = [groups.spread(self)] if info["groups"] else self.rows(_FOREMOST)
        board = markup.table(list(shown[0]), [list(row.values()) for row in shown]) if shown else ""
        more = f"<p>{markup.text(info['detail'])}</p>" if info["detail"] else ""
        return markup.titled(title, f"<p>{markup.text(said)}</p>", more, board)

    def sql(self) -> None:
        """Print the statements that began the run."""
        if not self.statements:
            raise CerebroError(
                f"run {self.run_id} was begun elsewhere, and its statements are not known here"
            )
        print(";\n".join(self.statements) + ";")

    def info(self) -> Row:
        """Return the run's row of the view `cerebro.runs`."""
        return self.rows(_INFO)[0]

    def models(self) -> str:
        """Return the table of its models, which is there when the run is over and not yet another run's."""
        info = self.info()
        if info["status"] in GOING:
            raise CerebroError(
                f"run {self.run_id} is {info['status']}: its models are there when it is over",
                hint="run.wait() waits for that; run.stop() ends it with what there is.",
                shell=f"cerebro watch {self.run_id} waits for that; cerebro stop {self.run_id} ends it.",
            )
        name = stored.table(self.db, info["model_table"])
        stored.check_of_run(self.db, name, self.run_id)
        return name

    def specification(self) -> dict[str, Any] | None:
        """Return what the columns became, with the classes, if rows were packed as they are."""
        return stored.specification(self.db, self.info()["model_table"])

    @property
    def status(self) -> str:
        """The status of the run: running, paused, finished, failed or interrupted."""
        return self.info()["status"]

    @property
    def packed(self) -> Packed:
        """The table that the run trains on."""
        if self._packed is not None:
            return self._packed
        name = self.info()["source_table"]
        stored.table(self.db, table_name(name, "_summary"))
        return Packed(self.db, stored.table(self.db, name))

    def leaderboard(self) -> pandas.DataFrame:
        """Return the configs, best first; of a run of groups, within each group, whose columns come first."""
        found = frames.frame(
            groups.split(
                self.rows(
                    "SELECT * FROM cerebro.leaderboard WHERE run_id = %s ORDER BY group_key, rank, mst_key"
                )
            )
        )
        # A config that failed has none, which pandas' own integers cannot say.
        return found.astype({"rank": "Int64"})

    def groups(self) -> pandas.DataFrame:
        """Return the groups of a run of groups, each with its best config or why it has none."""
        found = frames.frame(groups.listed(self))
        # Models of all rows are of no group, and groups that are left out have no config.
        whole = ("rows", "segments", "mst_key", "unit_key", "epoch", "best_epoch")
        return found.astype({name: "Int64" for name in whole if name in found.columns})

    def metrics(self) -> pandas.DataFrame:
        """Return the metrics of the configs after the epochs that were measured."""
        return self._frame(
            "SELECT * FROM cerebro.metrics WHERE run_id = %s ORDER BY mst_key, epoch, dataset, metric"
        )

    def timeline(self) -> pandas.DataFrame:
        """Return which config trained on which segment when."""
        return self._frame("SELECT * FROM cerebro.visits WHERE run_id = %s ORDER BY started_at, mst_key")

    def progress(self) -> pandas.DataFrame:
        """Return how far each config has come."""
        return self._frame("SELECT * FROM cerebro.progress WHERE run_id = %s ORDER BY mst_key")

    def decisions(self) -> pandas.DataFrame:
        """Return the decisions that were made while the run went on, with the reasons."""
        return self._frame("SELECT * FROM cerebro.decisions WHERE run_id = %s ORDER BY number")

    def advise(self) -> pandas.DataFrame:
        """Return what the losses tell and what to try next; nothing where all is well."""
        return frames.frame(judged.advise(self.db, self.run_id), judged.ADVICE)

    def best(self, group: Mapping[str, Any] | None = None) -> Config:
        """Return the first config of the leaderboard; of a run of groups, that of a group: `{"shop": 3}`."""
        if group is not None:
            return Config(self, groups.unit(self, group)["mst_key"], group)
        if self.info()["groups"]:
            raise CerebroError(
                f"run {self.run_id} has a best config for each group",
                hint='Name the group: run.best({"shop": 3}). run.groups() lists all with their best.',
                shell=f"Name the group, by --group; cerebro groups {self.run_id} lists all with their best.",
            )
        ranked = self.rows(
            "SELECT mst_key FROM cerebro.leaderboard WHERE run_id = %s AND value IS NOT NULL"
            " AND failure IS NULL ORDER BY rank, mst_key LIMIT 1"
        )
        if not ranked:
            going = self.status in GOING
            raise CerebroError(
                f"no config of run {self.run_id} has been measured" + (" yet" if going else ""),
                hint="Wait for its end, or look at its progress."
                if going
                else "It ended before that: its configs show what failed, its decisions what was stopped.",
            )
        return Config(self, ranked[0]["mst_key"])

    def config(self, mst_key: int, group: Mapping[str, Any] | None = None) -> Config:
        """Return a config by its key; for a run of groups, that of the group, else that of all rows."""
        return Config(self, mst_key, group)

    def save_groups(self, folder: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write the best model of each group to a folder, as `.keras`; return the list of which is whose."""
        return groups.save(self, Path(folder), custom_objects)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the run is over and its tables are there, or for so many seconds; return its status.

        The server is asked anew each time, so that no session of it waits with you.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = LOOK_SECONDS[0]
        while (status := self._waited()) in GOING and (end is None or time.monotonic() < end):
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, LOOK_SECONDS[1])
        return status

    def watch(self, file: TextIO | None = None) -> Run:
        """Show the run as it goes on until it is over: bars in a terminal or a notebook, else some lines.

        The first Ctrl-C asks the server to stop the run and waits for its tables, the second looks away.
        """
        shown: TextIO = sys.stdout if file is None else file
        watching.watch(self, watching.screen(shown), lambda: self._waited() in GOING, self.stop)
        return self

    def check_finished(self) -> None:
        """Raise an error unless the run has ended well."""
        info = self.info()
        if info["status"] != "finished":
            raise CerebroError(
                f"run {self.run_id} is {info['status']}: {info['detail'] or 'no reason is known'}",
                hint="Its configs show what failed, its decisions what was stopped.",
            )

    def predict(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """Predict rows with the best config, as `Config.predict` does."""
        return self.best().predict(given, x)

    def plot(self, kind: str | None = None) -> Picture:
        """Draw pictures of the run: "curves", "configs" or "timeline", or all of them.

        In a notebook a picture shows itself; `.save(path)` writes it as .png, .svg or .pdf.
        """
        from cerebro_db import plots

        return plots.picture(self, kind)

    def report(self, path: str | Path, rows: str | None = None) -> Path:
        """Write all that is to be known of the run into one HTML file that needs nothing else.

        With `rows`, a table or view with the columns and the label as they are, it also says what the columns
        are worth to the best config.
        """
        from cerebro_db import report

        return report.write(self, Path(path), rows)

    def to_tensorboard(self, folder: str | Path) -> Path:
        """Write the metrics as TensorBoard's event files, a folder for each config."""
        from cerebro_db import exports

        return exports.to_tensorboard(self, Path(folder))

    def to_mlflow(self, tracking_uri: str, experiment: str | None = None) -> list[str]:
        """Write a run for each config into a tracking store of MLflow; return the numbers of these."""
        from cerebro_db import exports

        return exports.to_mlflow(self, tracking_uri, experiment)

    def _waited(self) -> str:
        """Return the status, which shows the run's end only once its last transaction is over."""
        return self.db.rows(call("wait", self.run_id, "0") + " AS status")[0]["status"]

    def stop(self, mst_key: int | None = None, *, force: bool = False) -> None:
        """End the run well, with tables of what there is; or give one config no further visits.

        By force the sessions of the run end at once, whatever they wait for: it can be resumed then.
        """
        if mst_key is not None:
            self._ask("stop_config", mst_key)
        elif force:
            self._ask("stop", True)
        else:
            self._ask("stop")

    def pause(self) -> None:
        """Let the run begin nothing more until it is resumed."""
        self._ask("pause")

    def resume(self, mst_key: int | None = None) -> None:
        """Let a paused run or a stopped config go on; go on with an interrupted run, and wait for its end."""
        self._ask("resume") if mst_key is None else self._ask("resume_config", mst_key)

    def delete(self, mst_key: int) -> None:
        """Leave a config out of the rest of the run, and out of its tables."""
        self._ask("delete_config", mst_key)

    def set_epochs(self, mst_key: int, epochs: int) -> None:
        """Set for how many epochs in all a config trains."""
        self._ask("set_epochs", mst_key, epochs)

    def clone(
        self,
        mst_key: int,
        compile_params: str | None = None,
        fit_params: str | None = None,
        *,
        with_state: bool = True,
    ) -> int:
        """Bring in a config like another one, with other parameters where they are given; return its key."""
        return self._ask("clone_config", mst_key, compile_params, fit_params, with_state)[0]["answer"]

    def add(
        self,
        grid: Mapping[str, Any] | str,
        *,
        configs: int | None = None,
        seed: int | None = None,
    ) -> list[int]:
        """Bring in the configs of a grid, or of a model selection table; return their keys.

        With `configs`, so many are drawn from the grid.
        """
        if isinstance(grid, str):
            return [row["answer"] for row in self._ask("add_configs", grid)]
        space = dict(grid)
        models = self.db.architectures.chosen(space.pop("model", None))
        how = () if configs is None else ("random", configs, seed)
        return [row["answer"] for row in self._ask("add_configs", models, *read_grid(space).texts(), *how)]

    def explain(self) -> Plan:
        """Return the run's plan: what was to be expected, beside what it took."""
        return plan.explain(self.db, lambda form: call("explain_run", self.run_id, format=form))

    def forget(self) -> None:
        """Remove the states and log rows of the run; its tables stay."""
        self._ask("forget")

    def _ask(self, function: str, *values: object) -> list[Row]:
        return self.db.rows(f"{call(function, self.run_id, *values)} AS answer")

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query on the views, whose one value is the run's number."""
        rows = self.db.look(query, self.run_id)
        if not rows and query == _INFO:
            raise CerebroError(
                f"you have no run {self.run_id}",
                hint="db.runs() shows your runs.",
                shell="cerebro runs shows your runs.",
            )
        return rows

    def _frame(self, query: str) -> pandas.DataFrame:
        return frames.frame(self.rows(query))


class Config:
    """A candidate: an architecture with compile and fit parameters."""

    def __init__(self, run: Run, mst_key: int, group: Mapping[str, Any] | None = None) -> None:
        self.run = run
        self.mst_key = mst_key
        self.group = group

    def __repr__(self) -> str:
        of_group = "" if self.group is None else f" of group {dict(self.group)}"
        return f"<config {self.mst_key}{of_group} of run {self.run.run_id}>"

    def _repr_html_(self) -> str:
        info = self.info()
        shown = [("status", info["failure"]), ("rank", info["rank"]), (info["metric"], info["value"])]
        shown += [("loss", info["loss"]), ("epoch", info["epoch"]), *flat(self.params).items()]
        title = f"Config {self.mst_key} of run {self.run.run_id}"
        return markup.titled(title, markup.pairs([(name, value) for name, value in shown if name]))

    def info(self) -> Row:
        """Return the config's row of the leaderboard."""
        if self.group is None:
            which, value = "group_key IS NULL AND mst_key = %s", self.mst_key
        else:
            which, value = "unit_key = %s", self._unit_key()
        found = self.run.db.look(
            f"SELECT * FROM cerebro.leaderboard WHERE run_id = %s AND {which}", self.run.run_id, value
        )
        if not found:
            raise CerebroError(f"run {self.run.run_id} has no config {self.mst_key}")
        return found[0]

    def _unit_key(self) -> int:
        """Return the number of the config's state."""
        if self.group is None:
            return self.mst_key
        return groups.unit(self.run, self.group, self.mst_key)["unit_key"]

    @property
    def params(self) -> dict[str, Any]:
        """The config's compile and fit parameters, as values."""
        texts = self.info()
        return self.run.db.look(
            "SELECT cerebro.read_params(%s, %s) AS params", texts["compile_params"], texts["fit_params"]
        )[0]["params"]

    def to_keras(self, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Return the trained model as a `keras.Model`, compiled, with the state of its optimizer.

        `custom_objects` has what stands here for registered functions, by their names: no source that comes
        from the server is executed.
        """
        architecture = self._architecture()
        query = "SELECT * FROM cerebro.config_state(%s, %s)"
        state = self.run.db.look(query, self.run.run_id, self._unit_key())
        return models.build(architecture, self.params, state, custom_objects or {})

    def save(self, path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write the trained model to a file: `.keras`, with its optimizer; or `.onnx`.

        If the model was trained on columns, what these became is written beside it, as `.features.json`.
        Whoever loads a `.keras` file with a registered layer, loss or metric needs the same `custom_objects`.
        """
        model = self.to_keras(custom_objects)
        return models.save(model, Path(path), self.run.specification())

    def predict(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """Predict rows in the server: a data frame, or an array with the shape of the features.

        `x` names the columns of the frame in the order of packing; it need not be given if the run knows
        them. Return a frame with the same index: the class and its probability, or the prediction.
        """
        self._refuse_group()
        return rows.predict(self, given, x)

    def probabilities(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """Return the probability of every class for such rows: a column for each class."""
        self._refuse_group()
        return rows.probabilities(self, given, x)

    def _refuse_group(self) -> None:
        """Refuse a run of groups, whose rows find their model by themselves."""
        if self.group is not None or self.run.info()["groups"]:
            raise CerebroError(
                "the server predicts rows of groups by the model of each row's group",
                hint="In SQL: cerebro.madlib_predict, or cerebro.predict with the row. Here: to_keras().",
                shell="In SQL: cerebro.madlib_predict, or cerebro.predict with the row.",
            )

    def features(self, x: Columns | None) -> list[str]:
        """Return the columns that hold the config's features."""
        summary = self.run.packed.summary()
        prepared = summary.get("feature_specification")
        if prepared and x is None:
            return [column["name"] for column in prepared["columns"]]
        wanted = x or self.run.packed.x
        if wanted is not None:
            return [wanted] if isinstance(wanted, str) else [n for item in wanted for n in _flat(item)]
        found = summary["independent_varname"]
        if found == ["independent_var"]:
            raise CerebroError(
                f"which columns make the vector that {self.run.packed.table} was packed with is not known",
                hint='Name them in the order of packing: x=["weight", "power"].',
                shell="Name them in the order of packing: --x weight,power.",
            )
        return found

    def written(self, x: Columns | None) -> str:
        """Return the columns of the features as the server reads them."""
        return names(x or self.run.packed.x or self.features(None))

    def _architecture(self) -> str:
        """Return the config's architecture, from the run's model table."""
        table = self.run.models()
        found = stored.architecture(self.run.db, table, self.mst_key)
        if found is None:
            raise CerebroError(
                f"{table} has no model of config {self.mst_key}",
                hint="run.leaderboard() shows what failed, run.decisions() what was stopped or deleted.",
                shell=f"cerebro leaderboard {self.run.run_id} shows its configs, and what failed.",
            )
        return stored.checked(self.run.db, found)


def _flat(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else list(item)
