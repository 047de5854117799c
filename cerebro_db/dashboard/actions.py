"""The actions of the dashboard on a run: the SQL of each, and the sentence that announces it."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import psycopg2
from sqlalchemy import Connection, Engine

from cerebro_db import stored
from cerebro_db.dashboard import views
from cerebro_db.statements import table_name

# How long to wait for the refusal of a resume, as a resume that is not refused lasts as long as the run.
REFUSAL_SECONDS = 3.0

# The range of the SQL type integer.
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1
_MOST_SHOWN = 50

# The kind and owner of a summary, and whether it is of several models; no row if there is no summary.
_SUMMARY = """
SELECT c.relkind::text AS kind, pg_get_userbyid(c.relowner) = current_user AS own,
    array_agg(a.attname::text) && '{model_selection_table}' AS several
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.oid = to_regclass(%(summary)s) GROUP BY c.oid, c.relkind, c.relowner
"""
_LEFT = """
SELECT coalesce(qualified_names ->> 'model_selection_table', model_selection_table) AS selection,
    metrics_compute_frequency AS every
"""
_LEFT_ONE = """
SELECT coalesce(qualified_names ->> 'model_arch_table', model_arch_table) AS architectures, model_id,
    compile_params, fit_params, metrics_compute_frequency AS every
