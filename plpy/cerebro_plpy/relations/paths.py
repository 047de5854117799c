"""Tables that foreign keys connect, and the paths along the keys that begin at an entity's table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# Schema and name.
TableName = tuple[str, str]
NUMBER, MOMENT, CATEGORY = "number", "moment", "category"


@dataclass(frozen=True)
class RelatedColumn:
    """A column from which features are made: its name, its kind, and the name of its type (`element`).

    If the type is a domain, `element` is the base type of the domain.
    """

    name: str
    kind: str
    element: str


@dataclass(frozen=True)
class RelatedTable:
    """A table with its primary key, and the columns from which features can be made."""

    name: TableName
    key: tuple[str, ...]
    columns: tuple[RelatedColumn, ...]

    def column(self, name: str) -> RelatedColumn | None:
        return next((one for one in self.columns if one.name == name), None)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key: columns of a child table that refer to the columns `of` a parent table."""

    child: TableName
    columns: tuple[str, ...]
    parent: TableName
    of: tuple[str, ...]


@dataclass(frozen=True)
class PathStep:
    """A step of a path: one foreign key, followed down to the child table or up to the parent table."""

    key: ForeignKey
    down: bool

    @property
    def table(self) -> TableName:
        return self.key.child if self.down else self.key.parent

    @property
    def to_columns(self) -> tuple[str, ...]:
        """The key's columns in the table to which the step leads."""
        return self.key.columns if self.down else self.key.of

    @property
    def from_columns(self) -> tuple[str, ...]:
        """The key's columns in the table from which the step comes."""
        return self.key.of if self.down else self.key.columns


Path = tuple[PathStep, ...]


@dataclass(frozen=True)
class RelatedSchema:
    """An entity's table, the tables around it, and the foreign keys between all these tables."""

    entity: TableName
    tables: Mapping[TableName, RelatedTable]
    keys: Sequence[ForeignKey]

    def label(self, path: Path) -> str:
        """Return the name of a path: the names of its tables, joined by _.

        If several foreign keys connect two tables, the name has the columns of the key as well.
        """
        return "_".join(map(self._label, path)) if path else self.entity[1]

    def _label(self, step: PathStep) -> str:
        ends = (step.key.child, step.key.parent)
        twins = [key for key in self.keys if (key.child, key.parent) == ends]
        # A step up needs another name if the same table also holds children of the step's table.
        has_children = any((key.parent, key.child) == ends for key in self.keys)
        if len(twins) == 1 and (step.down or not has_children):
            return step.table[1]
        return f"{step.table[1]}_by_{'_'.join(step.key.columns)}"


def walk(
    entity: TableName, keys: Sequence[ForeignKey], depth: int, omitted: Collection[TableName] = ()
) -> list[Path]:
    """Return all paths of up to `depth` steps that begin at the entity's table, the shortest first.

    A path does not lead to tables in `omitted`. After a step down, it does not go up the same key again.
    """
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
    # A step up the key that led down here would lead back.
    return [*down, *(step for step in up if not path or path[-1] != PathStep(step.key, True))]


def is_of_siblings(path: Path) -> bool:
    """Return whether a path goes up to a parent, and from there down to other children."""
    downs = [place for place, step in enumerate(path) if step.down]
    return bool(downs) and any(not step.down for step in path[: downs[-1]])


def leads_back(entity: TableName, path: Path) -> bool:
    """Return whether a path's last step leads from a parent to its other children in the entity's table."""
    return bool(path) and path[-1].down and path[-1].table == entity and is_of_siblings(path)


def base_of(path: Path) -> Path:
    """Return the beginning of a path, up to its last step down.

    All later steps go up to a parent, so they lead from each row to a single row.
    """
    last = max((place for place, step in enumerate(path, 1) if step.down), default=0)
    return path[:last]
