"""stub"""
from typing import Any
def is_legacy(config: dict[str, Any]) -> bool: return False
def translate(config: dict[str, Any]) -> dict[str, Any]: return config
