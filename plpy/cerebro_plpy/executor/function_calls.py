"""The calls about registered functions, by their names in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cerebro_plpy.executor import functions, objects

CALLS: Mapping[str, Callable[..., Any]] = {
    "register_function": functions.register,
    "unregister_function": functions.unregister,
    "grant_function": functions.grant,
    "revoke_function": functions.revoke,
    "load_custom_function": objects.load_custom,
    "load_top_k_accuracy_function": objects.load_top_k,
    "delete_custom_function": objects.delete,
    "update_custom_function_table": objects.update_table,
}
