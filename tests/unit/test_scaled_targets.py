"""A net that learns a quantity on its own scale equals scikit-learn's TransformedTargetRegressor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.nets import points
from cerebro_plpy.nets.fitting import Moments, NetOutput, NetRows

pytestmark = pytest.mark.usefixtures("engine")
ROWS, FEATURES, EPOCHS, BATCH = 200, 4, 8, 20
PARAMS = '{"width": 8, "depth": 1, "dropout": 0.0}'
SCALERS = {
    "standard": StandardScaler(),
    "log": make_pipeline(FunctionTransformer(np.log1p, np.expm1, check_inverse=False), StandardScaler()),
}


def net(moments: Moments | None) -> Any:
    rows = NetRows([(FEATURES,)], [NetOutput("price", (1,), False, moments)], None)
    ((_, text),) = points.nets("tabular", PARAMS, rows)
    return runtime.keras().models.model_from_json(text)


class PlainNet(RegressorMixin, BaseEstimator):
    """A net without a scale of its own, trained by plain Keras."""

    def __init__(self, start: list[np.ndarray]) -> None:
        self.start = start

    def fit(self, x: np.ndarray, y: np.ndarray) -> PlainNet:
        self.net_ = train(net(None), self.start, "mse", 1.0, x, y)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.net_.predict(x, verbose=0)[:, 0]


def train(model: Any, start: list[np.ndarray], loss: str, weight: float, x: np.ndarray, y: np.ndarray) -> Any:
    model.set_weights(start)
    model.compile(runtime.keras().optimizers.Adam(0.01), loss=loss, loss_weights=[weight])
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("way", SCALERS)
def test_the_answers_are_those_of_scikit_learn(way: str) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = np.exp(x @ [0.5, -0.3, 0.2, 0.1] + 8.0).astype(np.float32)
    learned = np.log1p(y) if way == "log" else y
    moments = Moments([float(learned.mean())], [float(learned.std())], way == "log")
    ours = net(moments)
    start = [array.copy() for array in net(None).get_weights()]
    theirs = TransformedTargetRegressor(PlainNet(start), transformer=SCALERS[way]).fit(x, y).predict(x)
    train(ours, start, "msle" if way == "log" else "mse", 1 / moments.variance, x, y)
    np.testing.assert_allclose(ours.predict(x, verbose=0)[:, 0], theirs, rtol=1e-4)
    assert np.corrcoef(theirs, y)[0, 1] > 0.5
