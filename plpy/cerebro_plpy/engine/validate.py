"""stub"""
from typing import Any
def check(config: dict[str, Any]) -> None: pass
