"""Which rooms and libraries each room of the package may import, and how long files and functions may be."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cerebro_plpy.calls import CALLS, find_call

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "plpy" / "cerebro_plpy"

PURE = {
    "engine",
    "explaining",
    "features",
    "forecasting",
    "logical",
    "madlib",
    "nets",
    "planner",
    "portable",
    "registry",
    "relations",
}
KNOWS: dict[str, set[str]] = {
    "errors": set(),
    "memory": set(),
    "clocks": set(),
    "programs": set(),
    "seeding": set(),
    "threads": set(),
    "database": {"commands", "server"},
    "commands": {"store"},
    "server": {"commands", "packing", "planner", "predicting", "segment", "store", "topology"},
    "postgresql": {"commands", "packing", "planner", "predicting", "segment", "store", "topology"},
    "citus": {"commands", "engine", "packing", "planner", "postgresql", "segment", "store", "topology"},
    "cluster": {
        "commands",
        "engine",
        "madlib",
        "packing",
        "planner",
        "predicting",
        "segment",
        "store",
        "topology",
    },
    "madlib": set(),
    "logical": {"madlib"},
    "planner": {"logical"},
    "engine": {"madlib"},
    "features": {"logical", "madlib"},
    "explaining": {"features", "logical"},
    "forecasting": {"logical"},
    "nets": {"features", "logical", "madlib"},
    "registry": {"madlib"},
    "portable": {"engine", "features", "madlib", "predicting"},
    "relations": set(),
    "store": {"features", "madlib", "relations"},
    "packing": {"features", "logical", "madlib", "relations", "store"},
    "topology": {"commands", "store"},
    "predicting": {
        "engine",
        "explaining",
        "features",
        "forecasting",
        "logical",
        "madlib",
        "packing",
        "planner",
        "registry",
        "segment",
        "store",
    },
    "executor": {
        "commands",
        "engine",
        "forecasting",
        "logical",
        "madlib",
        "nets",
        "packing",
        "planner",
        "predicting",
        "registry",
        "relations",
        "store",
        "topology",
    },
    "segment": {"commands", "engine", "logical", "madlib", "packing", "planner", "store"},
    "backend": {"citus", "cluster", "commands", "postgresql", "segment", "server", "store"},
    "doors": {"backend", "madlib", "store"},
    "calls": {"executor", "packing", "predicting"},
    "entry": {
        "backend",
        "calls",
        "cluster",
        "commands",
        "doors",
        "executor",
        "madlib",
        "packing",
        "predicting",
        "segment",
        "store",
    },
}
USES: dict[str, set[str]] = {
    "features": {"numpy", "PIL"},
    "engine": {"numpy", "ml_dtypes", "keras", "tensorflow", "jax", "torch"},
    "backend": {"plpy"},
    "doors": {"plpy"},
    "entry": set(),
    "logical": {"optuna"},
    "planner": {"numpy", "scipy"},
    "relations": {"numpy", "scipy"},
    "citus": {"psycopg2"},
    "cluster": {"numpy", "psycopg2"},
    "topology": {"psycopg2"},
}
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|COPY|LOCK|TRUNCATE|"
    r"CREATE|ALTER|DROP|GRANT|REVOKE|SET|RESET)\s"
)

modules = sorted(PACKAGE.rglob("*.py"))
every_module = pytest.mark.parametrize("file", modules, ids=[str(m.relative_to(PACKAGE)) for m in modules])
ours = sorted(
    file for folder in ("plpy", "cerebro_db", "tests", "tools") for file in (ROOT / folder).rglob("*.py")
)
every_file = pytest.mark.parametrize("file", ours, ids=[str(file.relative_to(ROOT)) for file in ours])


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports; relative imports are made absolute."""
    package = ["cerebro_plpy", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def texts(file: Path) -> Iterator[str]:
    """Yield every string in a file except docstrings."""
    tree = ast.parse(file.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


@every_module
def test_a_room_knows_only_its_neighbours(file: Path) -> None:
    room = room_of(file)
    common = {"clocks", "errors", "memory", "programs", "seeding", "threads", room}
    if room not in PURE:
        common.add("database")
    inside = {name.split(".")[1] for name in imports(file) if name.startswith("cerebro_plpy.")}
    assert inside <= KNOWS.get(room, set()) | common


def test_calls_names_functions_of_its_neighbours_alone() -> None:
    named = {path for call in CALLS.values() for path in call if path is not None}
    assert {path.split(".")[0] for path in named} == KNOWS["calls"]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_carried_out_by_a_function_of_the_session(name: str) -> None:
    find_call(name)
    module, _, function = CALLS[name].function.rpartition(".")
    carries_out = getattr(importlib.import_module(f"cerebro_plpy.{module}"), function)
    assert next(iter(inspect.signature(carries_out).parameters)) == "db"


def test_the_executor_reads_states_and_knows_nothing_else_of_the_engine() -> None:
    named = {name for file in modules if room_of(file) == "executor" for name in imports(file)}
    assert {name for name in named if name.startswith("cerebro_plpy.engine")} == {"cerebro_plpy.engine.state"}


@every_module
def test_a_room_uses_only_its_libraries(file: Path) -> None:
    outside = {name.split(".")[0] for name in imports(file)} - sys.stdlib_module_names - {"cerebro_plpy"}
    assert outside <= USES.get(room_of(file), {"numpy"})


def test_one_module_alone_knows_optuna() -> None:
    there = [file for file in modules if room_of(file) == "logical"]
    users = [file.name for file in there if any(name.split(".")[0] == "optuna" for name in imports(file))]
    assert users == ["tpe.py"]


@every_module
def test_nobody_asks_which_server_it_is(file: Path) -> None:
    """Outside `store/`, no module asks whether the server is Greenplum; only backend.py chooses."""
    source = file.read_text()
    assert room_of(file) == "store" or "is_greenplum" not in source
    assert file.name in ("backend.py", "gangs.py") or "IS_CLUSTER" not in source


@every_module
def test_sql_text_stands_in_the_store(file: Path) -> None:
    if room_of(file) != "store":
        assert not [text for text in texts(file) if STATEMENT.match(text)]


@every_module
def test_only_the_servers_rooms_name_it_and_the_dictionary_of_the_session(file: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)}
    assert room_of(file) in ("backend", "doors") or not names & {"GD", "SD", "plpy"}


@pytest.mark.parametrize("room", sorted(KNOWS.keys() - {"errors"}))
def test_few_files_lie_side_by_side(room: str) -> None:
    folders = [folder for folder in (PACKAGE / room, *(PACKAGE / room).rglob("*")) if folder.is_dir()]
    counts = {
        folder: len({file.name for file in folder.glob("*.py")} - {"__init__.py"}) for folder in folders
    }
    assert {folder.name: count for folder, count in counts.items() if count > 12} == {}


@every_file
def test_nothing_is_long_enough_to_hide_something(file: Path) -> None:
    source = file.read_text()
    assert source.count("\n") <= 500
    functions = (
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert not [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= 60]


def test_the_folder_plpy_does_not_stand_for_the_servers_module() -> None:
    assert str(ROOT) not in sys.path
    assert "" not in sys.path
    assert importlib.util.find_spec("plpy") is None


def test_the_page_on_architecture_says_what_is_so() -> None:
    """The page names only files that exist, and its table of rooms equals the one in this file."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert len(named) > 20
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, PACKAGE))] == []
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| [^|]+ \| ([^|]+) \|$", page, re.M)
    said = {room: set(re.findall(r"`(\w+)`", known)) for room, known in rows}
    assert said == {room: KNOWS[room] for room in said if room != "entry"} | {"entry": set()}
    assert said.keys() == KNOWS.keys() - {"errors", "seeding", "database"}
