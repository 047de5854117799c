"""Timers of the Linux kernel that send a signal to the process or the thread that made them."""

from __future__ import annotations

import ctypes
import threading

from cerebro_plpy import memory

_PROCESS = ctypes.PyDLL(None)
# Linux's numbers of the clocks, and of who gets the signal.
SINCE_BOOT, WORK_OF_THREAD = 1, 3
_TELL_PROCESS, _TELL_THREAD = 0, 4
_STACK_BYTES = 1 << 17


class _Event(ctypes.Structure):
    """Linux's struct sigevent: which signal a timer sends, and to which thread or process."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_byte * 60),
    )


class _StackPlace(ctypes.Structure):
    """Linux's stack_t: the memory for an alternate signal stack."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class Clock:
    """A timer that sends a signal after some seconds. If the system has no such timers, it does nothing."""

    def __init__(self, goes_by: int, signal: int, *, to_this_thread: bool = False) -> None:
        event = _Event(signal=signal, notify=_TELL_THREAD if to_this_thread else _TELL_PROCESS)
        if to_this_thread:
            event.thread = threading.get_native_id()
        handle = ctypes.c_void_p()
        made = hasattr(_PROCESS, "timer_create") and not _PROCESS.timer_create(
            goes_by, ctypes.byref(event), ctypes.byref(handle)
        )
        self._handle = handle if made else None

    def set(self, seconds: float, every: float = 0) -> None:
        """Start the timer anew: it sends a signal after `seconds`, and then every `every` seconds.

        If `seconds` is 0, it sends no signal. If `every` is 0, it sends only one.
        """
        if self._handle is not None:
            times = (*_seconds_and_nanoseconds(every), *_seconds_and_nanoseconds(seconds))
            _PROCESS.timer_settime(self._handle, 0, (ctypes.c_long * 4)(*times), None)


def _seconds_and_nanoseconds(seconds: float) -> tuple[int, int]:
    return int(seconds), round(seconds % 1 * 1e9)


class _SignalStack:
    """The memory of this thread's alternate signal stack."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(_STACK_BYTES)


def handle_signals_apart() -> None:
    """Make signal handlers in this thread use a stack of their own, unless they have one.

    A kernel of oneDNN lets the stack pointer point into the heap while it computes. A handler that interrupts
    it and uses the same stack would overwrite the heap (https://github.com/uxlfoundation/oneDNN/issues/4845).
    """
    there = _StackPlace()
    _PROCESS.sigaltstack(None, ctypes.byref(there))
    if not there.start:
        own = memory.get_instance(_SignalStack).memory
        _PROCESS.sigaltstack(ctypes.byref(_StackPlace(ctypes.addressof(own), 0, _STACK_BYTES)), None)
