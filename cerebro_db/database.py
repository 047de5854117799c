"""The class Database: a database with the extension cerebro, and the calls that can be made to it."""

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

# Whether a table has this name, and the schema in which a table without a schema would be created.
_TABLE = """
SELECT pg_catalog.to_regclass(%s) IS NOT NULL AS there, pg_catalog.current_schema()::pg_catalog.text AS schema
"""
# `usage` is NULL if the schema cerebro does not exist.
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
# Whether a run that is not over will leave its models under this name.
_RESERVED = """
SELECT FROM cerebro.runs WHERE status IN ('running', 'paused') AND parse_ident(model_table) =
    CASE cardinality(parse_ident(%s)) WHEN 1 THEN ARRAY[%s::text] ELSE ARRAY[]::text[] END || parse_ident(%s)
"""


def connect(target: str | URL | Engine | Connection = "", *, architectures: str = "nets") -> Database:
    """Connect to an address, or use an open engine or connection, which the caller must close.

    An address is a URL or a connection string as for psql ("host=… dbname=…", "service=…"); without one, the
    PG* environment variables decide. Raise CerebroError if the extension or a right is missing.
    `architectures` names the table that `db.architectures` keeps its architectures in.
    """
    db = Database(link.open_link(target), architectures)
    try:
        _check(db.look(_THERE)[0])
    except BaseException:
        db.close()
        raise
    return db


