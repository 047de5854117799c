"""The work of a run in numbers: its kinds of configs, its rows, its sessions.

This module does not know how long anything takes (`rates.py`) or in which order it is done (`plan.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from cerebro_plpy.logical import budget
from cerebro_plpy.planner.bundles import MOST_MEMBERS
from cerebro_plpy.planner.cuts import TrunkChoice

# Metrics do not depend on the batch size, and larger batches than most configs use are faster.
EVALUATION_BATCH = 256


def digest(*parts: str) -> str:
    """Return a short hash of the parts, equal only if all parts are equal."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# A piece of compiled code, by engine, compiled net, and rows of a batch.
Code = tuple[str, str, int]


@dataclass(frozen=True)
class ConfigKind:
    """A kind of config: an architecture, the way it is compiled, and a batch size, which decide the costs."""

    model_id: int
    architecture: str
    # A digest of the architecture and the parameters that its code depends on.
    compiled: str
    batch_size: int
    passes: int
    backend: str
    # The cost of one row, as counted by engine/models/counting.py.
    work: Mapping[str, float] = field(hash=False)
    parameters: int = 0
    state_bytes: int = 0
    # The bytes stored once for all states of the config or, if weights were given, of the architecture.
    frozen_bytes: int = 0
    weight_bytes: int = 0
    # The number of shards of the net, and the most bytes on the device if there are several shards.
    shards: int = 1
    device_bytes: int = 0
    # The share of a segment's rows that a visit trains on: all but a fold's, of those an epoch's part.
    share: float = 1.0
    # The bytes that a training step takes beside states and rows, if the engine was asked.
    step_bytes: int | None = None
    # The frozen layers that are computed once, and the kind whose layers all run in each pass.
    trunk: TrunkChoice | None = None
    whole: ConfigKind | None = None
    # The fit parameters, and whether more layers train from some epoch on.
    fit: str = ""
    thaws: bool = False

    def cut(self, trunk: TrunkChoice) -> ConfigKind:
        """Return the kind with the layers of `trunk` computed once, so that only the other layers train."""
        left = {name: max(0.0, cost - trunk.work.get(name, 0.0)) for name, cost in self.work.items()}
        compiled = digest(self.compiled, *trunk.names)
        return replace(self, work=left, compiled=compiled, trunk=trunk, whole=self)

    @property
    def computed_once(self) -> ConfigKind | None:
        """A kind made of the layers that are computed once, or None if there are none."""
        if self.trunk is None:
            return None
        return replace(
            self, work=self.trunk.work, compiled=digest(self.compiled, "once"), trunk=None, whole=None
        )

    @cached_property
    def name(self) -> str:
        return digest(self.backend, self.compiled, str(self.batch_size))

    @property
    def code(self) -> Code:
        return self.backend, self.compiled, self.batch_size


@dataclass(frozen=True)
class GroupSizes:
    """The number of rows of each group.

    `at_home` has a list for each segment, of the groups that lie on this segment alone. `cut` has the groups
    that lie on all segments.
    """

    at_home: Sequence[Sequence[int]]
    cut: Sequence[int] = ()
    # Whether a model of all rows is trained as well.
    fallback: bool = False
    fuse: bool = True
    checkpoint: int | None = None

    @cached_property
    def count(self) -> int:
        """The number of models that each config trains."""
        return sum(map(len, self.at_home)) + self.hopping

    @property
    def hopping(self) -> int:
        """How many of the models that a config trains hop from segment to segment."""
        return len(self.cut) + self.fallback

    @cached_property
    def sizes(self) -> Sequence[int]:
        return [*(rows for own in self.at_home for rows in own), *self.cut]

    @cached_property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def largest_bundle(self) -> int:
        return min(MOST_MEMBERS, max(map(len, self.at_home), default=0))


