"""Makes JAX keep compiled programs in a folder, from which later sessions load them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

# JAX has an interface for caches, but no public way to set one. Its own cache writes files in place, so that
# a process that is killed leaves half a file for ever.
from jax._src import compilation_cache, compilation_cache_interface

from cerebro_plpy.programs import LOADS, REFUSES, TRIED, NotTrusted, Programs, name_kind, shown

_OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_persistent_cache_enable_xla_caches": "none",
}


class _Cache(compilation_cache_interface.CacheInterface):
    def __init__(self, programs: Programs) -> None:
        self._path = programs.path
        self._programs = programs
        self.loaded = 0

    def get(self, key: str) -> Any:
        value = self._programs.get(key)
        self.loaded += value is not None
        return value

    def put(self, key: str, value: bytes) -> None:
        self._programs.put(key, value)


def keep_programs(folder: Path, threads: int) -> str | None:
    """Keep the compiled programs of this process in a folder; return the reason if this is not possible."""
    try:
        programs = Programs(folder, name_kind("jaxlib", threads))
    except (NotTrusted, OSError) as error:
        return str(error)
    cache = _Cache(programs)
    for name, value in _OPTIONS.items():
        jax.config.update(name, value)
    _use(cache)
    tried = programs.get(TRIED)
    if tried is None:
        loads = _loads(cache)
        if loads is None:
            # A full disk may have room later.
            _use(None)
            return f"compiled programs cannot be written to {shown(folder)}"
        tried = LOADS if loads else REFUSES
        programs.put(TRIED, tried)
    if tried == LOADS:
        return None
    _use(None)
    return "JAX cannot load what it has compiled on this processor"


def _use(cache: _Cache | None) -> None:
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", None if cache is None else str(cache._path))
    compilation_cache._cache = cache
    compilation_cache._cache_initialized = cache is not None


def _loads(cache: _Cache) -> bool | None:
    """Return whether a small program gives the same result when JAX loads it from the cache.

    Return None if the cache did not keep the program.
    """
    numbers = jnp.arange(16.0).reshape(4, 4)
    compiled = jax.jit(_try)(numbers)
    jax.clear_caches()
    cache.loaded = 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loaded = jax.jit(_try)(numbers)
    if cache.loaded == 0:
        return None
    refused = any("compilation cache" in str(one.message) for one in said)
    return not refused and bool((compiled == loaded).all())


def _try(numbers: jax.Array) -> jax.Array:
    return jnp.tanh(numbers @ numbers) + 1
