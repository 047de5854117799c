"""Print, for trees of Python code, counts of things that make code hard to follow.

Usage: shape.py [TREE ...]    by default the package that the server loads, and the client
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = (ROOT / "plpy" / "cerebro_plpy", ROOT / "cerebro_db")
MANY_POSITIONAL = 6
# Methods of Python's own containers that change them.
CHANGES = frozenset(
    """add append appendleft clear discard extend extendleft insert pop popitem popleft remove reverse
    setdefault sort update""".split()
)
GREENPLUM = re.compile(r"is_greenplum")
# The first words of docstrings that only point, and names of functions that say nothing.
POINTING = re.compile(r"\s*(What|The same|Of|Whoever|Whether it|That|Those|Whose|Where)\b")
VAGUE = frozenset({"found", "given", "it", "of", "one", "own"})


@dataclass
class Module:
    path: Path
    tree: ast.Module
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n")


@dataclass
class Shape:
    """The findings in one tree of code, each with its places in files."""

    root: Path
    lines: int
    mutable_globals: list[str] = field(default_factory=list)
    positional: list[str] = field(default_factory=list)
    lambdas: list[str] = field(default_factory=list)
    types: dict[str, set[str]] = field(default_factory=dict)
    circle: list[str] = field(default_factory=list)
    greenplum: dict[str, set[str]] = field(default_factory=dict)
    openings: list[str] = field(default_factory=list)
    vague: list[str] = field(default_factory=list)
    # The folder with the most modules, and its number of modules.
    fullest: tuple[str, int] = ("", 0)

    def per_thousand(self, found: list[str]) -> float:
        return 1000 * len(found) / self.lines

    def ambiguous(self) -> dict[str, set[str]]:
        """Return the names of types that are defined in more than one module, with these modules."""
        return {name: places for name, places in self.types.items() if len(places) > 1}


def look(root: Path) -> Shape:
    modules = [_module(path) for path in sorted(root.rglob("*.py"))]
    shape = Shape(root, sum(module.lines for module in modules))
    types: dict[str, set[str]] = defaultdict(set)
    greenplum: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        place = str(module.path.relative_to(root))
        shape.mutable_globals += [f"{place}: {name}" for name in sorted(mutable_globals(module.tree))]
        for node in ast.walk(module.tree):
            at = f"{place}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Lambda):
                shape.lambdas.append(at)
            elif isinstance(node, ast.Call) and len(node.args) >= MANY_POSITIONAL:
                shape.positional.append(at)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                shape.openings += [at] if POINTING.match(ast.get_docstring(node) or "") else []
                shape.vague += [at] if getattr(node, "name", "").lstrip("_") in VAGUE else []
        for name in _types(module.tree):
            types[name].add(place)
        if GREENPLUM.search(module.text):
            greenplum[place.split("/")[0].removesuffix(".py")].add(place)
    shape.types, shape.greenplum = dict(types), dict(greenplum)
    shape.circle = largest_circle(modules, root)
    shape.fullest = _find_fullest(modules, root)
    return shape


def _find_fullest(modules: Iterable[Module], root: Path) -> tuple[str, int]:
    folders = Counter(str(m.path.parent.relative_to(root)) for m in modules if m.path.stem != "__init__")
    return max(folders.items(), key=lambda one: one[1], default=("", 0))


def _module(path: Path) -> Module:
    text = path.read_text()
    return Module(path, ast.parse(text), text)


def mutable_globals(tree: ast.Module) -> set[str]:
    """Return the global names of a module that its functions bind again, or whose values they change."""
    names = {name for node in tree.body for name in _bound(node)}
    found: set[str] = set()
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)):
        declared = {x for n in ast.walk(function) if isinstance(n, ast.Global) for x in n.names}
        own = _local(function) - declared
        found |= {name for name in _changed(function, declared) if name in names and name not in own}
    return found


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement binds, including in the branches of `if` and `try`."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.If | ast.Try):
        for inner in [*node.body, *node.orelse]:
            yield from _bound(inner)
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _local(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    stored = {
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store | ast.Del)
    }
    return arguments | stored


def _changed(function: ast.FunctionDef | ast.AsyncFunctionDef, declared: set[str]) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and node.id in declared:
            yield node.id
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield from _root(node.value)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES
        ):
            yield from _root(node.func.value)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _types(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the classes and type aliases that a module defines, except type variables."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            yield from (
                t.id.lstrip("_")
                for t in node.targets
                if isinstance(t, ast.Name) and re.fullmatch(r"_?[A-Z][A-Za-z]*[a-z][A-Za-z]*", t.id)
            )


def largest_circle(modules: Iterable[Module], root: Path) -> list[str]:
    """Return the names of the largest set of modules that import one another, directly or indirectly.

    Imports within functions count; imports under TYPE_CHECKING do not.
    """
    names = {_name(module.path, root): module for module in modules}
    graph = {
        name: {x for x in _imports(module, root, set(names)) if x in names} for name, module in names.items()
    }
    return max((group for group in _circles(graph) if len(group) > 1), key=len, default=[])


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(module: Module, root: Path, known: set[str]) -> Iterator[str]:
    own = _name(module.path, root).split(".")
    package = own if module.path.stem == "__init__" else own[:-1]
    for node in _carried_out(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # If an imported name is a module, the package itself does not count.
            full = [f"{source}.{alias.name}" for alias in node.names]
            yield from (name if name in known else source for name in full)


def _carried_out(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _carried_out(child)


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return, for each module, the modules that it imports and that import it, directly or indirectly."""
    reach = {name: _reached(graph, name) for name in graph}
    return [sorted({name, *(x for x in reach[name] if name in reach[x])}) for name in graph]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def report(shape: Shape) -> str:
    of_rooms = Counter(place.split(":")[0].split("/")[0] for place in shape.mutable_globals)
    ambiguous = shape.ambiguous()
    meanings = [f"\n            {name}: {', '.join(sorted(ambiguous[name]))}" for name in sorted(ambiguous)]
    return "\n".join(
        [
            f"{shape.root.name}: {shape.lines} lines",
            f"  {shape.per_thousand(shape.mutable_globals):6.2f}  mutable module globals per 1,000 lines"
            f" ({len(shape.mutable_globals)}: {', '.join(f'{n} in {r}' for r, n in of_rooms.most_common())})",
            f"  {shape.per_thousand(shape.positional):6.2f}  calls with {MANY_POSITIONAL} or more positional"
            f" arguments per 1,000 lines ({len(shape.positional)})",
            f"  {shape.per_thousand(shape.lambdas):6.2f}  lambdas per 1,000 lines ({len(shape.lambdas)})",
            f"  {len(ambiguous):6}  names of types with two or more meanings{''.join(meanings)}",
            f"  {len(shape.circle):6}  modules in the largest import circle {' '.join(shape.circle)}",
            f"  {shape.fullest[1]:6}  modules in the fullest folder ({shape.fullest[0]})",
            f"  {len(shape.openings):6}  docstrings that open with a word that only points",
            f"  {len(shape.vague):6}  functions whose name says nothing, such as `of` and `found`",
            f"  {len(shape.greenplum):6}  rooms that know of Greenplum"
            f" ({sum(map(len, shape.greenplum.values()))} files: {', '.join(sorted(shape.greenplum))})",
        ]
    )


def main(arguments: list[str]) -> None:
    for tree in [Path(argument).resolve() for argument in arguments] or TREES:
        print(report(look(tree)))


if __name__ == "__main__":
    main(sys.argv[1:])
