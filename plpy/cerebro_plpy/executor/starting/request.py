"""Check and resolve a call of the fit functions before any work is done."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cerebro_plpy.commands import Engine
from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    INSUFFICIENT_PRIVILEGE,
    NULL_NOT_ALLOWED,
    WRONG_OBJECT,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.logical import class_weights
from cerebro_plpy.logical import options as parse
from cerebro_plpy.logical.budget import Limits, check_budget
from cerebro_plpy.logical.metrics import direction
from cerebro_plpy.logical.search.build import EARLY_STOPPING
from cerebro_plpy.madlib.callbacks import left_out
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.packing import belonging
from cerebro_plpy.planner.choosing import Choosable
from cerebro_plpy.store import session
from cerebro_plpy.store.models import models, objects
from cerebro_plpy.store.names import Table, resolve_table, with_suffix
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.groups import Groups
from cerebro_plpy.store.runs import runs
from cerebro_plpy.topology.choose import RowsToHand

MAX_PARAMETERS = 2_000_000_000
# The engines for which the planner has constants and which the lock file has.
CHOOSABLE = ("tensorflow", "jax")


def engines_for(limits: Limits) -> tuple[str, ...]:
    """Return the engines among which the planner may choose: only JAX if nets may be cut into shards."""
    return session.engines_here(*(CHOOSABLE if limits.device_memory_mb is None else ("jax",)))


OFF = "off"
LONGEST_NAME, LONGEST_DESCRIPTION = 200, 10_000


@dataclass(frozen=True)
class Data:
    """A packed table and its summary."""

    table: Table
    summary: packed.PackedSummary


@dataclass(frozen=True)
class Chosen:
    """A config with its parameters, and the rows that it trains on: all, all folds but one, or one group."""

    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    batch_size: int
    passes: int
    # In a cross-validated run: the config, and the fold that it leaves out; none for the model of all rows.
    # In a run of groups: the group.
    config_key: int | None = None
    fold: int | None = None
    group_id: int | None = None

    @property
    def key(self) -> int:
        """The `mst_key` by which the user knows the config, also if it is repeated for folds or groups."""
        return self.mst_key if self.config_key is None else self.config_key


@dataclass(frozen=True)
class Engines:
    """The engine of a run, other engines by `model_id`, and threads, memory and limits of the sessions."""

    backend: str
    threads: int
    use_gpus: bool
    memory_mb: int
    max_parameters: int
    by_model: Mapping[int, str] = field(default_factory=dict)
    cache_folder: str | None = None
    # Whether neither the call nor a setting names the engine.
    is_default: bool = False

    def start(self, backend: str, use_gpus: bool | Sequence[Sequence[Any]]) -> Engine:
        """Return the description with which a session starts the engine named `backend`."""
        return Engine(backend, self.threads, use_gpus, cache_folder=self.cache_folder)

    def find_engine(self, model_id: int) -> str:
        return self.by_model.get(model_id, self.backend)

    def among(self, model_ids: Iterable[int]) -> list[str]:
        """Return the names of the engines that train these architectures, sorted."""
        return sorted({self.find_engine(model_id) for model_id in model_ids})


@dataclass(frozen=True)
class Request:
    source: Data
    validation: Data | None
    arch_table: Table
    architectures: Sequence[models.Architecture]
    configs: Sequence[Chosen]
    epochs: int
    metrics_frequency: int
    seed: int
    engines: Engines
    name: str | None
    description: str | None
    selection_table: str | None = None
    warm_start: bool = False
    # How a search procedure is made (see logical/search/build), with "by_loss" if it is to be told losses.
    search: Mapping[str, Any] | None = None
    limits: Limits = Limits()
    object_table: str | None = None
    # The choices that the planner is to make before the run begins.
    choosable: Choosable | None = None
    # How the call wrote the names of its tables, by the summary's column.
    spelled: Mapping[str, str] = field(default_factory=dict)
    # Set if the source was packed in groups.
    groups: Groups | None = None
    # The number of rows of each class in groups, by output, as JSON, if configs balance their classes.
    class_counts: Mapping[int, str] = field(default_factory=dict)

    @property
    def segments(self) -> int:
        return self.source.summary.segments

    @property
    def backends(self) -> list[str]:
        """The engines that train the configs; each segment has a session for each engine."""
        models = {c.model_id for c in self.configs} or {a.model_id for a in self.architectures}
        return self.engines.among(models) or [self.engines.backend]

    def on(self, engines: Engines, frequency: int | None = None) -> Request:
        """Return the request with other engines and, if given, another frequency of evaluation."""
        search = self.search
        if search is not None and "backend" in search:
            by_model = {str(model_id): name for model_id, name in engines.by_model.items()}
            search = {**search, "backend": engines.backend, **({"backends": by_model} if by_model else {})}
        often = frequency or self.metrics_frequency
        return replace(self, engines=engines, search=search, metrics_frequency=often)

    # Cached, since it is asked once for every config of thousands.
    @cached_property
    def cross_validates(self) -> bool:
        return any(config.fold is not None for config in self.configs)

    @property
    def deciding_rows(self) -> str:
        """The rows on which configs are compared: "training" or "validation"."""
        return "training" if self.validation is None and not self.cross_validates else "validation"

    @property
    def tables(self) -> list[int]:
        """The oids of the tables that segment sessions read."""
        data = [self.source, self.validation] if self.validation else [self.source]
        return [d.table.oid for d in data] + [self.arch_table.oid]

    @property
    def handed_rows(self) -> RowsToHand | None:
        """The number of rows to hand to sessions in a file; None if the sessions also need stored weights."""
        if any(a.has_weights for a in self.architectures):
            return None
        # A search has no configs yet; some methods say how many they begin.
        of_search = (self.search or {}).get("arguments", {}).get("params", {})
        configs = len(self.configs) or of_search.get("num_configs", 0)
        return RowsToHand(self.source.summary.total_rows, self.epochs * configs)


def data(db: Database, name: str | None, what: str) -> Data:
    table = resolve_table(db, name, what)
    # A user's code behind the tables, such as a view's functions, runs with the caller's rights only.
    role = session.current_user(db)
    found = db.as_caller(role, packed.summary, db, table.schema, table.name)
    if not models.has_storage(db, table):
        raise CerebroError(
            f"{what} {table.quoted} is a view",
            hint="Name the packed table itself.",
            sqlstate=WRONG_OBJECT,
        )
    db.server.check_lies_as_packed(table, what)
    return Data(table, found)


def training_and_validation(
    db: Database, source: str | None, validation: str | None
) -> tuple[Data, Data | None]:
    """Return the source and the validation table; raise an error if they do not belong together."""
    training = data(db, source, "source table")
    if validation is None or not validation.strip():
        return training, None
    other = data(db, validation, "validation table")
    belonging.check(training.table.quoted, training.summary, other.table.quoted, other.summary)
    return training, other


def choose(rows: Sequence[models.Selected]) -> list[Chosen]:
    """Return the configs with their parameters parsed; errors name the config's key."""
    seen: set[int] = set()
    for row in rows:
        if None in (row.mst_key, row.model_id, row.compile_params, row.fit_params):
            raise CerebroError(
                f"config {row.mst_key} has a NULL in the model selection table", sqlstate=NULL_NOT_ALLOWED
            )
        if row.mst_key < 0:
            raise CerebroError(f"mst_key {row.mst_key} in the model selection table is negative")
        if row.mst_key in seen:
            raise CerebroError(f"mst_key {row.mst_key} appears more than once in the model selection table")
        seen.add(row.mst_key)
    return [_chosen(row) for row in rows]