def _check(found: Row) -> None:
    """Raise CerebroError if the database lacks the extension, or the role the right to use it."""
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
    """A database with the extension cerebro. Close it with `close`, or use it in a `with` statement."""

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
        """Return the database itself, because a connection cannot be copied; copies, for example of an
        estimator, share it."""
        return self

    def close(self) -> None:
        """Close the connections that this object has opened."""
        self._link.close()

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Run one statement in a transaction of its own and return its rows, a dict each."""
        return self.transaction([statement], *values)

    def look(self, statement: str, *values: object) -> list[Row]:
        """Run one statement with its search_path set to pg_catalog and pg_temp; return its rows."""
        with self._link.session() as connection:
            return link.look(connection, statement, values)

    def transaction(self, parts: Sequence[str], *values: object) -> list[Row]:
        """Run statements in one transaction, the first with `values`; return the last rows of any of them."""
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
        """The table of architectures that the configs of runs are made from."""
        return Architectures(self, self._architectures)

    def with_architectures(self, table: str) -> Database:
        """Return this database, with `table` as its table of architectures."""
        return Database(self._link, table)

    @property
    def functions(self) -> Functions:
        """The losses, metrics and layers that a superuser has registered."""
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

        `source` is its name; or a data frame, a dict of arrays or the path of a file, whose rows stay in the
        database only as packed. `x` and `y` name columns: several names in a flat list make one vector. For a
        frame, `x` is by default all columns but `y`. `into` is the packed table, by default <source>_packed.
        Features are divided by `normalize`. Options are `segments`, `seed`, `shape`, `task`, `memory_mb`,
        `validation`, `weight`, and `columns` with `exclude` and `also_categories`: these pack text, dates,
        categories and NULLs as they are, and then `x` may be "*".
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
        """Load rows into a table, pack it, and drop it; return the packed table."""
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
        """Train nets to predict the column `target` of a table or a data frame, and return the run.

        Text, dates, NULLs and categories need no preparation. With `wait`, show the run until it is over, and
        join the best nets to an ensemble, the table <name>_ensemble, unless `single` is true; else return the
        run as soon as it has begun. The model table is `name`, by default <source>_model. A data frame needs
        a name; its rows are kept in the table <name>_rows. Options are `columns`, `exclude`,
        `also_categories`, `validation`, `weight`, `nets`, `target_scale`, `clamp`, `configs`, `epochs`,
        `metric`, `class_weight`, `experience`, `backend`, `seed`, `single` and `folds`.
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
        """Create the table `into`: a query's rows with features of related tables before each row's cut-off.

        Options are `depth`, `windows`, `aggregates`, `foreign_keys`, `omit` and `max_features`.
        """
        return related.relate(self, query, into, entity=entity, cutoff=cutoff, times=times, options=options)

    def labels(self, entity: str, target: str, into: str, *, over: str, every: str, **options: Any) -> str:
        """Create the table `into` of labels for `relate`: `target` in the interval `over` after each cut-off.

        Options are `label`, `times`, `foreign_keys`, `starts` and `ends`.
        """
        return related.labels(self, entity, target, into, over=over, every=every, options=options)

    def predict_related(self, model: str, query: str) -> pandas.DataFrame:
        """Predict the rows of a query with a model of a table of `relate`; features are computed anew."""
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
        """Create the table `into`: a graph's nodes with features of their neighbours; return their number.

        Options are `hops`, `aggregate`, `weight`, `teleport` and `kind`.
        """
        ends = {"id": id, "source": source, "target": target}
        return related.propagate(self, nodes, edges, into, ends=ends, features=features, options=options)

    def refresh_propagation(self, table: str) -> int:
        """Update a table that `propagate` has made; return the number of nodes that were computed again."""
        return related.refresh_propagation(self, table)

    def smooth(self, model: str, nodes: str, edges: str, *, labels: str, **options: Any) -> pandas.DataFrame:
        """Predict the classes of a graph's nodes, and correct the predictions by the labels that are known.

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
        """Train nets that forecast the column `value` over time; return nets and baselines, the best first.

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
        """Forecast all series from their newest rows; also return `history` known values of each series."""
        return frames.frame(related.forecast(self, name, horizon, level, history), related.FORECAST)

    def packed(self, table: str) -> Packed:
        """Return a Packed for an existing packed table."""
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
        """Add a trained net with its weights to the table of architectures, and return its model_id.

        `model` is a `keras.Model`, for example of keras.applications, or the path of a `.keras` file. `head`,
        a line of layers ("Dense(64, 'relu'), Dropout(0.2)") or Keras layers, follows its output, or the
        output of the layer `layer`. If `packed` is given, an output layer for its label follows, and unknown
        sizes of inputs are set to those of its rows. `freeze` names layers that are not trained; `*` stands
        for any letters. A net that is stored already, with the same weights, keeps its model_id.
        """
        wanted = None if packed is None else Packed.from_table(self, packed)
        return pretrained.load(
            self, model, wanted, head=head, freeze=freeze, layer=layer, name=name, description=description
        )

    def materialize_features(
        self, packed: Packed | str, model_id: int, layer: str, *, into: str | None = None
    ) -> Packed:
        """Create a packed table of a frozen layer's outputs for packed rows; nets with this layer can train
        on it instead. `into` is its name, by default <packed>_features."""
        source = Packed.from_table(self, packed)
        made = into or table_name(source.table, "_features")
        self.rows(call("materialize_features", source.table, self._architectures, model_id, layer, made))
        return Packed(self, made, source.x, source.y)

    def refresh_features(self, features: Packed | str) -> int:
        """Add the features of appended rows to a table of `materialize_features`; return their number."""
        statement = call("refresh_features", Packed.from_table(self, features).table)
        return self.rows(statement)[0]["refresh_features"]

    def load(self, table: str, source: Any) -> int:
        """Create a table from a data frame, a dict of arrays, or a Parquet or NPZ file.

        Numbers, booleans, dates, times and intervals keep their kind, also as Python objects and where some
        are missing. Arrays become arrays, and all else becomes text.
        Return the number of rows.
        """
        return rows.load(self, table, source)

    def import_packed(self, path: str | Path, into: str) -> Packed:
        """Create a packed table from a file that `Packed.export` has written, with the same bits."""
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
        """Train the configs of a grid on a packed table, and return the run; with `explain`, only its plan.

        The run goes on in the background of the server, and is returned as soon as it has begun. With `wait`,
        this session carries the run out before it is returned; Ctrl-C interrupts it, and `Run.resume`
        continues it. The next such run on the same connection reuses rows and compiled models in memory.

        `search` is None for every config of the grid, "random" for `configs` of them, or a search method
        ("asha", {"method": "asha", "eta": 4}). `every` is the number of epochs between evaluations; `out` is
        the model table. Further options are those of the server: `patience`, `target`, `restore_best`,
        `max_seconds`, `backend`, `threads` and so on.
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
        """Return the run with this number; raise CerebroError if the caller has no such run."""
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
        """Return `wanted` or, if a table or a run uses this name, `wanted` with a number behind it."""
        number, name = 1, statements.table_name(wanted)
        while self._is_taken(name):
            number += 1
            name = statements.table_name(wanted, f"_{number}")
        return name

    def _is_taken(self, name: str) -> bool:
        found = self.rows(_TABLE, name)[0]
        return found["there"] or bool(self.look(_RESERVED, name, found["schema"], name))
