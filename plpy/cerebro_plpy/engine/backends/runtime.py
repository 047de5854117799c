"""Starts Keras in this process: one backend, once, with a fixed number of threads."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cerebro_plpy import errors, memory
from cerebro_plpy.engine.apart import watch
from cerebro_plpy.errors import CerebroError

if TYPE_CHECKING:
    from cerebro_plpy.engine.backends.interfaces import KerasBackend

BACKENDS = ("tensorflow", "jax", "torch")
_DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
    "jax": ("jax",),
    "torch": ("torch",),
}
# Packages that Keras and TensorFlow import if they are installed, only to work together with them. That takes
# as long as all other imports, and half as much memory again, in every process.
_COMPANIONS = ("IPython", "jax", "matplotlib", "pandas", "sklearn")


@dataclass(frozen=True)
class Gpu:
    """The only GPU of its host that a process may see, and how much of the GPU's memory it may take."""

    device: str
    fraction: float
    memory_mb: int | None


@dataclass(frozen=True)
class Running:
    """The settings with which this process was started; none of them can change afterwards."""

    backend: str
    threads: int
    use_gpus: bool
    # Not compared: a process keeps its GPU, and a call that names another one is not refused.
    gpu: Gpu | None = field(default=None, compare=False)
    # Where compiled programs are kept for other sessions (programs.py).
    cache_folder: str | None = field(default=None, compare=False)
    # How many threads of this process may call the engine at the same time.
    calls: int = field(default=1, compare=False)


class _Started:
    running: Running | None = None
    backend: KerasBackend | None = None
    # The function that the server calls at the end of this process; it must not be collected before.
    before_exit: Any = None


def start(
    backend: str,
    threads: int,
    use_gpus: bool,
    gpu: Gpu | None = None,
    cache_folder: str | None = None,
    *,
    calls: int = 1,
) -> None:
    """Start Keras on one backend; calling again with the same arguments does nothing.

    Raise an error if Keras already runs in this process with other settings. `calls` is how many threads may
    call the engine at the same time.
    """
    wanted = Running(backend, threads, use_gpus, gpu, cache_folder, calls)
    if _running() == wanted:
        return
    _check(wanted)
    _set_environment(wanted)
    # The session may be ended while it imports, and must not crash then either.
    _end_at_once()
    with _quiet():
        _import(wanted)
    _end_at_once()
    _check_gpus(wanted)
    memory.get_instance(_Started).running = wanted


def _running() -> Running | None:
    return memory.get_instance(_Started).running


def backend() -> str:
    """Return the name of the backend that runs in this process."""
    running = _running()
    if running is None:
        raise _not_started()
    return running.backend


def threads_of(backend: str) -> int | None:
    """Return the number of threads of this process if it runs on the given backend; else None."""
    running = _running()
    return running.threads if running is not None and running.backend == backend else None


def keras() -> Any:
    """Return the Keras module; raise an error if `start` has not imported it yet."""
    backend()
    return sys.modules["keras"]


def get_keras_backend() -> KerasBackend:
    """Return the backend that runs in this process."""
    found = memory.get_instance(_Started).backend
    if found is None:
        raise _not_started()
    return found


def _not_started() -> CerebroError:
    return CerebroError("the engine has not been started", sqlstate=errors.INTERNAL)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the states of this process's random generators at the end of the `with` block.

    Keras draws from the generators, and other code may rely on them.
    """
    python, legacy, its_own = random.getstate(), np.random.get_state(), get_keras_backend().generator()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        get_keras_backend().set_generator(its_own)


def seed_generators(seed: int) -> None:
    """Seed the generators from which Keras draws initial values.

    keras.utils.set_random_seed would also seed TensorFlow's own generator. Nothing here draws from it, and
    seeding it throws away all kernels that are ready.
    """
    random.seed(seed)
    np.random.seed(seed)
    get_keras_backend().seed(seed)


def to_numpy(value: Any) -> np.ndarray:
    """Return a copy of a variable or tensor of the backend as a NumPy array."""
    return get_keras_backend().to_numpy(value.value if hasattr(value, "path") else value)


def is_started() -> bool:
    return _running() is not None


def versions() -> dict[str, str]:
    """Return the versions of all software that decides the bits of a result, by name."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("numpy", "keras"):
        found[name] = importlib.metadata.version(name)
    for name in _DISTRIBUTIONS[backend()]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[backend()] = importlib.metadata.version(name)
    return found