def of_group(config: Chosen, mst_key: int, group_id: int) -> Chosen:
    """Return a copy of the config for one group, under an `mst_key` of its own."""
    return replace(config, mst_key=mst_key, config_key=config.mst_key, group_id=group_id)


def of_run(rows: Sequence[runs.ConfigRow]) -> list[Chosen]:
    """Return the configs of a run from their stored rows."""
    # Each config is parsed once for all of its folds or groups.
    first = {
        row.key: models.Selected(row.mst_key, row.model_id, row.compile_params, row.fit_params)
        for row in rows
    }
    known = dict(zip(first, choose(list(first.values())), strict=True))
    return [
        replace(
            known[row.key],
            mst_key=row.mst_key,
            config_key=row.config_key,
            fold=row.fold,
            group_id=row.group_id,
        )
        for row in rows
    ]


def tell_of_another_model(db: Database, config: Chosen, before: int | None) -> None:
    """Send a notice if a config starts anew because its architecture is not that of the earlier run."""
    if before is not None and before != config.model_id:
        db.notice(
            f"config {config.mst_key} starts anew: its model_id is {config.model_id}, in the earlier run it"
            f" was {before}"
        )


def tell_what_is_left_out(db: Database, fit_params: Iterable[str]) -> None:
    """Send a notice that says which fit parameters have no effect here, and what replaces them."""
    lines = left_out(fit_params)
    if lines:
        db.notice("of the fit parameters " + "; ".join(lines))


