"""cerebro.train: turn a table into a leaderboard of models in one call.

It makes calls that users can also make themselves, and shows them in a notice.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.executor.calls import experience, nets, train_ensemble
from cerebro_plpy.executor.calls.automl import AutomlCall
from cerebro_plpy.executor.calls.train_order import LEAST_SECONDS, TrainOrder, write_statement
from cerebro_plpy.executor.ensembles import ensemble
from cerebro_plpy.executor.ensembles.folding import FOLD_TABLES
from cerebro_plpy.executor.starting import begin, tables
from cerebro_plpy.logical.options import (
    BACKENDS,
    METRIC,
    Validator,
    boolean,
    drop_nulls,
    integer,
    one_of,
    parse_options,
)
from cerebro_plpy.logical.search.methods import LARGEST
from cerebro_plpy.madlib.params import BALANCED, WEIGHTED
from cerebro_plpy.nets import points, portfolio
from cerebro_plpy.nets.fitting import TARGET_SCALES, NetOutput
from cerebro_plpy.packing import options as pack_options
from cerebro_plpy.packing import preprocess
from cerebro_plpy.packing.columns import sources, target
from cerebro_plpy.packing.dividing import folds, holdout
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.models import running_engine
from cerebro_plpy.store import dialect, names, session
from cerebro_plpy.store.models import retraining
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed, source_rows, splits, statistics
from cerebro_plpy.topology.choose import find_topology
from cerebro_plpy.topology.inline import InlineTopology, find_started

# The approximate rows of an epoch on a large table; and the most rows that are held out.
EPOCH_ROWS, HELD_ROWS = 40_000, 25_000
# A config of the largest tables may have more than the usual epochs: so many passes.
LEAST_PASSES = 3
# Pairs of a number of rows and the epochs after which configs of smaller tables are first compared, since one
# epoch of a small table shows little. For larger tables, one epoch is enough.
FIRST_RUNGS = ((5_000, 9), (13_000, 3))
# The learning rates to draw from: for nets that the portfolio knows, and for other nets.
RATES, WIDE_RATES = [0.001, 0.02, "log"], [0.0003, 0.03, "log"]
# The share of the configs that are trained to the end if there is time: an ensemble needs several good ones.
FINISHED_SHARE = 1 / 3
# The share of the configs that are ranked or drawn at random, at least. The others lie near the best one.
DRAWN_SHARE = 2 / 3
# The batch sizes that are tried, by the most rows to train on.
BATCHES = ((5_000, (16, 64)), (50_000, (64, 256)), (math.inf, (256, 1024)))
# The most rows of a segment for each second of the budget with which tabm and realmlp are tried. With more,
# they get so few epochs that cheaper nets have less error.
DEAR_ROWS = 1_800
# The most numbers of a row for each second of the budget with which these nets are tried.
DEAR_WIDTH = 10


def _folds(key: str, value: object) -> Mapping[str, Any]:
    """Return the checked option `folds`; an empty mapping for `false`."""
    return {} if value is False else folds.option(key, value)


def _nets(key: str, value: object) -> list[str | dict[str, Any]]:
    found = [value] if isinstance(value, str | dict) else value
    if not isinstance(found, list) or not found or not all(map(_is_net, found)):
        raise CerebroError(
            f"option {key} is {json.dumps(value)[:60]}",
            detail="It must be a list of starting points, of lines of layers, and of objects such as"
            ' {"tabular": {"width": [64, 128]}}: a starting point with its parameters.',
            hint=f"Starting points are {', '.join(points.POINTS)}.",
        )
    return found


def _is_net(value: object) -> bool:
    if isinstance(value, dict):
        return len(value) == 1 and all(isinstance(params, dict) for params in value.values())
    return isinstance(value, str)


_PACKED_BY = ("columns", "exclude", "also_categories", "weight", "segments", "task")
_PACKING = {key: pack_options.TRAINING[key] for key in _PACKED_BY}
OPTIONS: Mapping[str, Validator] = {
    **_PACKING,
    "validation": holdout.option,
    "nets": _nets,
    nets.SCALE: one_of(*TARGET_SCALES),
    nets.CLAMP: boolean(),
    "backend": one_of(*BACKENDS),
    "seed": integer(0, 2**31 - 1),
    "configs": integer(1, LARGEST),
    "epochs": integer(1, LARGEST),
    "single": boolean(),
    "folds": _folds,
    experience.OPTION: boolean(),
    WEIGHTED: one_of(BALANCED),
    "metric": one_of(*scoring.OF_CLASSES, *scoring.OF_QUANTITIES),
}
# The thresholds of AUC, for all classes together, and the least for each. Rare classes need many: their
# probabilities are all small.
THRESHOLDS, LEAST_THRESHOLDS = 4000, 200
# How Keras measures each metric. With a beta as large as this, F-beta is the share of right rows of a class.
MEASURED: Mapping[str, str] = {
    scoring.LOGLOSS: "CategoricalCrossentropy(name='logloss')",
    scoring.ACCURACY: "'accuracy'",
    scoring.AUC: "AUC(multi_label=True, num_labels={width}, num_thresholds={thresholds}, name='auc')",
    scoring.F1: "F1Score(average='macro', name='f1')",
    scoring.BALANCED: "FBetaScore(average='macro', beta=1000.0, name='balanced_accuracy')",
    scoring.RMSE: "RootMeanSquaredError(name='rmse')",
    scoring.MAE: "'mae'",
    scoring.R2: "R2Score(name='r2')",
}


@dataclass(frozen=True)
class TrainCall:
    """The arguments of cerebro.train, unchecked."""

    source_table: str | None
    target: str | None
    name: str | None
    budget: str | None
    options: str | None
    # The recipe to store, if it is not the recipe of this call.
    recipe: Mapping[str, Any] | None = None


def train(db: Database, call: TrainCall) -> list[train_ensemble.Ranked]:
    """Pack the rows, make nets, search for the best config within the budget, and return the leaderboard."""
    search, ends_at, task = _prepare(db, _task(db, call), here=True)
    begin.begin(db, search, ends_at=ends_at)
    return train_ensemble.join_best(db, task)


def prepare(db: Database, call: TrainCall) -> str:
    """Pack the rows and make nets; return the arguments of the search that is to follow, as JSON."""
    search, _, _ = _prepare(db, _task(db, call))
    given = {key: value for key, value in asdict(search).items() if value is not None}
    return json.dumps({**given, "options": json.loads(search.options or "{}")})


def _prepare(db: Database, task: TrainOrder, *, here: bool = False) -> tuple[AutomlCall, float, TrainOrder]:
    """Pack the rows and make nets.

    Return the call that searches among them, when its budget ends, and the order as it is carried out. `here`
    says that the search follows in the same transaction.
    """
    packing, drawn = _pack(db, task, here=here)
    by_hand = [packing]
    if drawn < 1:
        # Folds are for all rows of the source.
        task = replace(task, given={**task.given, "folds": False})
    _check_held_out(db, task)
    table = names.resolve_table(db, task.table("_packed"), "packed table")
    summary = packed.summary(db, table.schema, table.name)
    recipe = {
        **(task.recipe or _recipe(db, task, summary)),
        retraining.PACKING_SECONDS: round(time.monotonic() - task.began, 1),
    }
    retraining.keep_recipe(db, summary.quoted, json.dumps(recipe))
    chosen = _chosen_nets(task, summary)
    in_folds = train_ensemble.choose_folds(db, task)
    limited = replace(task, seconds=train_ensemble.search_seconds(db, task, in_folds))
    ends_at = time.monotonic() + limited.seconds
    # Training in folds needs the time in which more configs could be trained to the end.
    finished = 1 if in_folds else math.ceil(task.configs * FINISHED_SHARE)
    search = prepare_search(db, limited, summary, chosen, here=here, finished=finished)
    for net, params in chosen:
        arguments = [task.table("_nets"), task.table("_packed"), net]
        said = {**json.loads(params or "{}"), **task.scale_params}
        arguments += [json.dumps(said)] if said else []
        by_hand.append(write_statement("load_net", arguments, None))
    by_hand += [_search_by_hand(search), *train_ensemble.write_ensemble(task, in_folds)]
    if task.recipe is None:
        db.notice("\n".join(["the same by hand:", *by_hand]))
    return search, ends_at, task


def prepare_search(
    db: Database,
    task: TrainOrder,
    summary: packed.PackedSummary,
    chosen: Sequence[tuple[str, str | None]],
    *,
    here: bool,
    loss: str | None = None,
    finished: int = 1,
) -> AutomlCall:
    """Make the chosen nets for packed rows, and return the call that searches among them.

    `chosen` has the names and parameters of the nets. The search trains one config for all epochs, or
    `finished` configs if more epochs improve the best one. `loss` is the part of the compile grid with loss
    and metrics; by default, it follows from the label and from the metric of the call.
    """
    table = names.resolve_table(db, task.table("_packed"), "packed table")
    rows, made = nets.read_rows(db, table, task.target_scale), list[tuple[str, str]]()
    for net, params in chosen:
        made += points.nets(net, params, rows)
    handed = task.hand(summary.total_rows)
    topology = find_topology(db, [table.oid], handed)[0] if here else None
    backend = task.given.get("backend") or choose_backend(db, here=isinstance(topology, InlineTopology))
    if topology is not None:
        tables.start_early(db, topology, backend, summary.segments)
    model_ids = nets.add_nets(db, task.table("_nets"), table, made, quiet=True)
    loss = loss or _loss(rows.outputs[0], task.metric)
    titles = {model_id: title for model_id, (title, _) in zip(model_ids, made, strict=True)}
    return _build_search(task, summary, loss=loss, titles=titles, backend=backend, finished=finished)


def _recipe(db: Database, task: TrainOrder, summary: packed.PackedSummary) -> Mapping[str, Any]:
    """Return the facts by which a later call can train again on other rows, such as target and options."""
    columns = summary.features.columns if summary.features else ()
    relations = summary.features.relations if summary.features else None
    source = names.resolve_table(db, task.source)
    return {
        "source": source.quoted,
        "target": summary.dependent_varname[0],
        "seconds": task.seconds,
        "options": {**task.given, **_name_task(db, source, summary)},
        "inputs": list(columns),
        **({} if relations is None else {retraining.RELATIONS: relations}),
    }


def _name_task(db: Database, source: Table, summary: packed.PackedSummary) -> Mapping[str, str]:
    """Return option `task`, so that other rows, with more or fewer different integers, are learned alike."""
    label = packed.columns_of(db, source)[summary.dependent_varname[0]]
    if label.is_array or label.element not in (*sources.INTEGERS, "bool"):
        return {}
    return {"task": target.CLASSIFICATION if summary.one_hot[0] else target.REGRESSION}


def choose_backend(db: Database, *, here: bool) -> str:
    """Return the engine of the setting `backend`; without the setting, return the default engine.

    If the training takes place in this session (`here`), and the session already runs an engine, return that
    engine instead of the default one, since a session can run only one.
    """
    running = (running_engine() or find_started()) if here else None
    return session.setting(db, "backend") or running or session.default_backend()


# The tables that a call makes: suffixes of their names, and of other tables beside each and its summary.
_MADE: Mapping[str, Sequence[str]] = {
    "": ("_info",),
    "_packed": (preprocess.VALIDATION, preprocess.VALIDATION + "_summary"),
    "_nets": (),
    "_best": (),
    ensemble.SUFFIX: FOLD_TABLES,
}


def _task(db: Database, call: TrainCall) -> TrainOrder:
    for what, value in (("source_table", call.source_table), ("target", call.target)):
        if value is None or not value.strip():
            raise CerebroError(f"{what} is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    source, label = str(call.source_table), str(call.target)
    parse_options(call.options, OPTIONS)
    given = drop_nulls(json.loads(call.options or "{}"))
    if given.get("single") and given.get("folds"):
        raise CerebroError(
            "options single and folds are both given",
            detail="Folds are for the models of an ensemble, and single makes none.",
            hint="Leave one of them out.",
        )
    held_out = given.get("validation")
    if given.get("folds") and isinstance(held_out, Mapping) and "after" in held_out:
        raise CerebroError(
            "options folds and validation.after are both given",
            detail="In folds, models would answer past rows after training on later rows.",
            hint='Leave one of them out, or write {"folds": false}.',
            sqlstate=NOT_SUPPORTED,
        )
    name = call.name or names.with_suffix(source, "_model")
    budget = call.budget or "1 minute"
    seconds = session.seconds(db, budget)
    if seconds < LEAST_SECONDS:
        raise CerebroError(f"budget is {budget}", hint="It must be at least one second.")
    for suffix, others in _MADE.items():
        names.target_table(db, names.with_suffix(name, suffix), suffixes=("_summary", *others))
    task = TrainOrder(source, label, name, given, round(seconds), call.recipe)
    task.check_nets()
    if WEIGHTED in given and "tabm" in (net.strip() for net, _ in task.named_nets):
        raise CerebroError(
            f"option {WEIGHTED} is given, and nets has tabm",
            detail="Its members learn by losses of their own, which know no weights of classes.",
            hint="Leave one of them out.",
            sqlstate=NOT_SUPPORTED,
        )
    return task


def _pack(db: Database, task: TrainOrder, *, here: bool) -> tuple[str, float]:
    """Pack the source's rows; return the SQL statement with which a user would pack them, and their share."""
    source = names.resolve_table(db, task.source, "input table")
    known = packed.columns_of(db, source)
    label = sources.find_named(task.target, "target", known, source.quoted)
    options = {key: value for key, value in task.given.items() if key in _PACKING}
    found = target.settle(db, source, label, options.get("task"), splits="validation" not in task.given)
    if label.element in (*sources.INTEGERS, "bool"):
        options["task"] = found.task
    options.setdefault("columns", "auto")
    options.setdefault("also_categories", True)
    options["seed"] = task.seed
    quantity = found.task == target.REGRESSION
    if WEIGHTED in task.given and quantity:
        raise CerebroError(
            f"option {WEIGHTED} is given, and {task.target} is a quantity",
            hint="Leave the option out: it is for classes.",
        )
    scoring.check_metric(task.metric, not quantity)
    if task.scale_params and not quantity:
        raise nets.refuse_scale(task.target, next(iter(task.scale_params)))
    scale = nets.check_scale(task.target_scale)
    if quantity and scale.way == nets.LOG and not label.is_array:
        least = statistics.spread(db, source, label).least
        if least < 0:
            raise nets.refuse_negative(label.name, least)
    read = [column for name, column in known.items() if name not in task.given.get("exclude", ())]
    arrays = [column for column in read if column.is_array]
    drawn = task.choose_share(found.rows, len(read), statistics.count_elements(db, source, arrays))
    used = found.rows * drawn
    share = float(f"{min(holdout.SHARE, HELD_ROWS / used):.3g}")
    usual: Any = share if quantity else {"share": share, "stratify": True}
    options["validation"] = task.given.get("validation", usual)
    if here:
        backend = task.given.get("backend") or choose_backend(db, here=False)
        trained = task.hand(int(used * (1 - share)))
        tables.begin_start(db, source.oid, backend, trained, options.get("segments"))
    _tell_used(db, task, found, drawn)
    arguments = (task.table("_packed"), task.target, "*")
    preprocess.pack_training(db, task.source, *arguments, options=json.dumps(options), share=drawn)
    if not found.nulls and drawn == 1:
        return write_statement("training_preprocessor_dl", (task.source, *arguments), options), drawn
    rows, view = splits.draw_share(db, source, known, label, share=drawn, seed=task.seed), task.table("_used")
    packing = write_statement("training_preprocessor_dl", (view, *arguments), options)
    return f"{source_rows.view_of(view, rows)}\n{packing}", drawn


