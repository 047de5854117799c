"""Joins models to one net that answers with their weighted mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor.calls import nets
from cerebro_plpy.executor.ensembles.candidates import CandidatePart
from cerebro_plpy.nets import joining


@dataclass(frozen=True)
class JoinedNet:
    """A net whose output is the weighted mean of several nets.

    `pieces` says where each piece of its weights is among the weights of these nets.
    """

    model_arch: str
    # For each piece of its weights, the part that has it, and its place among that part's bytes.
    pieces: Sequence[tuple[int, slice]]

    def join(self, parts: Sequence[bytes]) -> bytes:
        """Return the weights of the joined net, from the weights of its parts."""
        return b"".join(parts[number][place] for number, place in self.pieces)


def join_nets(
    db: Database, parts: Sequence[tuple[CandidatePart, float]], tempering: joining.Tempering | None
) -> JoinedNet:
    """Return a net whose answer is the mean of the models' answers, weighted by their shares in `parts`.

    With `tempering`, the net then applies a temperature to this mean.
    """
    # Configs of a run share a few architectures.
    known = {arch: nets.list_layers(db, arch) for arch in {one.model.model_arch for one, _ in parts}}
    listed = [known[one.model.model_arch] for one, _ in parts]
    own = [_places(one, layers) for (one, _), (_, layers) in zip(parts, listed, strict=True)]
    shares = [share for _, share in parts]
    found = joining.join([text for text, _ in listed], shares, "ensemble", tempering)
    checked, layers = nets.list_layers(db, found)
    pieces: list[tuple[int, slice]] = []
    for name, _, _, count, _ in layers:
        place = joining.layer_name(name)
        if count and place is not None:
            pieces.append((place[0] - 1, own[place[0] - 1][place[1]]))
    return JoinedNet(checked, pieces)


def _places(one: CandidatePart, layers: Sequence[tuple[Any, ...]]) -> Mapping[str, slice]:
    """Return the range of bytes of each layer within a net's weights, by the layer's name."""
    size, found, first = len(one.model.weights()), dict[str, slice](), 0
    for name, _, _, count, _ in layers:
        found[name] = slice(first, first + 4 * count)
        first += 4 * count
    if first != size:
        raise CerebroError(
            f"the weights of mst_key {one.found.mst_key} do not fit its layers",
            detail=f"There are {size} bytes, and the layers have {first}.",
            sqlstate=NOT_SUPPORTED,
        )
    return found