@contextmanager
def _of_config(mst_key: int) -> Iterator[None]:
    """Put the config's key before the message of each error that is raised in the `with` block."""
    try:
        yield
    except CerebroError as error:
        raise CerebroError(
            f"config {mst_key}: {error.message}",
            detail=error.detail,
            hint=error.hint,
            sqlstate=error.sqlstate,
        ) from None


def _chosen(row: models.Selected) -> Chosen:
    with _of_config(row.mst_key):
        parse_compile(row.compile_params)
        fit = parse_fit(row.fit_params)
    return Chosen(
        mst_key=row.mst_key,
        model_id=row.model_id,
        compile_params=row.compile_params,
        fit_params=row.fit_params,
        batch_size=fit.batch_size,
        passes=fit.epochs,
    )


def budget(
    num_iterations: int | None, frequency: int | None, given: parse.FitOptions | None = None
) -> tuple[int, int]:
    """Return the number of epochs, and every how many epochs to evaluate (1 if an option needs that)."""
    if frequency is None and given is not None and given.measures_each_epoch:
        frequency = 1
    return check_budget(num_iterations, frequency)


def early_stopping(
    given: parse.FitOptions, configs: Sequence[Chosen], epochs: int, frequency: int
) -> Mapping[str, Any] | None:
    """Return the procedure that stops configs of a fit early, in stored form; None if no option needs it."""
    # A config counts once, on however many folds or groups it trains.
    count = len({config.key for config in configs})
    if given.max_configs is not None and count > given.max_configs:
        raise CerebroError(f"the run has {count} configs, and max_configs is {given.max_configs}")
    if given.patience is None and given.target is None:
        return None
    target = given.target
    if target is not None and given.compare_by != parse.LOSS:
        ways = {direction(parse_compile(config.compile_params)) for config in configs}
        if len(ways) > 1:
            raise CerebroError(
                "target cannot be compared: the first metric of some configs is better when it is higher, of"
                " others when it is lower",
                hint="Give all configs the same first metric.",
            )
        target = -target if ways == {"max"} else target
    arguments = {
        "mst_keys": [config.mst_key for config in configs],
        "epochs": epochs,
        "frequency": frequency,
        "patience": given.patience,
        "min_delta": given.min_delta or 0.0,
        "target": target,
    }
    return {"method": EARLY_STOPPING, "arguments": arguments}


def engines(
    db: Database,
    given: parse.FitOptions,
    use_gpus: bool,
    segments: int,
    usual_backend: str | None = None,
    at_a_time: int | None = None,
) -> Engines:
    """Return the engines, threads and memory that the call names, else those of the settings, else defaults.

    `at_a_time` is the number of configs that train at once, if known to be below the number of segments.
    """
    fixed = session.settings(db)
    if given.threads == parse.AUTO:
        _check_chooses(fixed.get("choosing"), "threads")
    if fixed.get("choosing") == OFF:
        at_a_time = None
    named = given.backend if isinstance(given.backend, str) and given.backend != parse.AUTO else None
    wanted = named or usual_backend or fixed.get("backend")
    by_model = given.backend if isinstance(given.backend, Mapping) else {}
    return Engines(
        backend=wanted or session.default_backend(),
        threads=_threads(db, given.threads, segments, at_a_time),
        use_gpus=use_gpus,
        memory_mb=given.memory_mb or int(fixed.get("memory_mb") or _memory_mb(segments)),
        max_parameters=int(fixed.get("max_parameters") or MAX_PARAMETERS),
        by_model=by_model,
        cache_folder=fixed.get(session.CACHE_FOLDER),
        is_default=wanted is None and given.backend is None,
    )


def _check_chooses(setting: str | None, option: str) -> None:
    if setting == OFF:
        raise CerebroError(
            f"option {option} leaves choosing to the planner, and an administrator has switched that off",
            hint="Name the backend and the threads.",
            sqlstate=WRONG_STATE,
        )