def _tell_used(db: Database, task: TrainOrder, found: target.LearnedColumn, drawn: float) -> None:
    """Send a notice about rows that are left out."""
    if found.nulls:
        db.notice(f"{found.nulls} rows are left out, since {task.target} is NULL there")
    if drawn < 1:
        db.notice(
            f"about {found.rows * drawn:.0f} of {found.rows} rows are used, chosen by their content: to pack"
            f" more takes too much of the budget of {task.seconds} s; a longer budget uses more"
        )


def _check_held_out(db: Database, task: TrainOrder) -> None:
    """Raise an error if the metric cannot be computed on the held-out rows, before any net is trained."""
    held = names.resolve_table(db, task.table("_packed" + preprocess.VALIDATION), "packed table")
    counts = packed.summary(db, held.schema, held.name).class_counts
    scoring.check_rows(task.metric, (counts[0] or [1, 1]) if counts else [1, 1], held.quoted)


def _chosen_nets(task: TrainOrder, summary: packed.PackedSummary) -> list[tuple[str, str | None]]:
    """Return the names and parameters of the nets of the call, or else of nets that suit the inputs."""
    if "nets" in task.given:
        return task.named_nets
    ranks = {len(shape) for shape in summary.input_shapes}
    if 3 in ranks:
        return [("linear", None), ("image", '{"width": [16, 32], "depth": [2, 3]}')]
    if 2 in ranks:
        return [("linear", None), ("series", '{"width": [32, 64], "depth": [3, 5]}')]
    width = sum(math.prod(shape) for shape in summary.input_shapes)
    if summary.total_rows > DEAR_ROWS * summary.segments * task.seconds or width > DEAR_WIDTH * task.seconds:
        return [("linear", None), ("tabular", '{"width": [64, 128]}')]
    dear = '{"width": 128}'
    # The members of `tabm` learn by losses of their own, which know no weights of classes or rows.
    members = [] if {WEIGHTED, "weight"} & task.given.keys() else [("tabm", dear)]
    return [("linear", None), ("tabular", '{"width": 64}'), ("realmlp", dear), *members]


