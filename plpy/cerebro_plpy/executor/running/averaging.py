"""Option `hybrid`: from some epoch on, train each config on all segments at once and average its states."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.starting.request import Request
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.planner.explanation import counted


def check(given: FitOptions, configs: int, segments: int, epochs: int) -> None:
    """Raise an error for the option `hybrid` if there are as many configs as segments or more, or if
    averaging would begin after the last epoch."""
    if given.hybrid is None:
        return
    if configs >= segments:
        raise CerebroError(
            f"option hybrid averages states where configs are fewer than segments: there are"
            f" {counted(configs, 'config')} and {counted(segments, 'segment')}",
            hint="Leave the option out: each segment has a config to train.",
        )
    if given.hybrid > epochs:
        raise CerebroError(
            f"option hybrid.average_from_epoch is {given.hybrid}, and num_iterations is {epochs}",
            hint="Begin to average in one of the epochs.",
        )


def tell(db: Database, request: Request) -> None:
    begins = request.limits.average_from
    if begins is not None:
        db.notice(
            f"from epoch {begins} on, all segments train a config at once and their states are averaged:"
            " this is another algorithm than Model Hopper Parallelism, and its results are others"
        )
