"""The counts that `make shape` makes of source code, tested on a tree of a few lines and on the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "shape.py"
ONE = """
from __future__ import annotations
if TYPE_CHECKING:
    from tree.sub import three
_kept = {}
_last = None
_rebound = 0
TABLE = {"a": 1}
Pair = tuple[int, int]
class Row: pass
class _Only: pass
def keep(x):
    _kept["x"] = x
    _last.append(x)
    TABLE = {}
    TABLE["local"] = x
    other = TABLE["a"]
def rebind():
    global _rebound
    _rebound = 1
f(1, 2, 3, 4, 5, 6)
f(1, 2, 3, 4, 5, x=6)
"""
TWO = """
Row = list[int]
def late():
    from tree.sub import three
    return lambda: three
"""
THREE = """
from .. import two
from tree.one import Pair
def fork(db):
    return is_greenplum(db)
"""


@pytest.fixture(scope="module")
def shape() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shape", TOOL)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    # A data class looks its own module up.
    sys.modules["shape"] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    for name, text in {
        "one": ONE,
        "two": TWO,
        "sub/three": THREE,
        "__init__": "",
        "sub/__init__": "",
    }.items():
        (root / f"{name}.py").write_text(text)
    return root


def test_what_is_counted(shape: ModuleType, tree: Path) -> None:
    found = shape.look(tree)
    assert found.lines == sum(text.count("\n") for text in (ONE, TWO, THREE))
    assert found.mutable_globals == ["one.py: _kept", "one.py: _last", "one.py: _rebound"]
    assert found.positional == ["one.py:21"]
    assert found.lambdas == ["two.py:5"]
    assert found.ambiguous() == {"Row": {"one.py", "two.py"}}
    assert found.circle == ["tree.sub.three", "tree.two"]
    assert found.greenplum == {"sub": {"sub/three.py"}}


def test_the_report_names_what_it_counts(shape: ModuleType, tree: Path) -> None:
    said = shape.report(shape.look(tree))
    assert "tree: 32 lines" in said
    assert "(3: 3 in one.py)" in said
    assert "Row: one.py, two.py" in said


def test_the_shape_of_the_package_stays_what_it_has_become(shape: ModuleType) -> None:
    server, client = (shape.look(tree) for tree in shape.TREES)
    for found in (server, client):
        assert found.circle == found.vague == found.openings == []
        assert found.per_thousand(found.positional) < 1
    assert server.per_thousand(server.positional) <= 0.5
    assert server.per_thousand(server.mutable_globals) <= 0.2
    assert server.per_thousand(server.lambdas) <= 1.5
    assert not client.mutable_globals
    assert server.ambiguous() == {}
    assert set(server.greenplum) == {"store"}