"""
_GO_ON_ONE = (
    "SELECT cerebro.madlib_fit(%(source)s, %(model_table)s, %(architectures)s, %(model_id)s,"
    " %(compile_params)s, %(fit_params)s, %(epochs)s, validation_table => %(validation)s,"
    " metrics_compute_frequency => least(%(every)s, %(epochs)s), warm_start => TRUE, name => %(name)s,"
    " options => '{\"background\": true}')"
)

Row = Mapping[str, Any]


class UnknownAction(ValueError):
    """Raised if no action has this name, or if an argument of the action is missing or invalid."""


@dataclass(frozen=True)
class Action:
    """An action on a run. `says` returns the sentence that announces it, from run, config and arguments."""

    sql: str
    says: Callable[[Row, Row, Row], str]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


def _begun(run: Row) -> str:
    return f"{run['visits_done']} of {run['visits_total']} visits are committed"


def _pause(run: Row, _config: Row, _given: Row) -> str:
    return (
        f"Run {run['run_id']} begins nothing more until it is resumed. Visits that have begun are finished."
    )


def _resume(run: Row, _config: Row, _given: Row) -> str:
    if run["status"] == "paused":
        return f"Run {run['run_id']} goes on; {_begun(run)}."
    return (
        f"Run {run['run_id']} goes on from its committed visits, to the tables that it would have left"
        f" undisturbed ({run['model_table']} and what belongs to it); {_begun(run)}."
    )


def _stop(run: Row, _config: Row, _given: Row) -> str:
    return (
        f"Run {run['run_id']} ends, and ends well: {run['model_table']} gets what its {run['configs']}"
        f" configs have come to. {_begun(run).capitalize()}; visits that have begun are finished, no other is"
        " begun. It cannot go on afterwards, but a warm start from its tables can."
    )


def _go_on(run: Row, _config: Row, given: Row) -> str:
    what = f"every config of {given['selection']}" if "selection" in given else "the model"
    return (
        f"A new run trains {what} for {given['epochs']} more epochs, from where run {run['run_id']} has left"
        f" it. When it is over, what it leaves takes the place of {run['model_table']}."
    )


def _forget(run: Row, _config: Row, _given: Row) -> str:
    return (
        f"The states and log rows of run {run['run_id']} are removed: nothing can go on from them, and this"
        f" page shows the run no more. Its result tables ({run['model_table']} and what belongs to it) stay."
    )


def _add_table(run: Row, _config: Row, given: Row) -> str:
    return (
        f"Every config of the model selection table {given['model_selection_table']} comes into run"
        f" {run['run_id']}, under a new key, and trains for {run['epochs']} epochs."
    )


def _add_space(run: Row, _config: Row, given: Row) -> str:
    drawn = given.get("num_configs")
    which = "All combinations of the grid" if drawn is None else f"{drawn} configs drawn from the grid"
    return f"{which} come into run {run['run_id']}, under new keys, and train for {run['epochs']} epochs."


def _stop_config(run: Row, config: Row, _given: Row) -> str:
    whole = (config["visits_done"] or 0) // run["segments"]
    left = (
        f"its model is what epoch {whole} left" if whole else "it has finished no epoch, and so has no model"
    )
    return (
        f"Config {config['mst_key']} gets no further visits; {left}. It can be resumed while the run goes on."
    )


def _resume_config(_run: Row, config: Row, _given: Row) -> str:
    return f"Config {config['mst_key']} goes on to epoch {config['epochs']}."


def _delete_config(run: Row, config: Row, _given: Row) -> str:
    return (
        f"Config {config['mst_key']} gets no further visits and is left out of {run['model_table']} and the"
        " other result tables. This cannot be undone."
    )


def _set_epochs(_run: Row, config: Row, given: Row) -> str:
    return f"Config {config['mst_key']} trains for {given['epochs']} epochs in all, not {config['epochs']}."


def _clone_config(run: Row, config: Row, given: Row) -> str:
    state = (
        "with the state that it has after its last whole epoch"
        if given["with_state"]
        else "from first weights of its own"
    )
    return (
        f"A new config comes into run {run['run_id']} that has the architecture of config"
        f" {config['mst_key']} and the parameters above, {state}."
    )


ACTIONS = {
    "pause": Action("SELECT cerebro.pause(%(run)s)", _pause),
    "resume": Action("SELECT cerebro.resume(%(run)s)", _resume),
    "stop": Action("SELECT cerebro.stop(%(run)s)", _stop),
    "go_on": Action(
        "SELECT cerebro.madlib_fit_multiple_model(%(source)s, %(model_table)s, %(selection)s, %(epochs)s,"
        " validation_table => %(validation)s, metrics_compute_frequency => least(%(every)s, %(epochs)s),"
        " warm_start => TRUE, name => %(name)s, options => '{\"background\": true}')",
        _go_on,
        ("epochs",),
    ),
    "forget": Action("SELECT cerebro.forget(%(run)s)", _forget),
    "add_table": Action(
        "SELECT * FROM cerebro.add_configs(%(run)s, %(model_selection_table)s)",
        _add_table,
        ("model_selection_table",),
    ),
    "add_space": Action(
        "SELECT * FROM cerebro.add_configs(%(run)s, %(model_id_list)s::integer[], %(compile_params_grid)s,"
        " %(fit_params_grid)s, %(search_type)s, %(num_configs)s, %(random_state)s)",
        _add_space,
        ("model_id_list", "compile_params_grid", "fit_params_grid", "search_type"),
        ("num_configs", "random_state"),
    ),
    "stop_config": Action("SELECT cerebro.stop_config(%(run)s, %(config)s)", _stop_config, ("config",)),
    "resume_config": Action("SELECT cerebro.resume_config(%(run)s, %(config)s)", _resume_config, ("config",)),
    "delete_config": Action("SELECT cerebro.delete_config(%(run)s, %(config)s)", _delete_config, ("config",)),
    "set_epochs": Action(
        "SELECT cerebro.set_epochs(%(run)s, %(config)s, %(epochs)s)", _set_epochs, ("config", "epochs")
    ),
    "clone_config": Action(
        "SELECT cerebro.clone_config(%(run)s, %(config)s, %(compile_params)s, %(fit_params)s,"
        " %(with_state)s)",
        _clone_config,
        ("config", "compile_params", "fit_params", "with_state"),
    ),
}


def _is_integer(value: object, lowest: int = _LOWEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= _HIGHEST


def _is_positive(value: object) -> bool:
    return _is_integer(value, lowest=1)


def _are_integers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_integer, cast("list[object]", value)))


_POSITIVE = (_is_positive, f"a whole number from 1 to {_HIGHEST}")
_TEXT = (lambda value: isinstance(value, str), "text")
# What a value must be, by its name; the others are text.
_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "config": _POSITIVE,
    "epochs": _POSITIVE,
    "num_configs": _POSITIVE,
    "random_state": (_is_integer, f"a whole number from {_LOWEST} to {_HIGHEST}"),
    "model_id_list": (_are_integers, f"a list of whole numbers from {_LOWEST} to {_HIGHEST}"),
    "with_state": (lambda value: isinstance(value, bool), "true or false"),
}


class Desk:
    """An object that carries out the actions of viewers, with the rights of its engine's role.

    It runs one action at a time over one connection: Keras checks the parameters of a cloned config in this
    session, and each check after the first is quick there.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._one_at_a_time = threading.Lock()
        self._resumed: dict[int, Future[None]] = {}

    def preview(self, name: str, run_id: int, given: Row) -> dict[str, Any]:
        """Return the sentence that announces an action, and its SQL; do not carry out the action."""
        action, values = _checked(name, run_id, given)
        with self._engine.connect() as connection:
            run = _only(views.rows(connection, views.RUN, run=run_id), f"you have no run {run_id}")
            sql = action.sql
            if name == "go_on":
                sql, values = _warm_start(connection, run, values)
            config: Row = {}
            if "config" in values:
                configs = views.rows(connection, views.CONFIGS, run=run_id)
                found = [row for row in configs if row["mst_key"] == values["config"]]
                config = _only(found, f"run {run_id} has no config {values['config']}")
            return {"says": action.says(run, config, values), "sql": _text(connection, sql, values)}

    def act(self, name: str, run_id: int, given: Row) -> dict[str, Any]:
        """Carry out an action, and return the values that its SQL function returned."""
        action, values = _checked(name, run_id, given)
        if name == "resume":
            return self._resume(run_id)
        with self._one_at_a_time, self._engine.connect() as connection:
            sql = action.sql
            if name == "go_on":
                run = _only(views.rows(connection, views.RUN, run=run_id), f"you have no run {run_id}")
                sql, values = _warm_start(connection, run, values)
                # The call finds tables by the viewer's own search_path.
                connection.rollback()
            results = [row[0] for row in connection.exec_driver_sql(sql, values)]
            connection.commit()
        return {"results": [value for value in results if value not in (None, "")]}

    def _resume(self, run_id: int) -> dict[str, Any]:
        """Resume a run in a session of its own, which an interrupted run occupies until it is over."""
        going = self._resumed.get(run_id)
        if going is None or going.done():
            going = self._resumed[run_id] = Future()
            threading.Thread(target=self._carry_on, args=(run_id, going), daemon=True).start()
        with suppress(NotDone):
            going.result(timeout=REFUSAL_SECONDS)
        return {"results": []}

    def _carry_on(self, run_id: int, going: Future[None]) -> None:
        try:
            with self._engine.connect() as connection:
                # With no notice to send, no COMMIT to wait for and no look at who is there, the server's side
                # goes on to its end also when this process is gone.
                alone = connection.execution_options(isolation_level="AUTOCOMMIT")
                # It may last for hours, in which other actions need the places of the pool.
                alone.detach()
                alone.exec_driver_sql("SET client_min_messages = error")
                alone.exec_driver_sql(_UNSEEN)
                alone.exec_driver_sql(ACTIONS["resume"].sql, {"run": run_id})
            going.set_result(None)
        except Exception as error:  # whatever it is, the one who asked is told
            going.set_exception(error)


