"""The calls from SQL, and the functions that carry them out.

`CALLS` has names of functions, not functions: a module is imported by the first call that needs it, so that
a session that only packs rows never loads Keras.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cerebro_plpy.database import Database


class CallTarget(NamedTuple):
    """The name of the function that carries out a call, and of the class that holds its arguments, if any."""

    function: str
    record: str | None = None


CALLS: Mapping[str, CallTarget] = {
    # Tables to train on.
    "append_rows": CallTarget("packing.append.append_rows"),
    "create_packed_table": CallTarget("packing.empty.create"),
    "describe_columns": CallTarget("packing.columns.describe.describe"),
    "train_test_split": CallTarget("packing.dividing.split.train_test_split"),
    "training_preprocessor_dl": CallTarget("packing.preprocess.pack_training"),
    "validation_preprocessor_dl": CallTarget("packing.preprocess.pack_validation"),
    "windows": CallTarget("packing.windows.create"),
    "materialize_features": CallTarget("predicting.features.materialize"),
    "refresh_features": CallTarget("predicting.features.refresh"),
    "_related_statement": CallTarget("executor.related.predicting.statement"),
    "labels": CallTarget("executor.related.labelling.labels", "executor.related.labelling.LabelsCall"),
    "propagate": CallTarget(
        "executor.related.propagating.propagate", "executor.related.propagating.PropagateCall"
    ),
    "refresh_propagation": CallTarget("executor.related.refreshing.refresh_propagation"),
    "smooth": CallTarget("executor.related.smoothing.smooth", "executor.related.smoothing.SmoothCall"),
    "relate": CallTarget("executor.related.relating.relate", "executor.related.relating.RelateCall"),
    # Nets, configs and functions.
    "load_keras_model": CallTarget("executor.starting.tables.load_model"),
    "delete_keras_model": CallTarget("executor.starting.tables.delete_model"),
    "load_net": CallTarget("executor.calls.nets.load_net"),
    "enable_lora": CallTarget("executor.calls.nets.enable_lora"),
    "show_net": CallTarget("executor.calls.nets.show_net"),
    "load_model_selection_table": CallTarget("executor.starting.tables.load_selection"),
    "generate_model_configs": CallTarget("executor.starting.tables.generate_configs"),
    "hyperband_schedule": CallTarget("executor.starting.tables.write_schedule"),
    "gpu_configuration": CallTarget("executor.starting.gpus.write_configuration"),
    "register_function": CallTarget("executor.starting.functions.register"),
    "unregister_function": CallTarget("executor.starting.functions.unregister"),
    "grant_function": CallTarget("executor.starting.functions.grant"),
    "revoke_function": CallTarget("executor.starting.functions.revoke"),
    "load_custom_function": CallTarget("executor.starting.objects.load_custom"),
    "load_top_k_accuracy_function": CallTarget("executor.starting.objects.load_top_k"),
    "delete_custom_function": CallTarget("executor.starting.objects.delete"),
    "update_custom_function_table": CallTarget("executor.starting.objects.update_table"),
    # Runs.
    "madlib_fit": CallTarget("executor.calls.single.fit"),
    "madlib_fit_multiple_model": CallTarget("executor.starting.begin.begin", "executor.calls.fit.FitCall"),
    "madlib_automl": CallTarget("executor.starting.begin.begin", "executor.calls.automl.AutomlCall"),
    "train": CallTarget("executor.calls.train.train", "executor.calls.train.TrainCall"),
    "prepare_train": CallTarget("executor.calls.train.prepare", "executor.calls.train.TrainCall"),
    "finish_train": CallTarget("executor.calls.train_ensemble.finish"),
    "train_forecast": CallTarget(
        "executor.calls.forecasting.train_forecast", "executor.calls.forecasting.ForecastCall"
    ),
    "ensemble": CallTarget(
        "executor.ensembles.ensemble.ensemble", "executor.ensembles.ensemble.EnsembleCall"
    ),
    "madlib_evaluate": CallTarget("executor.calls.evaluate.evaluate", "executor.calls.evaluate.EvaluateCall"),
    "explain_fit": CallTarget("executor.plans.explain.fit"),
    "explain_automl": CallTarget("executor.plans.explain.automl"),
    "explain_run": CallTarget("executor.plans.explain_run.explain_run"),
    "advise": CallTarget("executor.plans.advising.advise"),
    "last_run": CallTarget("executor.running.run.last_run"),
    "config_state": CallTarget("executor.running.states.newest"),
    "_visible_rows": CallTarget("executor.running.run_rows.find_visible"),
    # Runs that go on in other sessions, or do not.
    "add_configs": CallTarget("executor.running.steer.add_configs"),
    "add_space": CallTarget("executor.running.steer.add_space"),
    "clone_config": CallTarget("executor.running.steer.clone_config"),
    "delete_config": CallTarget("executor.running.steer.delete_config"),
    "pause": CallTarget("executor.running.steer.pause"),
    "resume_config": CallTarget("executor.running.steer.resume_config"),
    "set_epochs": CallTarget("executor.running.steer.set_epochs"),
    "stop": CallTarget("executor.running.steer.stop"),
    "stop_config": CallTarget("executor.running.steer.stop_config"),
    "resume": CallTarget("executor.running.steer.resume_run"),
    "wait": CallTarget("executor.running.steer.wait"),
    "forget": CallTarget("executor.running.resume.forget"),
    # Registered models.
    "register": CallTarget("executor.models.registering.register"),
    "set_alias": CallTarget("executor.models.aliases.set_alias"),
    "drop_alias": CallTarget("executor.models.aliases.drop_alias"),
    "rollback": CallTarget("executor.models.aliases.rollback"),
    "drop_version": CallTarget("executor.models.aliases.drop_version"),
    "unregister": CallTarget("executor.models.scheduling.unregister"),
    "promote": CallTarget("executor.models.promoting.promote"),
    "retrain": CallTarget("executor.models.retraining.retrain", "executor.models.retraining.RetrainCall"),
    "schedule": CallTarget("executor.models.scheduling.schedule"),
    "unschedule": CallTarget("executor.models.scheduling.unschedule"),
    "begin_scheduled": CallTarget("executor.models.scheduling.begin_run"),
    "end_scheduled": CallTarget("executor.models.scheduling.end_run"),
    "set_model_owner": CallTarget("executor.models.model_rights.set_owner"),
    "grant_model": CallTarget("executor.models.model_rights.grant"),
    "revoke_model": CallTarget("executor.models.model_rights.revoke"),
    "read_model": CallTarget("executor.models.model_rights.read"),
    # Predictions, and how good they are.
    "madlib_predict": CallTarget("predicting.answering.rows.predict"),
    "madlib_keras_predict_byom": CallTarget("predicting.answering.rows.predict_byom"),
    "predict_query": CallTarget("predicting.answering.query.statement"),
    "explain_predict": CallTarget("predicting.examining.explained.make_ready"),
    "explain_forecast": CallTarget("predicting.examining.explained_forecasts.explain_forecast"),
    "forecast": CallTarget("predicting.answering.forecasts.forecast"),
    "importance": CallTarget("predicting.examining.importance.find_importance"),
    "evaluate_by": CallTarget("predicting.examining.parts_of_rows.evaluate_by"),
    "inspect_net": CallTarget("predicting.examining.inspecting.inspect_net"),
    "worst_rows": CallTarget("predicting.examining.worst.find_worst_rows"),
    "confusion_matrix": CallTarget("predicting.examining.confusion.confusion"),
    "check": CallTarget("predicting.examining.watching.check"),
    # The server.
    "version": CallTarget("executor.plans.diagnose.versions"),
    "diagnose": CallTarget("executor.plans.diagnose.diagnose"),
}


@functools.cache
def find_call(name: str) -> Callable[..., Any]:
    """Import and return the function that carries out a call; it takes a `Database` and the arguments."""
    call = CALLS[name]
    function = _load(call.function)
    if call.record is None:
        return function
    record = _load(call.record)

    def carry_out(db: Database, *arguments: Any) -> Any:
        return function(db, record(*arguments))

    return carry_out


def _load(path: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"cerebro_plpy.{module}"), name)
