"""Break one line of the code at a time, and see whether the tests of `make test` notice.

Usage: seed_faults.py [--count 40] [--seed 0] [--only ROOM ...] [--whole] [--list]

The faults are drawn by the seed, from one module of each room in turn: another comparison or operator, `and`
for `or`, a missing `not`, a number that is off by one. Each fault is installed and tested until a test fails:
by the unit tests that import the module, then by the tests with a server for its folder; with --whole, also
by all other tests of `make test`. Git removes the faults: use a separate worktree, and commit nothing there
meanwhile.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "plpy" / "cerebro_plpy"
CLIENT = ROOT / "cerebro_db"
CHOICE = [
    "-x",
    "-q",
    "--timeout=300",
    "-m",
    "not slow and not alone and not torch and not gpu and not greenplum",
]

# The tests with a server that test a room, or a folder in it, most.
SERVED = {
    "cluster": "db/cancel db/segment_process db/direct_commands",
    "engine": "db/nets db/invariants db/engines db/fused",
    "executor/calls": "db/train db/functions db/automl db/predict",
    "executor/ensembles": "db/ensemble db/ensemble_folds",
    "executor/models": "db/registry db/registry_rights db/registry_aliases db/retrain client/brought",
    "executor/plans": "db/explain db/groups_plans client/plan",
    "executor/related": "db/relate db/relate_models db/propagate db/forecast",
    "executor/running": "db/fit db/steering db/groups db/averaging",
    "executor/starting": "db/fit db/warm_start db/groups db/frozen db/bad_input",
    "explaining": "db/importance",
    "features": "db/columns db/columns_outliers db/check db/also_categories db/split",
    "forecasting": "unit/forecasting db/forecast db/forecast_odd",
    "logical": "unit/search_tpe db/steering db/automl db/time_left db/early_stopping db/settings",
    "madlib": "db/corpus db/madlib_words db/madlib_scripts db/fit db/bad_input",
    "nets": "db/nets db/train db/lora db/forecast",
    "packing": "db/packing db/columns db/append db/split db/windows db/even",
    "planner": "db/explain db/groups_plans db/steering client/plan db/fused",
    "predicting/examining": "db/importance db/check db/inspect_net",
    "predicting": "db/predict db/predict_one db/predict_columns db/groups_left_out db/ensemble",
    "registry": "db/registry db/registry_aliases db/registry_promote",
    "relations": "db/relate db/relate_models db/propagate db/refresh_propagation",
    "segment": "db/invariants db/fit db/fused db/groups db/threads db/materialize",
    "store/models": "db/registry db/registry_rights db/registry_aliases db/functions",
    "store/packed": "db/packing db/columns db/append db/split",
    "store/related": "db/relate db/propagate db/forecast",
    "store/runs": "db/fit db/views db/groups db/steering",
    "store": "db/views db/fit db/groups db/registry db/relate contract/catalog",
    "topology": "db/cancel db/elsewhere db/segment_process",
    "cerebro_plpy": "db/functions db/direct_commands",
    "cerebro_db": "client/models client/train client/registry client/saved client/files client/plan",
    "cli": "client/shell/cli client/shell/cli_server",
    "dashboard": "client/shell/dashboard client/shell/dashboard_groups client/shell/dashboard_hostile",
}  # fmt: skip
ALL = [f"tests/{folder}" for folder in ("unit", "contract", "db", "faults", "client")]
MINUTES = 60

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    file: Path
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        place = self.file.relative_to(ROOT)
        return f"{place}:{self.line}: {self.before.strip()}  ->  {self.after.strip()}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Break a line at a time, and see whether the tests notice.")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], metavar="ROOM")
    parser.add_argument("--whole", action="store_true", help="run all tests before a fault has lived")
    parser.add_argument("--list", action="store_true", help="print the faults, and test nothing")
    args = parser.parse_args()
    faults = draw_faults(args.count, args.seed, args.only)
    if args.list:
        print(*faults, sep="\n")
        return 0
    if _git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("seed_faults: there are changes that are not committed")
    lived = 0
    for number, fault in enumerate(faults, 1):
        start = time.monotonic()
        caught = try_fault(fault, whole=args.whole)
        lived += caught is None
        took = time.monotonic() - start
        print(f"{number}. {fault}\n   {caught or 'LIVED'} ({took:.0f} s)", flush=True)
    print(f"{len(faults) - lived} of {len(faults)} faults were noticed")
    return lived > 0


def draw_faults(count: int, seed: int, only: Sequence[str] = ()) -> list[Fault]:
    """Return `count` faults, drawn from each room in turn; each module gets at most one."""
    random_ = random.Random(seed)
    rooms = {room: files for room, files in _rooms().items() if not only or room in only}
    for files in rooms.values():
        random_.shuffle(files)
    faults: list[Fault] = []
    while len(faults) < count and any(rooms.values()):
        for files in rooms.values():
            while files and len(faults) < count:
                possible = list(possible_faults(files.pop()))
                if possible:
                    faults.append(random_.choice(possible))
                    break
    return faults


def room_of(file: Path) -> str:
    """Return the room of a module; for a module outside any folder, the name of its package."""
    inside = _place(file)
    return inside[0] if len(inside) > 1 else (SERVER if file.is_relative_to(SERVER) else CLIENT).name


def _place(file: Path) -> tuple[str, ...]:
    return file.relative_to(SERVER if file.is_relative_to(SERVER) else CLIENT).parts


def _rooms() -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = {}
    for tree in (SERVER, CLIENT):
        for file in sorted(tree.rglob("*.py")):
            rooms.setdefault(room_of(file), []).append(file)
    return rooms


def possible_faults(file: Path) -> Iterator[Fault]:
    """Yield each fault that changes a line of the module and leaves it valid Python."""
    text = file.read_text()
    lines = text.splitlines()
    for node in ast.walk(_only_deeds(ast.parse(text))):
        for line, start, end, new in _changes(node, lines):
            before = lines[line - 1]
            # Offsets are bytes.
            raw = before.encode()
            after = (raw[:start] + new.encode() + raw[end:]).decode()
            if after != before:
                yield Fault(file, line, before, after)


def _only_deeds(tree: ast.Module) -> ast.Module:
    """Remove annotations and named constants from a tree, and return it.

    Annotations have no effect, and tests do not check the exact values of constants.
    """
    tree.body = [
        node for node in tree.body
        if not (isinstance(node, ast.Assign) and all(n.id.isupper() for n in _names(node)))
    ]  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for each in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs):
                each.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return tree


def _names(node: ast.Assign) -> list[ast.Name]:
    return [each for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield each possible change of a node: its line, its first byte, the byte after it, and the new text."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _between(lines, node.left, node.comparators[0], *COMPARISONS[type(node.ops[0])])
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not isinstance(node.left, ast.Constant | ast.JoinedStr):
            yield from _between(lines, node.left, node.right, *OPERATORS[type(node.op)])
    elif isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield from _between(lines, node.values[0], node.values[1], *words)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.lineno, node.col_offset, node.operand.col_offset, ""
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.lineno == node.end_lineno:
        yield node.lineno, node.col_offset, node.end_col_offset or 0, str(node.value + 1)


def _between(
    lines: list[str], left: ast.expr, right: ast.expr, old: str, new: str
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the change of an operator from `old` to `new`, if its operands are on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    gap = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
    if gap.count(old) == 1:
        start = left.end_col_offset + gap.index(old)
        yield right.lineno, start, start + len(old), new


def try_fault(fault: Fault, *, whole: bool) -> str | None:
    """Install the code with a fault, run the tests, and remove the fault; return the first failure."""
    text = fault.file.read_text().splitlines(keepends=True)
    text[fault.line - 1] = fault.after + "\n"
    fault.file.write_text("".join(text))
    try:
        _make("deploy", "client")
        return _first_failure(fault, whole=whole)
    finally:
        _git("checkout", "--", str(fault.file))


def _first_failure(fault: Fault, *, whole: bool) -> str | None:
    stages = [
        _unit_tests(fault.file),
        [_test_file(name) for name in _served(fault.file).split()],
        ALL if whole else [],
    ]
    failures = (_failure_of(files) for files in stages if files)
    return next((failure for failure in failures if failure), None)


def _served(file: Path) -> str:
    """Return the names of the tests in `SERVED` for a module's folder, or else for its room."""
    return SERVED.get("/".join(_place(file)[:2])) or SERVED[room_of(file)]


