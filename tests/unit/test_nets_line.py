"""Lines of layers with arguments that no layer takes: Keras refuses them, and Python can read them."""

from __future__ import annotations

import pytest

from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.nets import line
from cerebro_plpy.nets.graph import Graph

pytestmark = pytest.mark.usefixtures("engine")


@pytest.mark.parametrize(
    "text",
    [
        "Reshape(5)",
        "Dense(8, rank=3)",
        "Dense(8, kind='a')",
        "Dense(8, self=1)",
        "Take()",
        "Bidirectional(layer='LSTM')",
        "Bidirectional(layer={'config': 3})",
        "LSTM(layer=3)",
    ],
)
def test_arguments_that_no_layer_takes_are_refused(text: str) -> None:
    graph = Graph()
    node = line.add(graph, graph.input([6]), line.layers(text))
    with pytest.raises(CerebroError):
        architecture.describe(graph.as_json([node], "net"))
