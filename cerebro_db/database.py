"""A database with cerebro in it, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from cerebro_db import frames, link, markup, packed_files, pretrained, related, rows, statements
from cerebro_db.architectures import Architectures
from cerebro_db.errors import CerebroError
from cerebro_db.functions import Functions
from cerebro_db.link import Connection, Engine, Link, Row
from cerebro_db.packing import Packed
from cerebro_db.plan import Plan
from cerebro_db.registry import RegisteredModels
from cerebro_db.requests import FitRequest, Search
from cerebro_db.run import Run
from cerebro_db.statements import Columns, call, table_name
from cerebro_db.training import TrainRequest, finish

if TYPE_CHECKING:
    import pandas
    from sqlalchemy import URL

# A table of that name, and the schema that one without a schema would come into.
_TABLE = """
SELECT pg_catalog.to_regclass(%s) IS NOT NULL AS there, pg_catalog.current_schema()::pg_catalog.text AS schema
"""
# NULL where there is no such schema.
_THERE = """
SELECT pg_catalog.current_database()::pg_catalog.text AS database, CURRENT_USER::pg_catalog.text AS role,
    pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('cerebro'), 'USAGE') AS usage,
    EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'cerebro') AS available
"""
_ABOUT = """
SELECT (SELECT extversion FROM pg_extension WHERE extname = 'cerebro') AS cerebro,
    current_setting('server_version') AS postgresql, current_database() AS database, current_user AS role
"""
_NEWEST = """
SELECT run_id, name, status, configs, visits_done, visits_total, seconds FROM cerebro.runs
ORDER BY run_id DESC LIMIT 5
"""
# A run that goes on leaves its models under this name.
_RESERVED = """
SELECT FROM cerebro.runs WHERE status IN ('running', 'paused') AND parse_ident(model_table) =
    CASE cardinality(parse_ident(%s)) WHEN 1 THEN ARRAY[%s::text] ELSE ARRAY[]::text[] END || parse_ident(%s)
