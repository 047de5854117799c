"""Watching a run: its progress in a file, in a terminal and in a notebook, and Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time

import pytest
from cerebro_db import Database, Packed, Run, watch

LONG = {"loss": "mse", "optimizer": "Adam", "batch_size": 1}


@pytest.mark.doors("client", "watch")
def test_a_file_gets_each_line_once(client: Database, packed: Packed, model: int) -> None:
    file = io.StringIO()
    run = client.fit(packed, {**LONG, "model": model}, epochs=10, backend="jax").watch(file)
    lines = file.getvalue().splitlines()
    assert lines[-1].startswith(f"run {run.run_id} finished after ")
    assert "best training loss" in lines[-1]
    assert len(lines) == len(set(lines)) <= 11
    assert "\x1b" not in file.getvalue()


def test_ctrl_c_asks_the_server_to_stop_and_says_so(client: Database, packed: Packed, model: int) -> None:
    run = client.fit(packed, {**LONG, "model": model}, epochs=2000, backend="jax")
    file = io.StringIO()

    def interrupt() -> None:
        while run.info()["visits_done"] < 2:
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    run.watch(file)
    assert f"asked run {run.run_id} to stop" in file.getvalue()
    assert run.status == "finished"
    assert run.info()["visits_done"] < 4000


def test_a_terminal_shows_bars_in_place(run: Run) -> None:
    here, there = os.openpty()
    with os.fdopen(there, "w") as terminal:
        shown = watch.screen(terminal)
        assert isinstance(shown, watch.Terminal)
        shown.show(watch.look(run))
        shown.say("a [remark]")
        shown.show(watch.look(run))
        shown.close(watch.look(run))
    text = _read(here)
    assert "config 1  epoch 3 of 3  finished" in text
    assert text.count("finished after") == 1
    assert "━" in text and "a [remark]" in text
    assert "\x1b[" in text
    assert f"run {run.run_id} finished after " in text.splitlines()[-1]


def _read(here: int) -> str:
    """Return all that was written to a terminal whose other end is closed."""
    chunks: list[bytes] = []
    with contextlib.suppress(OSError):
        while chunk := os.read(here, 65536):
            chunks.append(chunk)
    os.close(here)
    return b"".join(chunks).decode()


def test_a_notebook_gets_one_display_that_is_updated(run: Run) -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    try:
        with capture_output() as captured:
            notebook = watch.Notebook()
            notebook.show(watch.look(run))
            notebook.say("a <remark>")
            notebook.show(watch.look(run))
            notebook.close(watch.look(run))
    finally:
        InteractiveShell.clear_instance()
    pages = [output.data["text/html"] for output in captured.outputs]
    assert "<progress" in pages[1] and "config 2" in pages[1]
    assert "a &lt;remark&gt;" in pages[2]
    assert f"run {run.run_id} finished after" in pages[-1] and "<progress" not in pages[-1]
    assert [bool(output.update) for output in captured.outputs] == [False, True, True, True]
