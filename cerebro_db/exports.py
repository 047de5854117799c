"""Writes the metrics of a run to TensorBoard event files, or to an MLflow tracking store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import CerebroError, needs
from cerebro_db.link import Row
from cerebro_db.plots import flat

if TYPE_CHECKING:
    from cerebro_db.protocols import RunRows

_LONGEST_PARAM = 6000
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def _configs(run: RunRows) -> Iterator[tuple[Row, list[Row]]]:
    """Yield the leaderboard row of each config, with its parameters, and the rows of its metrics by epoch."""
    measured = run.rows(
        "SELECT * FROM cerebro.metrics WHERE run_id = %s AND value IS NOT NULL ORDER BY epoch"
    )
    listed = run.rows(
        "SELECT *, cerebro.read_params(compile_params, fit_params) AS params"
        " FROM cerebro.leaderboard WHERE run_id = %s ORDER BY mst_key"
    )
    of_unit: dict[int, list[Row]] = {}
    for row in measured:
        of_unit.setdefault(row["mst_key"], []).append(row)
    for config in listed:
        yield config, of_unit.get(_number(config), [])


def _number(config: Row) -> int:
    """Return the number that a config has in a run: its `unit_key`, or its `mst_key` if that is None."""
    return config["mst_key"] if config["unit_key"] is None else config["unit_key"]


def to_tensorboard(run: RunRows, folder: Path) -> Path:
    """Write TensorBoard event files into `folder`: a subfolder for each config, a scalar for each metric."""
    try:
        # The names in these modules exist only after the import, so that type checkers do not see them.
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise needs("tensorboard", "tensorboard, which writes the event files,") from None
    for config, metrics in _configs(run):
        writer = EventFileWriter(str(folder / f"run_{run.run_id}" / f"config_{_number(config)}"))
        for row in metrics:
            value = Summary.Value(tag=f"{row['dataset']}/{row['metric']}", simple_value=row["value"])
            writer.add_event(
                Event(wall_time=row["at"].timestamp(), step=row["epoch"], summary=Summary(value=[value]))
            )
        writer.close()
    return folder


@contextmanager
def tracking_store(tracking_uri: str) -> Iterator[Any]:
    """Yield an MLflow client of the tracking store; raise its errors as CerebroError, without the address."""
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise needs("mlflow", "mlflow, whose tracking store is written to,") from None
    try:
        yield MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
    except ModuleNotFoundError as error:
        raise needs("mlflow", f"{error.name}, which this kind of store needs,") from None
    except (MlflowException, OSError) as error:
        # The address may have a password in it.
        raise CerebroError(
            "MLflow's tracking store cannot be used",
            detail=str(error).splitlines()[0].replace(tracking_uri, "its address") if str(error) else None,
            hint="A store is a server (http://…) or a database (sqlite:///mlflow.db).",
        ) from None


def experiment_in(client: Any, name: str | None) -> str:
    """Return the ID of the MLflow experiment `name` (default `cerebro`); create it if it is missing."""
    found = client.get_experiment_by_name(name or "cerebro")
    return found.experiment_id if found is not None else client.create_experiment(name or "cerebro")


def to_mlflow(run: RunRows, tracking_uri: str, experiment: str | None = None) -> list[str]:
    """Create an MLflow run for each config, with its parameters and metrics; return the MLflow run IDs."""
    info = run.info()
    with tracking_store(tracking_uri) as client:
        number = experiment_in(client, experiment)
        return [_to_mlflow(client, number, info, config, metrics) for config, metrics in _configs(run)]


def _to_mlflow(client: Any, experiment: str, info: Row, config: Row, metrics: list[Row]) -> str:
    from mlflow.entities import Metric, Param

    began = int(info["started_at"].timestamp() * 1000)
    ended = info["ended_at"]
    tags = {
        "cerebro.run_id": str(info["run_id"]),
        "cerebro.mst_key": str(config["mst_key"]),
        "cerebro.source_table": info["source_table"],
        "cerebro.model_table": info["model_table"] or "",
        **({"cerebro.group": config["group_key"]} if config["group_key"] else {}),
    }
    title = f"run {info['run_id']} config {config['mst_key']}"
    own = client.create_run(experiment, start_time=began, tags=tags, run_name=title).info.run_id
    params = {"model_id": config["model_id"], "seed": info["seed"], **flat(config["params"])}
    client.log_batch(
        own,
        metrics=[
            Metric(f"{m['dataset']}_{m['metric']}", m["value"], int(m["at"].timestamp() * 1000), m["epoch"])
            for m in metrics
        ],
        params=[Param(key, str(value)[:_LONGEST_PARAM]) for key, value in params.items()],
    )
    status = "FAILED" if config["failure"] else _STATUS.get(info["status"], "RUNNING")
    client.set_terminated(own, status, end_time=None if ended is None else int(ended.timestamp() * 1000))
    return own