"""


def connect(target: str | URL | Engine | Connection = "", *, architectures: str = "nets") -> Database:
    """Open a database: by its address, or on an engine or a connection that stays its owner's to close.

    An address is a URL or a text as psql takes it ("host=… dbname=…", "service=…"); without one the
    environment decides. An error says what lacks there. `architectures` names the table that
    `db.architectures` keeps its architectures in.
    """
    db = Database(link.open_link(target), architectures)
    try:
        _check(db.look(_THERE)[0])
    except BaseException:
        db.close()
        raise
    return db


def _check(found: Row) -> None:
    """Raise an error that says what is missing, before anything else fails for want of it."""
    name, role = found["database"], found["role"]
    if found["usage"] is None:
        raise CerebroError(
            f"the database {name} has no extension cerebro",
            hint="A superuser runs in it: CREATE EXTENSION cerebro CASCADE."
            if found["available"]
            else f"Its server has no files of it either: cerebro init --dsn 'dbname={name}' says what to do.",
        )
    if not found["usage"]:
        raise CerebroError(
            f"the role {role} may not use cerebro in the database {name}",
            hint=f"An administrator runs in it: SELECT cerebro.grant_usage({statements.literal(role)}).",
        )


class Database:
    """A database with cerebro in it. It closes what it opened: with `close`, or at the end of a `with`."""

    def __init__(self, opened: Link, architectures: str = "nets") -> None:
        self._link = opened
        self._architectures = architectures

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        about, newest = self.look(_ABOUT)[0], self.look(_NEWEST)
        runs = markup.table(list(newest[0]), [list(run.values()) for run in newest]) if newest else ""
        return markup.titled("Cerebro DB", markup.pairs(about.items()), runs)

    def __deepcopy__(self, _memo: object) -> Database:
        """Return the database itself: a connection cannot be there twice, so a copied estimator, say, shares
        it."""
        return self

    def close(self) -> None:
        """Close the connections that were opened here."""
        self._link.close()

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Run one statement in a transaction of its own and return its rows, a dict each."""
        return self.transaction([statement], *values)

    def look(self, statement: str, *values: object) -> list[Row]:
        """Run one statement that names only the server's own objects, and return its rows."""
        with self._link.session() as connection:
            return link.look(connection, statement, values)

    def transaction(self, parts: Sequence[str], *values: object) -> list[Row]:
        """Run statements in one transaction, with values for the first; return the last rows."""
        found: list[Row] = []
        with self._link.session() as connection:
            for number, statement in enumerate(parts):
                found = link.execute(connection, statement, values if number == 0 else ()) or found
        return found

    def session(self) -> AbstractContextManager[Connection]:
        """Return a context manager that lends a psycopg2 connection, and commits what was done on it."""
        return self._link.session()

    @property
    def architectures(self) -> Architectures:
        """The architectures that runs choose from."""
        return Architectures(self, self._architectures)

    def with_architectures(self, table: str) -> Database:
        """Return this database with another table of architectures."""
        return Database(self._link, table)

    @property
    def functions(self) -> Functions:
        """Losses, metrics and layers that a superuser has registered."""
        return Functions(self)

    @property
    def models(self) -> RegisteredModels:
        """Registered models: versions of trained models, by name."""
        return RegisteredModels(self)

    def pack(
        self,
        source: Any,
        x: Columns | None = None,
        y: Columns | None = None,
        *,
        into: str | None = None,
        like: Packed | str | None = None,
        normalize: float | None = None,
        num_classes: Sequence[int | None] | None = None,
        buffer_size: int | None = None,
        **options: Any,
    ) -> Packed:
        """Pack the rows of a table or view for training, or for validation as the table `like` was packed.

        `source` is its name; or a data frame, a dict of arrays or the path of a file, whose rows stay in
        the database only as packed. `x` and `y` name columns; several plain ones make one vector, and
        without `x` all columns of a frame but `y` do. `into` is the packed table, by default
        <source>_packed. `normalize` divides the features; further options are `segments`, `seed`, `shape`,
        `task`, `memory_mb`, `validation`, `weight`, and `columns` with `exclude` and `also_categories`: with
        these, text, dates, categories and NULLs are packed as they are, and `x` may be "*".
        """
        if not rows.is_table(source):
            return self._pack_frame(
                source, x, y, into=into, like=like, normalize=normalize, num_classes=num_classes,
                buffer_size=buffer_size, **options,
            )  # fmt: skip
        packed = Packed.plan(self, source, x, y, into, like)
        self.rows(
            packed.statement(
                normalizing_const=normalize, num_classes=num_classes, buffer_size=buffer_size, options=options
            )
        )
        return packed

    def _pack_frame(
        self, source: Any, x: Columns | None, y: Columns | None, *, into: str | None, **how: Any
    ) -> Packed:
        """Load rows and pack them, so that they stay only in packed form."""
        if into is None:
            raise CerebroError(
                "rows of yours need a name for their packed table", hint='For example into="cars".'
            )
        training = Packed.from_table(self, how["like"]) if how["like"] is not None else None
        if training is not None:
            x, y = x or training.x, y or training.y
        columns, x, y = rows.chosen(source, x, y)
        table = self.free_name(statements.table_name(into, "_rows"))
        rows.load(self, table, columns)
        try:
            return self.pack(table, x, y, into=into, **how)
        finally:
            self.rows(f"DROP TABLE {statements.table_name(table)}")

    def train(
        self,
        source: str | Any,
        target: str,
        *,
        name: str | None = None,
        budget: str | float = "1 minute",
        wait: bool = True,
        **options: Any,
    ) -> Run:
        """Train nets on a table as it is, or on a data frame, and return the run with its leaderboard.

        Text, dates, NULLs and categories need no preparing. The run is shown as it goes on; without `wait` it
        is returned as soon as it has begun. The model table is `name`, by default <source>_model; a data
        frame needs a name, and is kept as the table <name>_rows. Options are `columns`, `exclude`,
        `also_categories`, `validation`, `weight`, `nets`, `target_scale`, `clamp`, `configs`, `epochs`,
        `metric`, `backend`, `seed`, `single` and `folds`. At the end of the wait the best nets are joined to
        an ensemble, the table <name>_ensemble, unless `single` is true.
        """
        request = TrainRequest(
            source, target, name, budget, options, background=not self._link.in_transaction
        )
        if wait:
            print(f"packing {request.rows_table or source} and making nets", flush=True)
        run = request.begin(self)
        if wait:
            run.watch()
            run.check_finished()
            finish(run)
        return run

    def relate(
        self,
        query: str,
        into: str,
        *,
        entity: str,
        cutoff: str,
        times: Mapping[str, str | None] | None = None,
        **options: Any,
    ) -> str:
        """Make the table `into` of a query's rows with features of related tables, before each row's cut-off.

        Options are `depth`, `windows`, `aggregates`, `foreign_keys`, `omit` and `max_features`.
        """
        return related.relate(self, query, into, entity=entity, cutoff=cutoff, times=times, options=options)

    def labels(self, entity: str, target: str, into: str, *, over: str, every: str, **options: Any) -> str:
        """Make the table `into` of labels from what followed moments of the past, for `relate`.

        Options are `label`, `times`, `foreign_keys`, `starts` and `ends`.
        """
        return related.labels(self, entity, target, into, over=over, every=every, options=options)

    def predict_related(self, model: str, query: str) -> pandas.DataFrame:
        """Predict the rows of a query with a model of related tables, whose features are made anew."""
        return frames.frame(related.predict_related(self, model, query), related.PREDICTED)

    def propagate(
        self,
        nodes: str,
        edges: str,
        into: str,
        *,
        id: str,
        source: str,
        target: str,
        features: Sequence[str],
        **options: Any,
    ) -> int:
        """Make the table `into` of nodes with what the nodes around have; return how many there are.

        Options are `hops`, `aggregate`, `weight`, `teleport` and `kind`.
        """
        ends = {"id": id, "source": source, "target": target}
        return related.propagate(self, nodes, edges, into, ends=ends, features=features, options=options)

    def refresh_propagation(self, table: str) -> int:
        """Bring a table of `propagate` up to date, and return how many nodes were computed anew."""
        return related.refresh_propagation(self, table)

    def smooth(self, model: str, nodes: str, edges: str, *, labels: str, **options: Any) -> pandas.DataFrame:
        """Predict the nodes of a graph, and mend the answers with the labels that are known.

        Options are `mst_key`, `id`, `source`, `target`, `weight`, `correct` and `smooth`.
        """
        found = related.smooth(self, model, nodes, edges, labels=labels, options=options)
        return frames.frame(found, related.SMOOTHED)

    def train_forecast(
        self,
        source: str,
        time: str,
        value: str,
        *,
        series: Sequence[str] | None = None,
        horizon: int = 1,
        name: str | None = None,
        budget: str | float = "1 minute",
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> pandas.DataFrame:
        """Train nets that forecast a number over time; return them beside baselines, what answers first.

        Options are `window`, `season`, `nets`, `configs`, `epochs`, `backend`, `seed` and `segments`.
        """
        found = related.train_forecast(
            self, source, time, value, series=series, horizon=horizon, name=name, budget=budget,
            columns=columns, options=options,
        )  # fmt: skip
        return frames.frame(found, related.STANDINGS)

    def forecast(
        self, name: str, horizon: int | None = None, level: float = 0.9, history: int = 0
    ) -> pandas.DataFrame:
        """Forecast all series from their newest rows; `history` adds that many known values before."""
        return frames.frame(related.forecast(self, name, horizon, level, history), related.FORECAST)

    def packed(self, table: str) -> Packed:
        """Return a table that was packed before."""
        return Packed(self, table)

    def load_pretrained(
        self,
        model: Any,
        packed: Packed | str | None = None,
        *,
        head: Any = None,
        freeze: str | Sequence[str] | None = None,
        layer: str | None = None,
        name: str | None = None,
        description: str | None = None,
    ) -> int:
        """Add a trained net with its weights to the architectures, and give its number.

        `model` is a `keras.Model`, from keras.applications say, or the path of a `.keras` file. `head` is a
        line of layers ("Dense(64, 'relu'), Dropout(0.2)") or Keras' layers, which come behind its output, or
        behind `layer`. For a packed table the layer that gives its label follows, and what inputs leave open
        gets its sizes. `freeze` names layers that stay as they are; `*` stands for any letters. A net that
        the table has already, with these weights, keeps its number.
        """
        wanted = None if packed is None else Packed.from_table(self, packed)
        return pretrained.load(
            self, model, wanted, head=head, freeze=freeze, layer=layer, name=name, description=description
        )

    def materialize_features(
        self, packed: Packed | str, model_id: int, layer: str, *, into: str | None = None
    ) -> Packed:
        """Pack what a frozen layer of an architecture gives for packed rows; nets with these layers train on
        it as on the rows. `into` is the new table, by default <packed>_features."""
        source = Packed.from_table(self, packed)
        made = into or table_name(source.table, "_features")
        self.rows(call("materialize_features", source.table, self._architectures, model_id, layer, made))
        return Packed(self, made, source.x, source.y)

    def refresh_features(self, features: Packed | str) -> int:
        """Compute the features of rows that were appended since, and return their number."""
        statement = call("refresh_features", Packed.from_table(self, features).table)
        return self.rows(statement)[0]["refresh_features"]

    def load(self, table: str, source: Any) -> int:
        """Make a table from a data frame, a dict of arrays, or a Parquet or NPZ file.

        Numbers, truth values and times keep their kind, arrays become arrays, all else is text. Return the
        number of rows.
        """
        return rows.load(self, table, source)

    def import_packed(self, path: str | Path, into: str) -> Packed:
        """Make a packed table from a file that `Packed.export` wrote, to the same bits."""
        packed_files.load(self, Path(path), into)
        return Packed(self, into)

    @overload
    def fit(
        self,
        table: Packed | str,
        grid: Mapping[str, Any],
        *,
        epochs: int,
        validation: Packed | str | None = None,
        search: Search = None,
        configs: int | None = None,
        seed: int | None = None,
        out: str | None = None,
        every: int | None = None,
        name: str | None = None,
        description: str | None = None,
        gpus: bool = False,
        wait: bool = False,
        explain: Literal[False] = False,
        **options: Any,
    ) -> Run: ...

    @overload
    def fit(
        self,
        table: Packed | str,
        grid: Mapping[str, Any],
        *,
        epochs: int,
        validation: Packed | str | None = None,
        search: Search = None,
        configs: int | None = None,
        seed: int | None = None,
        out: str | None = None,
        every: int | None = None,
        name: str | None = None,
        description: str | None = None,
        gpus: bool = False,
        wait: bool = False,
        explain: Literal[True],
        **options: Any,
    ) -> Plan: ...

    def fit(
        self,
        table: Packed | str,
        grid: Mapping[str, Any],
        *,
        epochs: int,
        validation: Packed | str | None = None,
        search: Search = None,
        configs: int | None = None,
        seed: int | None = None,
        out: str | None = None,
        every: int | None = None,
        name: str | None = None,
        description: str | None = None,
        gpus: bool = False,
        wait: bool = False,
        explain: bool = False,
        **options: Any,
    ) -> Run | Plan:
        """Train the configs of a grid on a packed table; with `explain`, only say what that would cost.

        The run goes on in the background of the server, and is given as soon as it has begun. With `wait`
        it is this session's, and given when it is over; Ctrl-C interrupts it then, and `Run.resume` goes on
        with it. Another such run on the same connection finds rows and compiled models still in memory.

        `search` is None for every config of the grid, "random" for `configs` of them, or a method with its
        parameters ("asha", {"method": "asha", "eta": 4}). `every` says after how many epochs configs are
        measured; `out` names the tables that the run leaves. Further options are those of the server:
        `patience`, `target`, `restore_best`, `max_seconds`, `backend`, `threads` and so on.
        """
        request = FitRequest(
            table=Packed.from_table(self, table),
            grid=dict(grid),
            epochs=epochs,
            validation=Packed.from_table(self, validation) if validation is not None else None,
            search=search,
            configs=configs,
            seed=seed,
            out=out,
            every=every,
            name=name,
            description=description,
            gpus=gpus,
            background=not wait,
            options=options,
        )
        return request.explain(self) if explain else request.begin(self)

    def run(self, run_id: int) -> Run:
        """Return one of your runs, by its number."""
        run_id = int(run_id)
        if not self.look("SELECT 1 FROM cerebro.runs WHERE run_id = %s", run_id):
            raise CerebroError(
                f"you have no run {run_id}",
                hint="db.runs() shows your runs.",
                shell="cerebro runs shows your runs.",
            )
        return Run(self, run_id)

    def runs(self) -> pandas.DataFrame:
        """Return your runs, newest first, as a data frame."""
        return frames.frame(self.look("SELECT * FROM cerebro.runs ORDER BY run_id DESC"))

    def free_name(self, wanted: str) -> str:
        """Return a name that no table has and no run will use: this one, or with a number behind it."""
        number, name = 1, statements.table_name(wanted)
        while self._is_taken(name):
            number += 1
            name = statements.table_name(wanted, f"_{number}")
        return name

    def _is_taken(self, name: str) -> bool:
        found = self.rows(_TABLE, name)[0]
        return found["there"] or bool(self.look(_RESERVED, name, found["schema"], name))
