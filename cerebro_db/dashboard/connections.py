"""The dashboard's connections: limits their number, and the time that one may be idle."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 100
SECONDS = 10.0


class Connection(H11Protocol):
    """A connection that ends if no request comes, or if its client reads nothing of the response, for 10 s.

    It also ends if there are too many connections. Anybody who reaches the port can open connections without
    a token; idle ones would use up the file descriptors of the process.
    """

    _deadline: asyncio.TimerHandle | None = None
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and not self.flow.write_paused:
            self._wait_no_more()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Another request may have been there already.
        if self.cycle.response_complete:
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.cycle.response_complete:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._wait_no_more()
        self._unsent = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(SECONDS, self._end_if_still)

    def _end_if_still(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._wait()
        else:
            self.transport.abort()

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
