"""Commands about registered models."""

from __future__ import annotations

import click

from cerebro_db.cli.connection import connected, open_database
from cerebro_db.cli.exits import Refused
from cerebro_db.cli.output import formatted, show

MODEL_COLUMNS = ("name", "owner", "default_version", "versions", "newest_version", "aliases", "privilege")
VERSION_COLUMNS = ("version", "aliases", "metrics", "comment", "registered_by", "at")


@click.command(short_help="List registered models, or the versions of one.")
@click.argument("name", required=False)
@formatted
@connected
def models(name: str | None, form: str, dsn: str) -> None:
    """List the registered models that you may use, or the versions of the one that is named.

    \b
    Examples:
      cerebro models
      cerebro models churn --format json | jq '.[0].metrics'
    """
    from cerebro_db import registry

    with open_database(dsn) as db:
        if name is None:
            show(registry.list_models(db), form, MODEL_COLUMNS, registry.MODELS)
            return
        found = registry.list_versions(db, name.lower())
    if not found:
        raise Refused(
            f"there is no registered model {name} that you may use", hint="cerebro models lists them."
        )
    show(found, form, VERSION_COLUMNS)
