"""Commands about related tables and graphs."""

from __future__ import annotations

from typing import Any

import click

from cerebro_db.cli.connection import connected, open_database
from cerebro_db.cli.output import formatted, say, show
from cerebro_db.cli.values import read_list, read_object


def _drop_unset(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


_times = click.option(
    "--times", metavar="JSON", callback=read_object, help="The column of each table that says when rows came."
)
_into = click.option("--into", metavar="TABLE", required=True, help="The table that is made.")


@click.command(short_help="Make labels of an entity from what followed moments of the past.")
@click.argument("entity")
@click.argument("target")
@_into
@click.option("--over", metavar="INTERVAL", required=True, help="How far a label looks ahead.")
@click.option("--every", metavar="INTERVAL", required=True, help="How far cut-offs are apart.")
@click.option("--label", help="The name of the label's column; by default label.")
@_times
@connected
def labels(entity: str, target: str, into: str, over: str, every: str, dsn: str, **options: Any) -> None:
    """Make labels of the rows of ENTITY: TARGET is an aggregate of what followed each cut-off.

    \b
    Example:
      cerebro labels customers 'count(orders) = 0' --over '30 days' --every '15 days' --into labels
    """
    from cerebro_db import related

    with open_database(dsn) as db:
        say(related.labels(db, entity, target, into, over=over, every=every, options=_drop_unset(options)))


@click.command(short_help="Make features of rows from related tables.")
@click.argument("query")
@click.option("--entity", metavar="TABLE", required=True, help="What the rows are about.")
@click.option("--cutoff", metavar="COLUMN", required=True, help="The moment before which a row sees.")
@_into
@_times
@click.option("--depth", type=click.IntRange(1), help="So many keys away.")
@click.option("--windows", metavar="INTERVALS", callback=read_list, help="Before the cut-off, with commas.")
@click.option("--aggregates", metavar="NAMES", callback=read_list, help="Of children, with commas.")
@connected
def relate(
    query: str, entity: str, cutoff: str, into: str, times: dict[str, Any] | None, dsn: str, **options: Any
) -> None:
    """Make features of the rows of QUERY from the tables around ENTITY, before each row's cut-off.

    \b
    Example:
      cerebro relate 'SELECT id, at, label FROM labels' --entity customers --cutoff at --into train_rel
    """
    from cerebro_db import related

    with open_database(dsn) as db:
        found = related.relate(
            db, query, into, entity=entity, cutoff=cutoff, times=times, options=_drop_unset(options)
        )
    say(found)


@click.command(short_help="Make features of a graph's nodes from the nodes around.")
@click.argument("nodes")
@click.argument("edges")
@_into
@click.option("--id", metavar="COLUMN", required=True, help="Of nodes: what tells them apart.")
@click.option("--source", metavar="COLUMN", required=True, help="Of edges: where they begin.")
@click.option("--target", metavar="COLUMN", required=True, help="Of edges: where they end.")
@click.option("--features", metavar="COLUMNS", callback=read_list, required=True, help="With commas.")
@click.option("--hops", type=click.IntRange(1), help="So many edges away.")
@click.option("--aggregate", help="What a node gets: mean, sum or symmetric.")
@click.option("--weight", metavar="COLUMN", help="Of edges: how much one counts.")
@click.option("--kind", metavar="COLUMN", help="Of edges: of which kind one is.")
@connected
def propagate(nodes: str, edges: str, into: str, features: list[str], dsn: str, **given: Any) -> None:
    """Make a table of NODES with what the nodes around each one have, along EDGES, hop by hop.

    \b
    Example:
      cerebro propagate papers cites --into papers_h --id paper --source citing --target cited --features x
    """
    from cerebro_db import related

    ends = {name: given.pop(name) for name in ("id", "source", "target")}
    with open_database(dsn) as db:
        found = related.propagate(
            db, nodes, edges, into, ends=ends, features=features, options=_drop_unset(given)
        )
    say(f"{into}: {found} nodes")


@click.command("refresh-propagation", short_help="Bring a table of propagate up to date.")
@click.argument("table")
@connected
def refresh_propagation(table: str, dsn: str) -> None:
    """Compute anew what changes of nodes and edges reach in TABLE, which cerebro propagate has made."""
    from cerebro_db import related

    with open_database(dsn) as db:
        found = related.refresh_propagation(db, table)
    say(f"{table}: {found} nodes computed anew")


@click.command(short_help="Mend the predictions of a graph's nodes with known labels.")
@click.argument("model")
@click.argument("nodes")
@click.argument("edges")
@click.option("--labels", metavar="COLUMN", required=True, help="Of nodes: the class, where it is known.")
@click.option("--correct", type=click.FloatRange(0, 1, max_open=True), help="Of errors, from nodes around.")
@click.option("--smooth", "again", type=click.FloatRange(0, 1, max_open=True), help="Of answers, likewise.")
@formatted
@connected
def smooth(
    model: str,
    nodes: str,
    edges: str,
    labels: str,
    again: float | None,
    form: str,
    dsn: str,
    **options: Any,
) -> None:
    """Predict NODES, a table of cerebro propagate, by MODEL, and mend the answers along EDGES.

    \b
    Example:
      cerebro smooth subjects papers_h cites --labels known --format csv
    """
    from cerebro_db import related

    given = _drop_unset({**options, "smooth": again})
    with open_database(dsn) as db:
        found = related.smooth(db, model, nodes, edges, labels=labels, options=given)
    show(found, form, related.SMOOTHED, related.SMOOTHED)
