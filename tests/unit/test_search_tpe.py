"""TPE finds better configs than random search in the same number of visits, on a synthetic objective."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from statistics import mean, median

from cerebro_plpy.logical.search.automl import SearchCall
from cerebro_plpy.logical.search.methods import read_method
from cerebro_plpy.logical.search.template import StartConfig
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from simulator import Config, Simulation

SEEDS = range(20)
CONFIGS = 40
SPACE = json.dumps(
    {
        "loss": "mse",
        "optimizer_params_list": [
            {
                "optimizer": "SGD",
                "lr": {"float": [1e-5, 1], "log": True},
                "momentum": {"float": [0, 0.99]},
            },
            {"optimizer": "Adam", "lr": {"float": [1e-6, 1e-1], "log": True}},
        ],
    }
)
FIT = json.dumps({"batch_size": {"int": [8, 512], "log": True}})


def objective(config: Config, epoch: int) -> float:
    """Return a synthetic loss with one minimum per optimizer.

    The best learning rate of SGD depends on the batch size.
    """
    optimizer = parse_compile(config.begun.compile_params).optimizer
    rate = math.log10(float(str(optimizer.get("learning_rate"))))
    batch = math.log2(parse_fit(config.begun.fit_params).batch_size)
    if optimizer.name == "Adam":
        return (rate + 3) ** 2 / 4 + (batch - 5) ** 2 / 40
    momentum = float(str(optimizer.get("momentum")))
    return (rate + 2 - (batch - 5) / 5) ** 2 / 4 + (momentum - 0.85) ** 2 * 4 + (batch - 5) ** 2 / 40


def best(algorithm: str, seed: int) -> float:
    method = read_method("hyperopt", f"num_configs={CONFIGS}, num_iterations=1, algorithm={algorithm}")
    search = SearchCall(method, (1,), SPACE, FIT, seed, 2)
    done = Simulation(search.procedure(), objective, segments=2, order=seed).run()
    assert done.visits == 2 * CONFIGS
    return min(result.value for result in done.results if result.value is not None)


def figures() -> list[tuple[float, float]]:
    """Return the best loss that TPE found and the best that random search found, for each seed."""
    return [(best("tpe", seed), best("rand", seed)) for seed in SEEDS]


def test_tpe_beats_random_search() -> None:
    found = figures()
    assert median(tpe for tpe, _ in found) < 0.5 * median(rand for _, rand in found)
    assert sum(tpe < rand for tpe, rand in found) >= 15


def test_a_small_space_is_used_up_before_anything_comes_twice() -> None:
    method = read_method("hyperopt", "num_configs=12, num_iterations=1")
    space = '{"loss": "mse", "optimizer_params_list": [{"optimizer": ["SGD", "Adam"], "lr": [0.1, 0.01]}]}'
    search = SearchCall(method, (1,), space, '{"batch_size": [8, 16, 32]}', 0, 2)
    done = Simulation(search.procedure(), lambda config, epoch: 1.0, segments=2).run()
    starts = [made for made in done.decisions if isinstance(made, StartConfig)]
    assert len({(s.compile_params, s.fit_params) for s in starts}) == 12


def test_hyperopt_proposes_the_same_whatever_the_timing() -> None:
    method = read_method("hyperopt", "num_configs=24, num_iterations=2")
    search = SearchCall(method, (1, 2), SPACE, FIT, 5, 4)

    def failing(config: Config, epoch: int) -> float | None:
        return None if config.key % 7 == 3 else objective(config, epoch)

    def proposed(order: int) -> list[tuple[int, str, str]]:
        done = Simulation(search.procedure(), failing, segments=4, order=order).run()
        starts = [made for made in done.decisions if isinstance(made, StartConfig)]
        return [(made.mst_key, made.compile_params, made.fit_params) for made in starts]

    first, *others = (proposed(order) for order in range(8))
    assert len(first) == 24
    assert all(other == first for other in others)


def test_only_a_search_that_needs_it_loads_optuna() -> None:
    text = (
        "import sys\n"
        "from cerebro_plpy.logical.search.automl import SearchCall\n"
        "from cerebro_plpy.logical.search.methods import read_method\n"
        f"make = lambda method: SearchCall(method, (1,), {SPACE!r}, {FIT!r}, 0, 2).procedure()\n"
        "make(read_method('asha', None)), make(read_method('hyperopt', 'algorithm=rand'))\n"
        "assert 'optuna' not in sys.modules\n"
        "make(read_method('hyperopt', None))\n"
        "assert 'optuna' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, env={"PYTHONPATH": ":".join(sys.path)})


if __name__ == "__main__":
    print(f"{len(SEEDS)} seeds, {CONFIGS} configs each: the best value of TPE and of random search")
    values = figures()
    for seed, (guided, blind) in zip(SEEDS, values, strict=True):
        print(f"seed {seed:2}: {guided:.4f} {blind:.4f}")
    for name, number in (("mean", mean), ("median", median)):
        print(f"{name:7}: {number(t for t, _ in values):.4f} {number(r for _, r in values):.4f}")
    print(f"better with TPE: {sum(t < r for t, r in values)} of {len(values)}")
