"""Option `cross_validate`: train each config without each fold in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import FitOptions


def expanded(
    given: FitOptions, configs: Sequence[requests.Chosen], source: requests.Data
) -> list[requests.Chosen]:
    """Return the configs to train: in cross-validation, each config once for each fold that it leaves out.

    If the option has `final`, each config is also trained on all rows.
    """
    if given.cross_validate is None:
        return list(configs)
    number = source.summary.folds
    if number is None:
        raise CerebroError(
            f"option cross_validate: {source.table.quoted} was not packed in folds",
            hint='Pack it with cerebro.training_preprocessor_dl and options {"folds": 5}.',
        )
    folds: list[int | None] = [*range(1, number + 1), *([None] if given.cross_validate.final else [])]
    # Configs that leave a fold out get new keys, which no given config has.
    beyond = count(max((config.mst_key for config in configs), default=0) + 1)
    return [
        replace(
            config,
            mst_key=config.mst_key if fold is None else next(beyond),
            config_key=config.mst_key,
            fold=fold,
        )
        for config in configs
        for fold in folds
    ]


def check(given: FitOptions, *, validation: requests.Data | None, warm_start: bool) -> None:
    """Raise an error if the call has arguments that cannot be combined with cross-validation."""
    if given.cross_validate is None:
        return
    refused = {
        "a validation table": validation is not None,
        "warm_start": warm_start,
        "option hybrid": given.hybrid is not None,
        "option target": given.target is not None,
    }
    for what, there in refused.items():
        if there:
            raise CerebroError(
                f"option cross_validate does not go with {what}",
                detail="Each config is trained anew without each fold, and measured on it.",
                hint="Leave one of them out.",
            )
