"""The calls from SQL, and the functions that carry them out.

Modules are named, and imported by the first call that needs them: a session that only packs rows never
loads Keras.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cerebro_plpy.database import Database


class CallTarget(NamedTuple):
    """The function of a call, and the record that takes its arguments if the function takes them as one."""

    function: str
    record: str | None = None


CALLS: Mapping[str, CallTarget] = {
    # Tables to train on.
    "append_rows": CallTarget("packing.append.append_rows"),
    "create_packed_table": CallTarget("packing.empty.create"),
    "describe_columns": CallTarget("packing.describe.describe"),
    "train_test_split": CallTarget("packing.split.train_test_split"),
    "training_preprocessor_dl": CallTarget("packing.preprocess.pack_training"),
    "validation_preprocessor_dl": CallTarget("packing.preprocess.pack_validation"),
    "windows": CallTarget("packing.windows.create"),
    "materialize_features": CallTarget("predicting.features.materialize"),
    "refresh_features": CallTarget("predicting.features.refresh"),
    "_related_statement": CallTarget("executor.related_predicting.statement"),
    "labels": CallTarget("executor.labelling.labels", "executor.labelling.LabelsCall"),
    "propagate": CallTarget("executor.propagating.propagate", "executor.propagating.PropagateCall"),
    "relate": CallTarget("executor.relating.relate", "executor.relating.RelateCall"),
    # Nets, configs and functions.
    "load_keras_model": CallTarget("executor.tables.load_model"),
    "delete_keras_model": CallTarget("executor.tables.delete_model"),
    "load_net": CallTarget("executor.nets.load_net"),
    "enable_lora": CallTarget("executor.nets.enable_lora"),
    "show_net": CallTarget("executor.nets.show_net"),
    "load_model_selection_table": CallTarget("executor.tables.load_selection"),
    "generate_model_configs": CallTarget("executor.tables.generate_configs"),
    "hyperband_schedule": CallTarget("executor.tables.write_schedule"),
    "gpu_configuration": CallTarget("executor.gpus.write_configuration"),
    "register_function": CallTarget("executor.functions.register"),
    "unregister_function": CallTarget("executor.functions.unregister"),
    "grant_function": CallTarget("executor.functions.grant"),
    "revoke_function": CallTarget("executor.functions.revoke"),
    "load_custom_function": CallTarget("executor.objects.load_custom"),
    "load_top_k_accuracy_function": CallTarget("executor.objects.load_top_k"),
    "delete_custom_function": CallTarget("executor.objects.delete"),
    "update_custom_function_table": CallTarget("executor.objects.update_table"),
    # Runs.
    "madlib_fit": CallTarget("executor.single.fit"),
    "madlib_fit_multiple_model": CallTarget("executor.begin.begin", "executor.fit.FitCall"),
    "madlib_automl": CallTarget("executor.begin.begin", "executor.automl.AutomlCall"),
    "train": CallTarget("executor.train.train", "executor.train.TrainCall"),
    "prepare_train": CallTarget("executor.train.prepare", "executor.train.TrainCall"),
    "train_forecast": CallTarget("executor.forecasting.train_forecast", "executor.forecasting.ForecastCall"),
    "ensemble": CallTarget("executor.ensemble.ensemble", "executor.ensemble.EnsembleCall"),
    "madlib_evaluate": CallTarget("executor.evaluate.evaluate", "executor.evaluate.EvaluateCall"),
    "explain_fit": CallTarget("executor.explain.fit"),
    "explain_automl": CallTarget("executor.explain.automl"),
    "explain_run": CallTarget("executor.explain_run.explain_run"),
    "advise": CallTarget("executor.advising.advise"),
    "last_run": CallTarget("executor.run.last_run"),
    "config_state": CallTarget("executor.states.newest"),
    # Runs that go on in other sessions, or do not.
    "add_configs": CallTarget("executor.steer.add_configs"),
    "add_space": CallTarget("executor.steer.add_space"),
    "clone_config": CallTarget("executor.steer.clone_config"),
    "delete_config": CallTarget("executor.steer.delete_config"),
    "pause": CallTarget("executor.steer.pause"),
    "resume_config": CallTarget("executor.steer.resume_config"),
    "set_epochs": CallTarget("executor.steer.set_epochs"),
    "stop": CallTarget("executor.steer.stop"),
    "stop_config": CallTarget("executor.steer.stop_config"),
    "resume": CallTarget("executor.steer.resume_run"),
    "wait": CallTarget("executor.steer.wait"),
    "forget": CallTarget("executor.resume.forget"),
    # Registered models.
    "register": CallTarget("executor.registering.register"),
    "set_alias": CallTarget("executor.aliases.set_alias"),
    "drop_alias": CallTarget("executor.aliases.drop_alias"),
    "rollback": CallTarget("executor.aliases.rollback"),
    "drop_version": CallTarget("executor.aliases.drop_version"),
    "unregister": CallTarget("executor.scheduling.unregister"),
    "promote": CallTarget("executor.promoting.promote"),
    "retrain": CallTarget("executor.retraining.retrain", "executor.retraining.RetrainCall"),
    "schedule": CallTarget("executor.scheduling.schedule"),
    "unschedule": CallTarget("executor.scheduling.unschedule"),
    "begin_scheduled": CallTarget("executor.scheduling.begin_run"),
    "end_scheduled": CallTarget("executor.scheduling.end_run"),
    "set_model_owner": CallTarget("executor.model_rights.set_owner"),
    "grant_model": CallTarget("executor.model_rights.grant"),
    "revoke_model": CallTarget("executor.model_rights.revoke"),
    "read_model": CallTarget("executor.model_rights.read"),
    # Predictions, and how good they are.
    "madlib_predict": CallTarget("predicting.rows.predict"),
    "madlib_keras_predict_byom": CallTarget("predicting.rows.predict_byom"),
    "predict_query": CallTarget("predicting.query.statement"),
    "explain_predict": CallTarget("predicting.explained.make_ready"),
    "forecast": CallTarget("predicting.forecasts.forecast"),
    "importance": CallTarget("predicting.importance.find_importance"),
    "evaluate_by": CallTarget("predicting.parts_of_rows.evaluate_by"),
    "inspect_net": CallTarget("predicting.inspecting.inspect_net"),
    "worst_rows": CallTarget("predicting.worst.find_worst_rows"),
    "confusion_matrix": CallTarget("predicting.confusion.confusion"),
    "check": CallTarget("predicting.watching.check"),
    # The server.
    "version": CallTarget("executor.diagnose.versions"),
    "diagnose": CallTarget("executor.diagnose.diagnose"),
}


@functools.cache
def find_call(name: str) -> Callable[..., Any]:
    """Import and return what carries out a call: a function of the session and the call's arguments."""
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
