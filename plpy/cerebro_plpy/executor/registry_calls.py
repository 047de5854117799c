"""The calls about registered models, by their names in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cerebro_plpy.executor import aliases, model_rights, promoting, registering, retraining

CALLS: Mapping[str, Callable[..., Any]] = {
    "register": registering.register,
    "set_alias": aliases.set_alias,
    "drop_alias": aliases.drop_alias,
    "promote": promoting.promote,
    "retrain": retraining.retrain,
    "rollback": aliases.rollback,
    "drop_version": aliases.drop_version,
    "unregister": aliases.unregister,
    "grant_model": model_rights.grant,
    "revoke_model": model_rights.revoke,
    "read_model": model_rights.read,
}