def _check(wanted: Running) -> None:
    if wanted.backend not in BACKENDS:
        raise CerebroError(f'unknown backend "{wanted.backend}"', hint=f"Use one of {', '.join(BACKENDS)}.")
    if wanted.threads < 1:
        raise CerebroError(f"threads must be at least 1, not {wanted.threads}")
    running = _running()
    if running is not None:
        raise CerebroError(
            f'this session already runs Keras on "{running.backend}" with {running.threads} threads',
            detail=f"Asked for: {wanted}. A process can be started only once.",
            hint="Open another session.",
            sqlstate=errors.WRONG_STATE,
        )
    _check_foreign_keras(wanted)
    for module in ("numpy", "keras", wanted.backend):
        _check_installed(module)


def _check_foreign_keras(wanted: Running) -> None:
    """Raise an error if other code in this process has imported Keras with another backend."""
    loaded = sys.modules.get("keras")
    if loaded is not None and loaded.backend.backend() != wanted.backend:
        raise CerebroError(
            f'this session already runs Keras on "{loaded.backend.backend()}", not "{wanted.backend}"',
            hint="Open another session.",
            sqlstate=errors.WRONG_STATE,
        )


def _check_installed(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise errors.missing_package(module)


def _check_gpus(wanted: Running) -> None:
    if wanted.use_gpus and not get_keras_backend().has_gpu():
        raise CerebroError(
            f"use_gpus is true, but {wanted.backend} finds no GPU on this server",
            detail=f"This process was given {wanted.gpu.device} of its host." if wanted.gpu else None,
            hint="Set use_gpus to FALSE, or install the driver and the package with GPU support.",
            sqlstate=errors.WRONG_STATE,
        )


def _set_environment(wanted: Running) -> None:
    threads = str(wanted.threads)
    settings = {
        "KERAS_BACKEND": wanted.backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": threads,
        # Each call into TensorFlow runs in one of these, which change no bit.
        "TF_NUM_INTEROP_THREADS": str(wanted.threads * wanted.calls),
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        # XLA's CPU client sizes its thread pool by this one and by nothing else.
        "NPROC": threads,
    }
    if not wanted.use_gpus:
        settings |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    elif wanted.gpu is not None:
        settings |= {
            "CUDA_VISIBLE_DEVICES": wanted.gpu.device,
            # Take no more than its part, and only as needed: other processes may use the same GPU.
            "XLA_PYTHON_CLIENT_MEM_FRACTION": str(wanted.gpu.fraction),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        }
    # For code that looks which GPUs there are, since this process does not see them any more.
    os.environ.setdefault("CEREBRO_SEEN_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    os.environ.update(settings)


def _end_at_once() -> None:
    """Let this process end without the destructors of the C++ libraries.

    Threads of the libraries may still work on cancelled computations, and crash when their memory is freed,
    as JAX sometimes does. A server process that crashes ends the sessions of the whole server.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "on_exit"):
        return
    libc.on_exit(libc._exit, None)
    server = ctypes.PyDLL(None)
    if memory.get_instance(_Started).before_exit is not None or not hasattr(server, "on_proc_exit"):
        return
    # Functions that are registered last are called first, and libraries register more as they are used: so a
    # server process that ends registers this function again, after all others.
    again = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(
        lambda code, arg: libc.on_exit(libc._exit, None)
    )
    memory.get_instance(_Started).before_exit = again
    server.on_proc_exit(again, None)


def _import(wanted: Running) -> None:
    watch()
    # Keras and TensorFlow do as well without them.
    with _uncollected(), hidden([name for name in _COMPANIONS if name != wanted.backend]):
        made: KerasBackend = importlib.import_module(f".on_{wanted.backend}", __package__).make()
        made.set_up(wanted)
        keras = importlib.import_module("keras")
    keras.utils.disable_interactive_logging()
    memory.get_instance(_Started).backend = made


@contextlib.contextmanager
def hidden(names: Iterable[str]) -> Iterator[None]:
    """Within the `with` block, make modules that are not yet imported look as if they were not installed."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Turn the garbage collector off within the `with` block, where it would slow down imports.

    At the end, exclude all existing objects from later collections: imported modules stay anyway.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the output of C++ libraries within the `with` block, since it would land in the server's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, nowhere):
            os.close(descriptor)
