"""docs/tutorial.ipynb runs to its last cell, and the committed file has the outputs of such a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from shell import CLIENT

pytestmark = pytest.mark.slow

FILE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"
# Learning curves, the timeline of the segments, the confusion matrix.
PICTURES = 3
RIGHT = re.compile(r"right: (\d+\.\d)%")


def text_of(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(str(output.get("text", output.get("data", {}).get("text/plain"))) for output in outputs)


def pictures(notebook: nbformat.NotebookNode) -> int:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.fixture(scope="module")
def executed(database: str) -> Iterator[nbformat.NotebookNode]:
    """Run a copy of the notebook in a database of its own; raise the error of the first cell that fails."""
    notebook = nbformat.read(FILE, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGDATABASE", database)
        patch.setenv("PYTHONPATH", str(CLIENT))
        NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    yield notebook


@pytest.mark.doors("notebook", "pack fit background watch compare predict")
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own
def test_it_runs_and_recognises_digits(executed: nbformat.NotebookNode) -> None:
    found = RIGHT.search(text_of(executed))
    assert found
    assert float(found[1]) > 90
    assert pictures(executed) == PICTURES


def test_it_is_kept_with_what_it_printed() -> None:
    kept = nbformat.read(FILE, as_version=4)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert RIGHT.search(text_of(kept))
    assert pictures(kept) == PICTURES
    assert not [o for cell in code for o in cell.outputs if o.get("name") == "stderr"]
    assert not re.search(r"/work/|/tmp/|/root/|/home/|Traceback", FILE.read_text())
