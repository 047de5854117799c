"""Tables that foreign keys lead to, and the paths along them that begin at an entity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# Schema and name.
TableName = tuple[str, str]
NUMBER, MOMENT, CATEGORY = "number", "moment", "category"


@dataclass(frozen=True)
class RelatedColumn:
    """A column that makes features: its kind, and the name of its type without domains."""

    name: str
    kind: str
    element: str


@dataclass(frozen=True)
class RelatedTable:
    """A table with its primary key and its columns of a kind that makes features."""

    name: TableName
    key: tuple[str, ...]
    columns: tuple[RelatedColumn, ...]

    def column(self, name: str) -> RelatedColumn | None:
        return next((one for one in self.columns if one.name == name), None)


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a child that have the values of a parent's."""

    child: TableName
    columns: tuple[str, ...]
    parent: TableName
    of: tuple[str, ...]


@dataclass(frozen=True)
class PathStep:
    """One foreign key, followed down to the children or up to the parent."""

    key: ForeignKey
    down: bool

    @property
    def table(self) -> TableName:
        return self.key.child if self.down else self.key.parent

    @property
    def to_columns(self) -> tuple[str, ...]:
        """Return the columns of the table that the step leads to."""
        return self.key.columns if self.down else self.key.of

    @property
    def from_columns(self) -> tuple[str, ...]:
        """Return the columns of the table that the step comes from."""
        return self.key.of if self.down else self.key.columns


Path = tuple[PathStep, ...]


@dataclass(frozen=True)
class RelatedSchema:
    """The tables around an entity, and the foreign keys between them."""

    entity: TableName
    tables: Mapping[TableName, RelatedTable]
    keys: Sequence[ForeignKey]

    def label(self, path: Path) -> str:
        """Return the name of a path: its tables, with the columns of a key that has a twin."""
        return "_".join(map(self._label, path)) if path else self.entity[1]

    def _label(self, step: PathStep) -> str:
        ends = (step.key.child, step.key.parent)
        twins = [key for key in self.keys if (key.child, key.parent) == ends]
        # Where children of the table that a step comes from are in the same table, they have its name.
        has_children = any((key.parent, key.child) == ends for key in self.keys)
        if len(twins) == 1 and (step.down or not has_children):
            return step.table[1]
        return f"{step.table[1]}_by_{'_'.join(step.key.columns)}"


def walk(
    entity: TableName, keys: Sequence[ForeignKey], depth: int, omitted: Collection[TableName] = ()
) -> list[Path]:
    """Return all paths of up to `depth` steps, the shortest first; no step reverses the one before it."""
    found: list[Path] = [()]
    ends: list[Path] = [()]
    for _ in range(depth):
        further = ((*path, step) for path in ends for step in _steps(entity, path, keys))
        ends = [path for path in further if path[-1].table not in omitted]
        found += ends
    return found


def _steps(entity: TableName, path: Path, keys: Sequence[ForeignKey]) -> list[PathStep]:
    here = path[-1].table if path else entity
    down = [PathStep(key, True) for key in keys if key.parent == here]
    up = [PathStep(key, False) for key in keys if key.child == here]
    # Up the key that led down here is where the path came from.
    return [*down, *(step for step in up if not path or path[-1] != PathStep(step.key, True))]


def is_of_siblings(path: Path) -> bool:
    """Return whether a path goes up to a parent, and from there down to other children."""
    downs = [place for place, step in enumerate(path) if step.down]
    return bool(downs) and any(not step.down for step in path[: downs[-1]])


def base_of(path: Path) -> Path:
    """Return the path up to its last step down: what lies behind it has one row for each of its rows."""
    last = max((place for place, step in enumerate(path, 1) if step.down), default=0)
    return path[:last]
