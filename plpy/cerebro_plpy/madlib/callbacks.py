"""Callbacks and initial_epoch: fit parameters that are accepted but not used, as other means replace them.

A callback is code that Keras would run. No callback is made or run here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cerebro_plpy.madlib.check import not_supported, wrong
from cerebro_plpy.madlib.literal import Call, Value, read_arguments, read_value, shorten
from cerebro_plpy.madlib.nearest import unknown

# Callbacks that only watch the training, and what replaces each of them here.
_VIEWS: Final = "cerebro.metrics and cerebro.progress show how a run goes"
WATCHING: Final[dict[str, str]] = {
    "TensorBoard": _VIEWS,
    "CSVLogger": _VIEWS,
    "History": _VIEWS,
    "ProgbarLogger": _VIEWS,
    "RemoteMonitor": "LISTEN cerebro_run hears of every epoch",
    "BackupAndRestore": "cerebro.resume goes on from the last visit",
    "ModelCheckpoint": "every visit keeps the state, and option restore_best the best one",
    "TerminateOnNaN": "a config whose loss is not finite fails, and the others go on",
}
# Callbacks that change the result of training: they raise an error, with this hint.
STEERING: Final[dict[str, str]] = {
    "EarlyStopping": 'Write options => {"patience": 3} in the fit call.',
    "LearningRateScheduler": "Give the optimizer a schedule: 'Adam(lr=ExponentialDecay(…))'.",
    "ReduceLROnPlateau": "Give the optimizer a schedule: 'Adam(lr=ExponentialDecay(…))'.",
    "LambdaCallback": "Only data comes from users here, and it is code.",
    "SwapEMAWeights": "Give the optimizer use_ema=True.",
}
_INITIAL_EPOCH: Final = "a state knows by itself how far it is, and epochs are counted from there"


def check_callbacks(value: Value) -> list[str]:
    """Return the names of the callbacks in a fit parameter.

    Raise an error for a callback that cannot be left out, since it would change the result of training.
    """
    if isinstance(value, str) and value.strip().startswith("["):
        # In a grid, the list is in quotes.
        value = read_value(value)
    given = [] if value is None else value if isinstance(value, list) else [value]
    return [_name(one) for one in given]


def check_initial_epoch(value: Value) -> bool:
    """Return whether initial_epoch is above 0, and so left out. Raise an error if it is no epoch."""
    if value is None:
        return False
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong("initial_epoch", value, "an integer of at least 0")
    return value > 0


def _name(callback: Value) -> str:
    name = callback.name if isinstance(callback, Call) else callback
    if not isinstance(name, str):
        raise wrong("callbacks", callback, "a list such as [TensorBoard(log_dir='/tmp')]")
    if name in STEERING:
        raise not_supported(
            f"callback {name} is not supported", "Callbacks are code of Keras' that is not run here.",
            STEERING[name],
        )  # fmt: skip
    if name not in WATCHING:
        raise unknown(f"unknown callback {shorten(name, 60)}", name, WATCHING)
    return name


def left_out(fit_params: Iterable[str]) -> list[str]:
    """Return messages that say what is left out of some configs' fit parameters, and what replaces it."""
    found: dict[str, str] = {}
    for text in dict.fromkeys(fit_params):
        values = read_arguments(text)
        for name in check_callbacks(values.get("callbacks")):
            found[f"callback {name}"] = WATCHING[name]
        if check_initial_epoch(values.get("initial_epoch")):
            found["initial_epoch"] = _INITIAL_EPOCH
    reasons: dict[str, list[str]] = {}
    for what, instead in found.items():
        reasons.setdefault(instead, []).append(what)
    return [f"{', '.join(what)} left out: {instead}" for instead, what in reasons.items()]