def choosable(
    db: Database, given: parse.FitOptions, segments: int, configs: int, frequency: int | None
) -> Choosable | None:
    """Return the choices left to the planner, None if none is; raise an error if a setting forbids them."""
    if given.backend != parse.AUTO and given.plan is None:
        return None
    _check_chooses(session.setting(db, "choosing"), "backend" if given.plan is None else "plan")
    fixed = session.settings(db)
    open_backends = given.backend == parse.AUTO or (given.backend is None and "backend" not in fixed)
    usual = _threads(db, given.threads, segments, None)
    threads = [usual]
    if given.threads == parse.AUTO or (given.threads is None and "threads" not in fixed and given.plan):
        most = db.server.usual_threads(segments, configs or None)
        threads = [most] if given.threads == parse.AUTO else sorted({usual, most})
    return Choosable(
        backends=engines_for(given.limits) if open_backends else (),
        threads=threads,
        measures=given.plan is not None and frequency is None,
        aim=given.plan,
    )


def _threads(db: Database, given: int | str | None, segments: int, at_a_time: int | None) -> int:
    """Return the number of threads of each session, from the call, the settings or the number of cores.

    The number changes the last bits of results, and these should not depend on how many configs train at
    once. So `at_a_time` counts only if the call says "auto", or in a run of a single config.
    """
    if isinstance(given, int):
        return given
    fixed = session.setting(db, "threads")
    if given is None and fixed is not None:
        return int(fixed)
    return db.server.usual_threads(segments, at_a_time)


def _memory_mb(segments: int) -> int:
    """Return the MB of memory for a segment's rows; all segments share a quarter of the machine's memory."""
    return max(64, machine_memory() // 2**22 // segments)


def machine_memory() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def seed(given: parse.FitOptions) -> int:
    """Return the seed of the call, or draw one; it is stored with the run so that the run can be repeated."""
    return given.seed if given.seed is not None else secrets.randbits(31)


def object_table(db: Database, name: str | None) -> str | None:
    """Return the quoted name of MADlib's object table after a check, or None if the call names none.

    The name is only stored: registered functions alone decide which function a config means.
    """
    if name is None or not name.strip():
        return None
    table = resolve_table(db, name, "object table")
    objects.check(db, table)
    return table.quoted


def check_class_weights(request: Request, configs: Sequence[Chosen]) -> None:
    """Raise an error for class weights of unknown outputs, or balanced weights without class counts."""
    summary = request.source.summary
    counts = dict(zip(summary.dependent_varname, summary.class_counts, strict=True))
    for config in configs:
        with _of_config(config.mst_key):
            class_weights.settle(parse_fit(config.fit_params), counts)


def check_about(name: str | None, description: str | None) -> None:
    """Raise an error if the name or the description is too long for views and pages."""
    for what, text, most in (("name", name, LONGEST_NAME), ("description", description, LONGEST_DESCRIPTION)):
        if text is not None and len(text) > most:
            raise CerebroError(f"{what} has {len(text)} characters", detail=f"It may have at most {most}.")


@dataclass(frozen=True)
class Selection:
    """The configs of a model selection table with the tables that its summary names; or a single config."""

    table: Table | None
    arch_table: Table
    arch_spelled: str
    object_table: str | None
    configs: list[Chosen]


def selected(db: Database, name: str | None) -> Selection:
    """Return the configs of a model selection table, with the tables that its summary names."""
    try:
        table = resolve_table(db, name, "model selection table")
        summary = resolve_table(db, _with_suffix(table, "_summary"), "model selection summary")
    except CerebroError as error:
        raise CerebroError(
            error.message,
            detail=error.detail,
            hint="Please ensure that the model selection table is created by load_model_selection_table() or"
            " generate_model_configs().",
            sqlstate=error.sqlstate,
        ) from None
    named = models.selection_tables(db, summary)
    arch_table = resolve_table(db, named.arch_table, "model architecture table")
    configs = choose(models.selection(db, table))
    return Selection(table, arch_table, named.arch_spelled, named.object_table, configs)


def spelled(model: str | None, **others: str | None) -> Mapping[str, str]:
    """Return the names of the call's tables as the user wrote them, without blank names."""
    names = {"model": model, "model_info": with_suffix(model or "", "_info"), **others}
    return {column: name for column, name in names.items() if name is not None and name.strip()}


def _with_suffix(table: Table, suffix: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.name + suffix))


def owned(db: Database, tables: Sequence[Table]) -> None:
    """Raise an error if the caller does not own the tables, which a warm start is going to change."""
    for table in tables:
        if not models.owns(db, table):
            raise CerebroError(f"must be owner of table {table.quoted}", sqlstate=INSUFFICIENT_PRIVILEGE)