def _test_file(name: str) -> str:
    folder, _, module = name.rpartition("/")
    return f"tests/{folder}/test_{module}.py"


def _unit_tests(file: Path) -> list[str]:
    """Return the files of the unit tests that import a module by name."""
    tree = SERVER.parent if file.is_relative_to(SERVER) else ROOT
    module = ".".join(file.relative_to(tree).with_suffix("").parts).removesuffix(".__init__")
    folder, _, name = module.rpartition(".")
    tests = sorted((ROOT / "tests" / "unit").glob("test_*.py"))
    return [str(test.relative_to(ROOT)) for test in tests if _imports(test.read_text(), module, folder, name)]


def _imports(text: str, module: str, folder: str, name: str) -> bool:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            if node.module == module or (
                node.module == folder and any(each.name == name for each in node.names)
            ):
                return True
        elif isinstance(node, ast.Import) and any(each.name == module for each in node.names):
            return True
    return False


def _failure_of(files: list[str]) -> str | None:
    workers = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"] if len(files) > 1 else []
    command = [".local/venv/bin/pytest", *CHOICE, *workers, *files]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=MINUTES * 60
        )
    except subprocess.TimeoutExpired:
        return f"no end within {MINUTES} minutes of {' '.join(files)}"
    if done.returncode == 0:
        return None
    named = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return (named or done.stdout.splitlines()[-1:] or [done.stderr[-200:]])[0][:200]


def _environment() -> dict[str, str]:
    told = subprocess.run(["make", "-s", "env"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pairs = told.replace("export ", "").split()
    return os.environ | {name: value.strip("'") for name, _, value in (pair.partition("=") for pair in pairs)}


def _make(*targets: str) -> None:
    subprocess.run(["make", "-s", *targets], cwd=ROOT, check=True, capture_output=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