@dataclass(frozen=True)
class RunWork:
    """The work of a run before it begins; `rows` and `validation_rows` have the number for each segment."""

    kinds: Mapping[int, ConfigKind]
    rows: Sequence[int]
    validation_rows: Sequence[int]
    row_bytes: float
    epochs: int
    frequency: int
    seed: int
    threads: int
    sessions: int
    memory_mb: int
    # The host of each segment, or of the first ones if the others repeat these in turn.
    hosts: Sequence[str]
    even: bool = False
    average_from: int | None = None
    # Whether the sessions have started their engines already, and what they have compiled before.
    warm: bool = False
    compiled: frozenset[Code] = frozenset()
    # The architectures that begin with weights, which all of their configs share.
    given_weights: frozenset[int] = frozenset()
    epochs_per_pass: int = 1
    training_metrics: bool = True
    use_gpus: bool = False
    # Set if rows are in groups; `kinds` then has each config once.
    groups: GroupSizes | None = None

    @property
    def models(self) -> int:
        """The number of models that each config trains: 1, or one for each group."""
        return 1 if self.groups is None else self.groups.count

    @property
    def segments(self) -> int:
        return len(self.rows)

    @cached_property
    def alike(self) -> Mapping[int, int]:
        """The number of segments with equal numbers of rows and the same host, by the first of them."""
        seen: dict[tuple[int, int, str], int] = {}
        found: dict[int, int] = {}
        for segment in range(self.segments):
            like = self.rows[segment], self.validation_rows[segment], self.host_of(segment)
            first = seen.setdefault(like, segment)
            found[first] = found.get(first, 0) + 1
        return found

    def host_of(self, segment: int) -> str:
        return self.hosts[segment % len(self.hosts)]

    @property
    def backends(self) -> list[str]:
        """The engines of the configs; each segment has a session for each engine."""
        return sorted({kind.backend for kind in self.kinds.values()})

    def on(self, backends: Mapping[int, str]) -> RunWork:
        """Return the work with other engines, given for each architecture."""
        kinds = {key: replace(kind, backend=backends[kind.model_id]) for key, kind in self.kinds.items()}
        return replace(self, kinds=kinds)

    def needs_code(self, kind: ConfigKind, there: AbstractSet[Code]) -> bool:
        """Return whether a session that has compiled the codes `there` must compile more for a kind.

        JAX compiles code for each number of rows; TensorFlow and PyTorch use one code for all of them.
        """
        if kind.backend == "jax":
            return kind.code not in there
        return all(code[:2] != kind.code[:2] for code in there)

    def visit_batches(self, kind: ConfigKind, segment: int) -> int:
        return kind.passes * -(-int(self.rows[segment] * kind.share) // kind.batch_size)

    def evaluation_batches(self, segment: int) -> int:
        trained = self.rows[segment] // self.epochs_per_pass
        validated = budget.count_most_measured(self.validation_rows[segment], self.epochs_per_pass)
        # Without validation rows, each config is measured on its fold, which is among the training rows.
        sizes = (trained if self.training_metrics or not validated else 0, validated)
        return sum(-(-size // EVALUATION_BATCH) for size in sizes)

    def activation_bytes(self, kind: ConfigKind) -> int:
        """Return the bytes of layer outputs that a mini-batch keeps for the backward pass."""
        if kind.shards > 1:
            return 0
        most = max(self.rows) if self.groups is None else max(self.groups.sizes, default=0)
        return int(4 * kind.work.get("kept", 0.0) * min(kind.batch_size, int(most * kind.share)))

    def step_bytes(self, kind: ConfigKind) -> int:
        """Return the bytes that a training step takes beside states and rows: measured, or else counted."""
        if kind.shards > 1 and not self.use_gpus:
            # The device is the session itself.
            return kind.device_bytes
        return self.activation_bytes(kind) if kind.step_bytes is None else kind.step_bytes

    def segment_bytes(self, segment: int) -> int:
        """Return the bytes of a segment's rows in memory."""
        return int(self.row_bytes * (self.rows[segment] + self.validation_rows[segment]))

    def feature_bytes(self, segment: int) -> int:
        """Return the bytes of outputs of frozen layers that a segment keeps.

        Each net counts by itself: which nets have equal weights is known only where these are read.
        """
        kept = {
            (kind.model_id, kind.trunk.leaving_key, kind.batch_size): kind.trunk
            for kind in self.kinds.values()
            if kind.trunk
        }
        rows = self.rows[segment] + self.validation_rows[segment]
        return rows * sum(trunk.row_bytes for trunk in kept.values())

    @property
    def streams(self) -> bool:
        """Whether sessions read their rows again in each pass, because the rows exceed `memory_mb`."""
        return any(self.segment_bytes(s) > self.memory_mb * 2**20 for s in range(self.segments))
