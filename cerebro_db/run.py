"""Runs and their configs: classes to watch and steer a run, read its results, and use its models."""

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
        """Return the name of the run's model table; raise CerebroError if the run's models are not in it."""
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
        """Return the feature specification of the run with the class values; None if the model table has
        none."""
        return stored.specification(self.db, self.info()["model_table"])

    @property
    def status(self) -> str:
        """The status of the run: running, paused, finished, failed or interrupted."""
        return self.info()["status"]

    @property
    def packed(self) -> Packed:
        """The packed table that the run trains on."""
        if self._packed is not None:
            return self._packed
        name = self.info()["source_table"]
        stored.table(self.db, table_name(name, "_summary"))
        return Packed(self.db, stored.table(self.db, name))

    def leaderboard(self) -> pandas.DataFrame:
        """Return the configs, the best first; in a run of groups, sorted by group and then the best first."""
        found = frames.frame(
            groups.split(
                self.rows(
                    "SELECT * FROM cerebro.leaderboard WHERE run_id = %s ORDER BY group_key, rank, mst_key"
                )
            )
        )
        # A failed config has no rank, and pandas' plain integers have no missing values.
        return found.astype({"rank": "Int64"})

    def groups(self) -> pandas.DataFrame:
        """Return the groups of a run of groups, each with its best config or the reason why it has none."""
        found = frames.frame(groups.listed(self))
        # Models of all rows are of no group, and groups that are left out have no config.
        whole = ("rows", "segments", "mst_key", "unit_key", "epoch", "best_epoch")
        return found.astype({name: "Int64" for name in whole if name in found.columns})

    def metrics(self) -> pandas.DataFrame:
        """Return the metrics of each config after each epoch with an evaluation."""
        return self._frame(
            "SELECT * FROM cerebro.metrics WHERE run_id = %s ORDER BY mst_key, epoch, dataset, metric"
        )

    def timeline(self) -> pandas.DataFrame:
        """Return the visits of the run: which config was trained on which segment, and when."""
        return self._frame("SELECT * FROM cerebro.visits WHERE run_id = %s ORDER BY started_at, mst_key")

    def progress(self) -> pandas.DataFrame:
        """Return the progress of each config: its status, epochs and visits."""
        return self._frame("SELECT * FROM cerebro.progress WHERE run_id = %s ORDER BY mst_key")

    def decisions(self) -> pandas.DataFrame:
        """Return the decisions that were made during the run, such as to stop a config, with reasons."""
        return self._frame("SELECT * FROM cerebro.decisions WHERE run_id = %s ORDER BY number")

    def advise(self) -> pandas.DataFrame:
        """Return what is wrong with the losses of the run, and what to try next; no rows if all is well."""
        return frames.frame(judged.advise(self.db, self.run_id), judged.ADVICE)

    def best(self, group: Mapping[str, Any] | None = None) -> Config:
        """Return the best config of the run or, in a run of groups, of `group`, for example `{"shop": 3}`."""
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
        """Return the config with this key; in a run of groups, `group` says which group it was trained on."""
        return Config(self, mst_key, group)

    def save_groups(self, folder: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write each group's best model as a `.keras` file; return the path of their list, `groups.csv`."""
        return groups.save(self, Path(folder), custom_objects)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the run is over and its tables exist, at most `timeout` seconds; return its status.

        The client asks again and again, so that no session of the server waits.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = LOOK_SECONDS[0]
        while (status := self._waited()) in GOING and (end is None or time.monotonic() < end):
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, LOOK_SECONDS[1])
        return status

    def watch(self, file: TextIO | None = None) -> Run:
        """Show the run's progress until it is over: bars in a terminal or a notebook, else some lines.

        The first Ctrl-C asks the server to stop the run; the second one only ends the watching.
        """
        shown: TextIO = sys.stdout if file is None else file
        watching.watch(self, watching.screen(shown), lambda: self._waited() in GOING, self.stop)
        return self

    def check_finished(self) -> None:
        """Raise CerebroError unless the status of the run is finished."""
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
        """Write a report of the run as one self-contained HTML file, and return its path.

        If `rows` names a table or view that has the columns and the label, the report also says how much each
        column is worth to the best config.
        """
        from cerebro_db import report

        return report.write(self, Path(path), rows)

    def to_tensorboard(self, folder: str | Path) -> Path:
        """Write the metrics as TensorBoard event files, in a subfolder of `folder` for each config."""
        from cerebro_db import exports

        return exports.to_tensorboard(self, Path(folder))

    def to_mlflow(self, tracking_uri: str, experiment: str | None = None) -> list[str]:
        """Create an MLflow run for each config in a tracking store of MLflow; return the MLflow run IDs."""
        from cerebro_db import exports

        return exports.to_mlflow(self, tracking_uri, experiment)

    def _waited(self) -> str:
        """Return the run's status, which shows its end only after its last transaction has committed."""
        return self.db.rows(call("wait", self.run_id, "0") + " AS status")[0]["status"]

    def stop(self, mst_key: int | None = None, *, force: bool = False) -> None:
        """End the run early and in good order, or stop only the config `mst_key`.

        The result tables have the models that the configs have reached. With `force`, the sessions of the run
        end at once; the run is then interrupted, and can be resumed.
        """
        if mst_key is not None:
            self._ask("stop_config", mst_key)
        elif force:
            self._ask("stop", True)
        else:
            self._ask("stop")

    def pause(self) -> None:
        """Pause the run: no visit begins until the run is resumed."""
        self._ask("pause")

    def resume(self, mst_key: int | None = None) -> None:
        """Resume a paused run or a stopped config; resume an interrupted run, and wait until it is over."""
        self._ask("resume") if mst_key is None else self._ask("resume_config", mst_key)

    def delete(self, mst_key: int) -> None:
        """Remove a config from the rest of the run, and from its result tables."""
        self._ask("delete_config", mst_key)

    def set_epochs(self, mst_key: int, epochs: int) -> None:
        """Set the total number of epochs that a config trains."""
        self._ask("set_epochs", mst_key, epochs)

    def clone(
        self,
        mst_key: int,
        compile_params: str | None = None,
        fit_params: str | None = None,
        *,
        with_state: bool = True,
    ) -> int:
        """Add a copy of a config, with other parameters if they are given; return the copy's key.

        With `with_state`, the copy starts from the config's state after its last whole epoch.
        """
        return self._ask("clone_config", mst_key, compile_params, fit_params, with_state)[0]["answer"]

    def add(
        self,
        grid: Mapping[str, Any] | str,
        *,
        configs: int | None = None,
        seed: int | None = None,
    ) -> list[int]:
        """Add the configs of a grid, or of a model selection table, to the run; return their keys.

        `configs` is the number of configs to draw from the grid at random; without it, all are added.
        """
        if isinstance(grid, str):
            return [row["answer"] for row in self._ask("add_configs", grid)]
        space = dict(grid)
        models = self.db.architectures.chosen(space.pop("model", None))
        how = () if configs is None else ("random", configs, seed)
        return [row["answer"] for row in self._ask("add_configs", models, *read_grid(space).texts(), *how)]

    def explain(self) -> Plan:
        """Return the plan of the run: the estimates beside what the run has taken."""
        return plan.explain(self.db, lambda form: call("explain_run", self.run_id, format=form))

    def forget(self) -> None:
        """Remove the states and log rows of the run; its result tables stay."""
        self._ask("forget")

    def _ask(self, function: str, *values: object) -> list[Row]:
        return self.db.rows(f"{call(function, self.run_id, *values)} AS answer")

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query whose only parameter (`%s`) is the number of the run."""
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
    """A config of a run: an architecture with compile and fit parameters."""

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
        """Return the key of the config's state: its `mst_key`, or, for a group, its `unit_key`."""
        if self.group is None:
            return self.mst_key
        return groups.unit(self.run, self.group, self.mst_key)["unit_key"]

    @property
    def params(self) -> dict[str, Any]:
        """The compile and fit parameters of the config, as a dict."""
        texts = self.info()
        return self.run.db.look(
            "SELECT cerebro.read_params(%s, %s) AS params", texts["compile_params"], texts["fit_params"]
        )[0]["params"]

    def to_keras(self, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Return the trained model as a compiled `keras.Model`, with the state of its optimizer.

        `custom_objects` maps the names of registered functions to the objects to use for them, because source
        code from the server is never executed.
        """
        architecture = self._architecture()
        query = "SELECT * FROM cerebro.config_state(%s, %s)"
        state = self.run.db.look(query, self.run.run_id, self._unit_key())
        return models.build(architecture, self.params, state, custom_objects or {})

    def save(self, path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write the trained model to a `.keras` file, with its optimizer, or to an `.onnx` file.

        If columns were packed as they are, a `.features.json` file beside it says what each column became. To
        load a `.keras` file with a registered layer, loss or metric, use the same `custom_objects`.
        """
        model = self.to_keras(custom_objects)
        return models.save(model, Path(path), self.run.specification())

    def predict(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """Predict rows in the server: a data frame, or an array with the shape of the features.

        `x` names the columns of the frame in the order of packing; it may be left out if the run knows them.
        Return a frame with the same index, with class and probability, or with the predicted number.
        """
        self._refuse_group()
        return rows.predict(self, given, x)

    def probabilities(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """Return the probability of every class for the rows in `given`, with a column for each class."""
        self._refuse_group()
        return rows.probabilities(self, given, x)

    def _refuse_group(self) -> None:
        """Raise CerebroError in a run of groups, because each row needs the model of its own group."""
        if self.group is not None or self.run.info()["groups"]:
            raise CerebroError(
                "the server predicts rows of groups by the model of each row's group",
                hint="In SQL: cerebro.madlib_predict, or cerebro.predict with the row. Here: to_keras().",
                shell="In SQL: cerebro.madlib_predict, or cerebro.predict with the row.",
            )

    def features(self, x: Columns | None) -> list[str]:
        """Return the names of the columns that hold the config's features: those of `x`, if it is given."""
        summary = self.run.packed.summary()
        prepared = summary.get("feature_specification")
        if prepared and x is None:
            # A number that is a category as well is there twice.
            return list(dict.fromkeys(column["name"] for column in prepared["columns"]))
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
        """Return the feature columns as SQL text, in the form that the server's functions take."""
        return names(x or self.run.packed.x or self.features(None))

    def _architecture(self) -> str:
        """Return the config's architecture from the run's model table, as the server has checked it."""
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
