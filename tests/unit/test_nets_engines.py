"""An engine follows from the layers of the nets, if nobody names one."""

from __future__ import annotations

import pytest

import nets
from cerebro_plpy.nets.engines import choose_engine

ALL = ("tensorflow", "jax", "torch")


@pytest.mark.parametrize(
    ("made", "installed", "engine"),
    [
        ([nets.mlp()], ALL, "jax"),
        ([nets.mlp(), nets.mlp_with_dropout()], ALL, "jax"),
        ([nets.mlp(), nets.cnn()], ALL, "tensorflow"),
        ([nets.lstm()], ALL, "tensorflow"),
        ([nets.lstm()], ("jax", "torch"), "jax"),
        ([nets.mlp()], ("tensorflow", "torch"), "tensorflow"),
    ],
)
def test_dense_nets_train_on_jax_where_it_is_installed(
    made: list[str], installed: tuple[str, ...], engine: str
) -> None:
    assert choose_engine(made, installed) == engine
