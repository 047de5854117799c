"""Keeps what contenders reached on tables, trial by trial, so that a comparison can take several runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

KEPT = Path(__file__).resolve().parent / "trials.json"


@dataclass(frozen=True)
class Trial:
    """The result of a contender on a table: `score` is log loss or R², `other` is accuracy or RMSE.

    `version` is that of the contender. `memory` is the peak of all its processes, in bytes.
    """

    contender: str
    table: str
    seed: int
    version: str
    score: float
    other: float
    seconds: float
    memory: int


@dataclass
class Trials:
    """All trials that are kept, and the file that they are kept in."""

    found: list[Trial] = field(default_factory=list[Trial])
    file: Path = KEPT

    @classmethod
    def read(cls, file: Path = KEPT) -> Trials:
        return cls([Trial(**one) for one in json.loads(file.read_text())] if file.exists() else [], file)

    def has(self, contender: str, table: str, seed: int, version: str) -> bool:
        wanted = (contender, table, seed, version)
        return any((one.contender, one.table, one.seed, one.version) == wanted for one in self.found)

    def keep(self, new: Trial) -> None:
        """Add a trial in place of one of the same contender, table and seed, and write the file."""
        place = (new.contender, new.table, new.seed)
        others = [one for one in self.found if (one.contender, one.table, one.seed) != place]
        self.found = sorted([*others, new], key=lambda one: (one.contender, one.table, one.seed))
        lines = ",\n".join(json.dumps(asdict(one)) for one in self.found)
        self.file.write_text(f"[\n{lines}\n]\n")

    def list_trials(self, contender: str, table: str, seeds: Sequence[int]) -> list[Trial]:
        """Return the trials of a contender on a table, in the order of the seeds."""
        own = {one.seed: one for one in self.found if (one.contender, one.table) == (contender, table)}
        return [own[seed] for seed in seeds if seed in own]
