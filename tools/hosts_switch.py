"""A network switch between the hosts of tools/hosts that can delay and lose packets, and cut hosts off.

Usage: hosts_switch.py FOLDER DEVICE PID…. It makes the network device DEVICE on the machine itself, and eth0
on the host of each process PID. The files delay, loss and cut1, cut2, … in FOLDER set the delay in
milliseconds, the percentage of lost packets, and the hosts that are cut off. They are read at the start and
on SIGHUP. The kernel's netem could do this as well, but few kernels are built with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import sys
import time
from pathlib import Path

_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
_LONGEST = 9100
_OUTSIDE = 0


class _Rules:
    """The rules of the switch: the delay in seconds, the share of lost packets, and the hosts cut off."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.read()

    def read(self) -> None:
        self.delay = self._number("delay") / 1000
        self.loss = self._number("loss") / 100
        self.cut = {host for host in range(1, 4) if self._number(f"cut{host}")}

    def _number(self, name: str) -> float:
        try:
            return float((self._folder / name).read_text())
        except FileNotFoundError:
            return 0.0


def _make_device(name: str) -> int:
    """Make a network device in this process's network namespace; return the descriptor of its frames."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return end


def _devices(outside: str, pids: list[str]) -> list[int]:
    """Make a network device on the machine and on each host; return the descriptors, in this order."""
    ends = [_make_device(outside)]
    enter = ctypes.CDLL(None, use_errno=True).setns
    with open("/proc/self/ns/net") as own:
        for pid in pids:
            with open(f"/proc/{pid}/ns/net") as there:
                if enter(there.fileno(), 0):
                    raise OSError(ctypes.get_errno(), f"cannot enter the network of process {pid}")
                ends.append(_make_device("eth0"))
        enter(own.fileno(), 0)
    return ends


class _Switch:
    def __init__(self, ends: list[int], rules: _Rules) -> None:
        self._ends, self._rules = ends, rules
        self._places: dict[bytes, int] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._number = 0

    def run(self) -> None:
        while True:
            for end in select.select(self._ends, [], [], self._patience())[0]:
                self._take(self._ends.index(end))
            self._send_due()

    def _patience(self) -> float | None:
        """Return the seconds until the next frame is due."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None

    def _take(self, source: int) -> None:
        """Read the frames that a host has sent, and pass them on."""
        while True:
            try:
                frame = os.read(self._ends[source], _LONGEST)
            except OSError:
                return
            to, by = frame[:6], frame[6:12]
            self._places[by] = source
            known = self._places.get(to)
            for target in range(len(self._ends)) if known is None else (known,):
                if target != source:
                    self._pass_on(source, target, frame)

    def _pass_on(self, source: int, target: int, frame: bytes) -> None:
        rules = self._rules
        if {source, target} & rules.cut:
            return
        if _OUTSIDE in (source, target) or not (rules.delay or rules.loss):
            self._send(target, frame)
        elif random.random() >= rules.loss:
            self._number += 1
            heapq.heappush(self._waiting, (time.monotonic() + rules.delay, self._number, target, frame))

    def _send_due(self) -> None:
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(self._waiting)
            if target not in self._rules.cut:
                self._send(target, frame)

    def _send(self, target: int, frame: bytes) -> None:
        # The frame is lost if the device is full or not up yet.
        with contextlib.suppress(OSError):
            os.write(self._ends[target], frame)


def main() -> None:
    folder, outside, *pids = sys.argv[1:]
    rules = _Rules(Path(folder))
    signal.signal(signal.SIGHUP, lambda *_: rules.read())
    switch = _Switch(_devices(outside, pids), rules)
    (Path(folder) / "switch.made").touch()
    switch.run()


if __name__ == "__main__":
    main()