# The setting is new in PostgreSQL 14.
_UNSEEN = (
    "SELECT pg_catalog.set_config(name, '0', FALSE) FROM pg_catalog.pg_settings"
    " WHERE name = 'client_connection_check_interval'"
)


def _checked(name: str, run_id: int, given: Row) -> tuple[Action, dict[str, Any]]:
    if name not in ACTIONS:
        raise UnknownAction(f"nothing is called {name!r}; there are {', '.join(ACTIONS)}")
    action = ACTIONS[name]
    if not all(_can_be_sent(value) for pair in given.items() for value in pair):
        raise UnknownAction(f"{name} takes numbers, text that the database can hold, and lists of these")
    # A config may have no fit parameters of its own.
    missing = [
        need
        for need in action.needs
        if given.get(need) is None or (given[need] == "" and need != "fit_params")
    ]
    if missing:
        raise UnknownAction(f"{name} needs {', '.join(missing)}")
    unknown = sorted(set(given) - {*action.needs, *action.may})
    if unknown:
        raise UnknownAction(f"{name} knows nothing of {', '.join(unknown)}")
    for what, value in given.items():
        fits, kind = _KINDS.get(what, _TEXT)
        if not fits(value) and not (value is None and what in action.may):
            raise UnknownAction(f"{what} is {json.dumps(value)[:_MOST_SHOWN]}, and must be {kind}")
    return action, {"run": run_id, **dict.fromkeys(action.may), **given}


def _warm_start(connection: Connection, run: Row, values: Row) -> tuple[str, dict[str, Any]]:
    """Return the statement and the values for a run that continues from the models of another run.

    Raise UnknownAction if the other run has left no model table to continue from.
    """
    none = UnknownAction(f"run {run['run_id']} has left no table of models that could be trained on")
    if not run["model_table"]:
        raise none
    summary = table_name(run["model_table"], "_summary")
    (is_there,) = views.rows(connection, _SUMMARY, summary=summary) or [None]
    if is_there is None:
        raise none
    stored.check_kind(is_there, summary)
    # Do not run row security policies, which are code of the table's owner.
    connection.exec_driver_sql("SET LOCAL row_security = off")
    several = is_there["several"]
    # The search_path begins with pg_catalog, and the table's name has its schema.
    query = f"{_LEFT if several else _LEFT_ONE} FROM {summary.replace('%', '%%')} WHERE run_id = %(run)s"
    left = _only(views.rows(connection, query, run=run["run_id"]), str(none))
    tables = {"source": run["source_table"], "model_table": run["model_table"]}
    more = {**left, **tables, "validation": run["validation_table"], "name": run["name"]}
    return ACTIONS["go_on"].sql if several else _GO_ON_ONE, {**values, **more}


def _can_be_sent(value: object) -> bool:
    """Return whether the database can hold a value: text without NUL or surrogates, no infinite number."""
    if isinstance(value, list):
        return all(_can_be_sent(item) and not isinstance(item, list) for item in cast("list[Any]", value))
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
    return value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _only(found: list[dict[str, Any]], otherwise: str) -> dict[str, Any]:
    if not found:
        raise UnknownAction(otherwise)
    return found[0]


def _text(connection: Connection, sql: str, values: Row) -> str:
    """Return the statement with its values in it, as psycopg2 sends it."""
    cursor = connection.connection.cursor()
    try:
        text: bytes = cursor.mogrify(sql, values)  # pyright: ignore[reportAttributeAccessIssue]
        return text.decode(psycopg2.extensions.encodings[connection.connection.encoding])  # pyright: ignore
    finally:
        cursor.close()
