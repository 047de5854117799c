"""Admits the layers of KerasHub that hold no code and read no files, if the server has KerasHub.

Backbones, tasks, tokenizers and presets are not admitted: they can read files or download, or a few numbers
in their JSON can stand for any number of layers. An architecture has the layers of a backbone instead.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from cerebro_plpy import errors, memory
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import custom
from cerebro_plpy.errors import CerebroError

PACKAGE = "keras_hub"
# Layers of keras_hub.layers, by the names under which they are registered with Keras.
LAYERS = frozenset(
    """CachedMultiHeadAttention FNetEncoder PositionEmbedding RotaryEmbedding SinePositionEncoding
    TokenAndPositionEmbedding TransformerDecoder TransformerEncoder""".split()
)
# An activation of KerasHub, which BERT and other nets name.
FUNCTIONS = frozenset({"gelu_approximate"})
_FUNCTIONS_AT = f"{PACKAGE}.src.utils.keras_utils"
# Packages that KerasHub imports if they are installed: they download, read files of tokens, or are engines.
_COMPANIONS = (
    "huggingface_hub", "kagglehub", "kagglesdk", "safetensors", "sentencepiece", "tensorflow_text",
    "transformers",
)  # fmt: skip


class _Objects(dict[str, Any]):
    """The classes and functions of KerasHub that this process has imported, by registered name."""


def registered_name(name: str) -> str:
    return f"{PACKAGE}>{name}"


def is_named(found: dict[str, Any]) -> bool:
    """Return whether a serialized object claims to be an object of KerasHub."""
    module, written = found.get("module"), found.get("registered_name")
    config = found.get("config")
    return (
        (isinstance(module, str) and module.partition(".")[0] == PACKAGE)
        or (isinstance(written, str) and written.startswith(f"{PACKAGE}>"))
        or (isinstance(config, str) and config.startswith(f"{PACKAGE}>"))
    )


def pin(found: dict[str, Any]) -> bool:
    """Rewrite an admitted object of KerasHub in canonical form; return False if it is not admitted.

    KerasHub need not be imported or installed for this.
    """
    name, written, config = found["class_name"], found.get("registered_name"), found.get("config")
    if name == "function" and isinstance(config, str):
        known = config.removeprefix(f"{PACKAGE}>")
        own = registered_name(known)
        if known not in FUNCTIONS or written not in (None, name, known, own):
            return False
        found |= {"module": "builtins", "config": own, "registered_name": own}
        return True
    if name not in LAYERS or written not in (None, name, registered_name(name)):
        return False
    found |= {"module": None, "registered_name": registered_name(name)}
    return True


def reason(name: Any) -> str:
    """Return why an object of KerasHub is not admitted."""
    if isinstance(name, str) and name.endswith("Backbone"):
        return (
            "A few numbers make a net of any size of it. Write the graph of its layers: db.load_pretrained"
            " does, and keras.Model(backbone.inputs, backbone.outputs)."
        )
    return (
        f"Of KerasHub, layers that hold no code and read no files are allowed: {', '.join(sorted(LAYERS))}."
        " Tokenizers and preprocessors stay outside: pack what they give."
    )


def is_known(kind: type) -> bool:
    """Return whether a class comes from Keras or from KerasHub."""
    return kind.__module__.startswith(("keras.", f"{PACKAGE}."))


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def objects(names: Collection[str]) -> dict[str, Any]:
    """Return the classes and functions of KerasHub that have these registered names."""
    known = memory.get_instance(_Objects)
    for name in set(names) - set(known):
        known[name] = _get(name.removeprefix(f"{PACKAGE}>"))
    return {name: known[name] for name in names}


def _get(name: str) -> Any:
    if not is_installed():
        raise missing(name)
    try:
        with _alone(), runtime.generators_kept(), custom.unregistered():
            module = importlib.import_module(f"{PACKAGE}.layers" if name in LAYERS else _FUNCTIONS_AT)
    except ImportError as error:
        raise CerebroError(
            "KerasHub cannot be imported on the server",
            detail=f"{type(error).__name__}: {error}",
            sqlstate=errors.NOT_SUPPORTED,
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise CerebroError(
            f'the KerasHub of the server has no "{name}"',
            hint="An administrator installs the version of requirements/hub.lock.",
            sqlstate=errors.NOT_SUPPORTED,
        )
    return found


def missing(name: str) -> CerebroError:
    return CerebroError(
        f'the architecture holds "{name}" of KerasHub, which is not installed on the server',
        hint="An administrator installs it where the server's Python finds it: pip install --no-deps"
        " --require-hashes -r requirements/hub.lock.",
        sqlstate=errors.NOT_SUPPORTED,
    )


@contextmanager
def _alone() -> Iterator[None]:
    """Within the block, hide from KerasHub the packages that can download, and engines that do not run."""
    others = [name for name in runtime.BACKENDS if name != runtime.backend()]
    with runtime.hidden([*_COMPANIONS, *others]):
        yield