def _loss(label: NetOutput, metric: str | None) -> str:
    """Return the part of the compile grid with loss and metrics for a label: first the one that decides.

    If the moments of a numeric label are known, its loss is divided by the variance of the label.
    """
    usual = scoring.ACCURACY if label.is_classes else scoring.MAE
    thresholds = max(LEAST_THRESHOLDS, THRESHOLDS // label.width)
    # Keras measures R² of vectors only.
    is_plain = not label.is_classes and len(label.shape) <= 1
    others = scoring.OF_QUANTITIES if is_plain else ()
    measured = dict.fromkeys((metric or usual, *others))
    if is_plain and label.width == 1:
        # Keras loses the R² of a quantity that varies little around a large value. RMSE puts nets in the same
        # order, and the leaderboard computes R² from it.
        measured = dict.fromkeys(scoring.RMSE if one == scoring.R2 else one for one in measured)
    named = [MEASURED[one] for one in measured]
    listed = ", ".join(named).format(width=label.width, thresholds=thresholds)
    # In a grid, a list has alternatives: metrics that belong together are a list in it.
    measured = f"'metrics': [{f'[{listed}]' if len(named) > 1 else listed}]"
    if label.is_classes:
        return f"'loss': ['categorical_crossentropy'], {measured}"
    weight = "" if label.moments is None else f", 'loss_weights': [{1 / label.moments.variance!r}]"
    loss = "msle" if label.moments is not None and label.moments.logarithmic else "mse"
    return f"'loss': ['{loss}'], {measured}{weight}"


def _build_search(
    task: TrainOrder,
    summary: packed.PackedSummary,
    *,
    loss: str,
    titles: Mapping[int, str],
    backend: str,
    finished: int,
) -> AutomlCall:
    """Return the call that searches for the best config among the nets in `titles`."""
    batches = next(list(sizes) for most, sizes in BATCHES if summary.total_rows < most)
    weighted = f", '{WEIGHTED}': ['{task.given[WEIGHTED]}']" if WEIGHTED in task.given else ""
    ranked = portfolio.list_configs(titles, loss, batches, task.configs, weighted)[: task.configs]
    rates = RATES if all(map(portfolio.has_net, titles.values())) else WIDE_RATES
    compiles = f"{{{loss}, 'optimizer_params_list': [{{'optimizer': ['Adam'], 'learning_rate': {rates}}}]}}"
    first = next((epochs for most, epochs in FIRST_RUNGS if summary.total_rows < most), 1)
    parts = round(summary.total_rows / EPOCH_ROWS)
    most = count_epochs(task, parts)
    near = max(0, task.configs - max(len(ranked), math.ceil(task.configs * DRAWN_SHARE)))
    method = (
        f"num_configs={task.configs}, num_iterations={most}, eta=3,"
        f" min_iterations={min(first, most)}, min_finished={finished}, near_best={near}"
    )
    # A config that has begun to overfit delivers its best earlier state. The held-out rows decide, so no time
    # is spent on metrics of the training rows.
    options: dict[str, Any] = {
        "max_seconds": task.seconds,
        "restore_best": True,
        "training_metrics": False,
        "backend": backend,
    }
    if task.metric is not None:
        options["compare_by"] = METRIC
    if task.given.get(experience.OPTION):
        options[experience.OPTION] = True
    if ranked:
        options["try_first"] = list(map(asdict, ranked))
    if parts > 1:
        options["epochs_per_pass"] = parts
    return AutomlCall(
        source_table=task.table("_packed"),
        model_output_table=task.name,
        model_arch_table=task.table("_nets"),
        model_selection_table=task.table("_best"),
        model_id_list=list(titles),
        compile_params_grid=compiles,
        fit_params_grid=f"{{'batch_size': {batches}{weighted}}}",
        automl_method="asha",
        automl_params=method,
        random_state=task.seed,
        object_table=None,
        use_gpus=False,
        validation_table=task.table("_packed" + preprocess.VALIDATION),
        metrics_compute_frequency=1,
        name=task.name,
        description=f"cerebro.train of {task.source}",
        use_caching=False,
        options=json.dumps(options),
    )


def count_epochs(task: TrainOrder, parts: int) -> int:
    """Return the most epochs of a config on a table of which an epoch is one of `parts` parts."""
    if "epochs" in task.given:
        return task.epochs
    return min(max(task.epochs, LEAST_PASSES * parts), LARGEST)


def _search_by_hand(call: AutomlCall) -> str:
    tables = (call.source_table, call.model_output_table, call.model_arch_table, call.model_selection_table)
    ids, method = list(call.model_id_list or ()), (call.automl_method, call.automl_params)
    return write_statement(
        "madlib_automl",
        (*tables, ids, call.compile_params_grid, call.fit_params_grid, *method),
        json.loads(call.options or "{}"),
        random_state=str(call.random_state),
        validation_table=dialect.literal(str(call.validation_table)),
        metrics_compute_frequency=str(call.metrics_compute_frequency),
    )
