"""DuckDB, as this room uses it: SQL from the package's files, values bound, declared types, errors without data."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cohort_sql.errors import CohortError, SourceError

CHANNELS = ("hr", "sbp", "dbp", "rr", "spo2", "temp")
EVENT_CHANNELS = ("hr", "sbp", "rr", "spo2", "temp")
DICTIONARIES = {
    "vitals": {
        "itemid": "bigint",
        "label": "varchar",
        "channel": "varchar",
        "instrument": "varchar",
        "precedence": "integer",
        "unit": "varchar",
        "subtract": "double",
        "multiply": "double",
        "divide": "double",
        "low": "double",
        "high": "double",
        "paper": "boolean",
    },
    "channels": {"channel": "varchar", "label": "varchar", "unit": "varchar", "fill_hours": "integer"},
    "events": {"channel": "varchar", "below": "double", "above": "double"},
    "releases": {"release": "varchar", "stays": "bigint", "rows": "bigint"},
}
_PACKAGE = Path(str(files("cohort_sql")))
_PARAMETER = re.compile(r"\$([a-z_]+)")
_CSV_LINE = re.compile(r"Line: (\d+)")


class Engine:
    """One in-memory database with the package's dictionaries loaded; spills into `scratch` beyond `memory_limit`.

    `queries` collects the SHA-256 of every SQL file that ran. Use as a context manager.
    """

    def __init__(self, scratch: Path, threads: int | None = None, memory_limit: str = "2GiB") -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "memory_limit": memory_limit,
            "temp_directory": str(scratch / "spill"),
            "autoinstall_known_extensions": False,
            "preserve_insertion_order": True,
        }
        if threads is not None:
            config["threads"] = threads
        self.connection = duckdb.connect(config=config)
        self.queries: dict[str, str] = {}
        self.left_out: tuple[str, ...] = ()
        self._use_utc()
        self._execute("functions", "{}")
        for name, columns in DICTIONARIES.items():
            self._dictionary(name, columns)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def _use_utc(self) -> None:
        # Builds of DuckDB without the ICU extension know no other zone than UTC.
        try:
            self.connection.execute("set timezone = 'UTC'")
        except duckdb.Error:
            return

    def _dictionary(self, name: str, columns: dict[str, str]) -> None:
        relation = self.connection.read_csv(
            literal_path(dictionary_path(name)), header=True, columns=columns, auto_detect=False, delimiter=","
        )
        relation.create(name)

    def leave_out(self, ids: Mapping[str, Collection[int]]) -> None:
        """Make every view of a source file opened from now on lack the rows that hold one of these ids, by column."""
        for column, numbers in ids.items():
            listed = pa.table({"id": pa.array(sorted(numbers), pa.int64())})
            self.connection.from_arrow(listed).create(f"left_out_{column}")
        self.left_out = tuple(ids)

    def view(self, name: str, path: Path, columns: tuple[str, ...], present: tuple[str, ...]) -> None:
        """Make the source file `path` readable as the view `name`: `columns` as text, bound by name.

        A column that is not in `present` (the header) reads as null. Nothing is sniffed.
        """
        with self.guarded(path):
            if path.suffix == ".parquet":
                relation = self.connection.read_parquet(literal_path(path))
            else:
                relation = self.connection.read_csv(
                    literal_path(path),
                    header=True,
                    columns=dict.fromkeys(present, "varchar"),
                    auto_detect=False,
                    delimiter=",",
                    quotechar='"',
                    escapechar='"',
                    # Said, because a "?" in the path would hide the suffix.
                    compression="gzip" if path.suffix == ".gz" else "none",
                )
            for column in self.left_out:
                if column in present:
                    relation = relation.filter(_lacks(column))
            zoned = {column for column, kind in zip(present, relation.types, strict=True) if "ZONE" in str(kind)}
            selected = (_as_text(column, present=column in present, zoned=column in zoned) for column in columns)
            relation.project(", ".join(selected)).create_view(name, replace=True)

    def empty_view(self, name: str, columns: tuple[str, ...]) -> None:
        """Make a table that the source does not have readable as a view without rows."""
        selected = ", ".join(_as_text(column, present=False) for column in columns)
        self.connection.execute(f"create or replace view {name} as select {selected} where false")

    def parquet(self, name: str, path: Path) -> None:
        """Make a partitioned Parquet directory that this room wrote readable as the view `name`."""
        with self.guarded(path):
            files = f"{literal_path(path)}/*/*.parquet"
            self.connection.read_parquet(files, hive_partitioning=True).create_view(name, replace=True)

    def keep(self, name: str, path: Path) -> None:
        """Write the table `name` as a Parquet file that `restore` reads."""
        with self.guarded(None):
            self.connection.execute(f"copy {name} to $path (format parquet)", {"path": str(path)})

    def restore(self, name: str, path: Path) -> None:
        """Create the table `name` from a Parquet file that `keep` wrote."""
        with self.guarded(path):
            self.connection.read_parquet(literal_path(path)).create(name)

    def positions(self, name: str, places: Sequence[int]) -> None:
        """Create the table `name` with one row per place in a file."""
        chosen = pa.table({"position": pa.array(places, pa.int64())})
        self.connection.from_arrow(chosen).create(name)

    def table(self, name: str, *, reading: Path | None = None, append: bool = False, **values: object) -> None:
        """Create the table that sql/`name`.sql defines, or append to it; `values` are bound to its parameters."""
        table = name.rpartition("/")[2]
        statement = f"insert into {table} {{}}" if append else f"create or replace table {table} as {{}}"
        with self.guarded(reading):
            self._execute(name, statement, **values)

    def table_view(self, name: str) -> None:
        """Define the view that sql/`name`.sql selects; it takes no parameters."""
        with self.guarded(None):
            self._execute(name, f"create or replace view {name.rpartition('/')[2]} as {{}}")

    def rows(self, query: str, **values: object) -> list[dict[str, Any]]:
        """Return the rows of a short query as dictionaries."""
        with self.guarded(None):
            cursor = self.connection.execute(query, values)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def arrow(self, name: str, **values: object) -> pa.Table:
        """Return what sql/`name`.sql selects, in its order."""
        with self.guarded(None):
            return self.connection.sql(self._text(name), params=values).to_arrow_table()

    def export(self, name: str, path: Path, *, reading: Path, progress: Callable[[float], None] | None = None) -> int:
        """Write what sql/`name`.sql selects from `reading` as Parquet, by part; return the rows of `reading`."""
        with self.guarded(reading), self._unordered(), self._watched(progress):
            self._execute(name, "copy ({}) to $path (format parquet, partition_by (part))", path=str(path))
            profile = self.connection.get_profiling_information()
        # What was scanned is not what counts where rows are left out: those are counted in a second pass.
        scanned = None if reading.suffix == ".parquet" or self.left_out else _csv_rows(profile)
        return self.count("chartevents") if scanned is None else scanned

    def count(self, table: str) -> int:
        """Return how many rows a table or view has."""
        return int(self.rows(f"select count(*) as n from {table}")[0]["n"])

    @contextmanager
    def _unordered(self) -> Iterator[None]:
        """Let threads write in any order, and keep the counts of what was scanned: one pass must give both."""
        self.connection.execute("set preserve_insertion_order = false")
        self.connection.execute("pragma enable_profiling = 'no_output'")
        try:
            yield
        finally:
            self.connection.execute("pragma disable_profiling")
            self.connection.execute("set preserve_insertion_order = true")

    @contextmanager
    def _watched(self, progress: Callable[[float], None] | None) -> Iterator[None]:
        """Tell `progress` four times a second how much of the running query is done (0 to 1)."""
        if progress is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.25):
                progress(max(0.0, float(self.connection.query_progress()) / 100.0))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    @contextmanager
    def guarded(self, reading: Path | None) -> Iterator[None]:
        """Turn an error of DuckDB into one line about `reading`; its own text quotes rows and is not passed on."""
        try:
            yield
        except duckdb.Error as error:
            raise _plain(error, reading) from None

    def _execute(self, name: str, statement: str, **values: object) -> None:
        text = statement.format(self._text(name)) if "{}" in statement else statement
        named = set(_PARAMETER.findall(text))
        self.connection.execute(text, {key: value for key, value in values.items() if key in named} or None)

    def _text(self, name: str) -> str:
        text = sql_text(name)
        self.queries[f"{name}.sql"] = hashlib.sha256(text.encode()).hexdigest()
        return text


def sql_text(name: str) -> str:
    """Return the text of sql/`name`.sql."""
    return (_PACKAGE / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def package_text() -> str:
    """Return every query and CSV of the package as one text, which changes with any of them."""
    paths = sorted([*_PACKAGE.glob("*.csv"), *_PACKAGE.glob("sql/**/*.sql")])
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def dictionary_path(name: str) -> Path:
    """Return where the package keeps its CSV of `name`: vitals, channels, events or releases."""
    return _PACKAGE / f"{name}.csv"


def literal_path(path: Path) -> str:
    """Return the path with glob characters escaped, so that DuckDB opens just that file."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in str(path))


def header(path: Path) -> tuple[str, ...]:
    """Return the column names of a source file, in lower case; raises SourceError where it has none."""
    try:
        names = pq.read_schema(path).names if path.suffix == ".parquet" else _csv_header(path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, pa.ArrowException):
        raise SourceError(f"{place(path)}: cannot be opened as {_kind(path)}; copy or download it again") from None
    if not names:
        raise SourceError(f"{place(path)}: is empty; copy or download it again")
    # A column without a name is what an exported row index looks like.
    return tuple(name.strip().lower() or f"unnamed {number}" for number, name in enumerate(names))


def place(path: Path) -> str:
    """Return folder/name of a source file: what a message may say of where it is."""
    return f"{path.parent.name}/{path.name}"


def _csv_header(path: Path) -> list[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as lines:
        first = lines.readline().decode("utf-8-sig", errors="replace")
    return next(csv.reader([first]), [])


def _kind(path: Path) -> str:
    return {".gz": "gzipped CSV", ".csv": "CSV", ".parquet": "Parquet"}[path.suffix]


def _as_text(column: str, *, present: bool, zoned: bool = False) -> str:
    # Typed columns of a Parquet file become text again and are then read as text is, empty text as null.
    # A time with a zone, as Spark writes them, is taken in UTC, the zone of the session.
    if not present:
        return f'cast(null as varchar) as "{column}"'
    naive = f'cast("{column}" as timestamp)' if zoned else f'"{column}"'
    return f"nullif(cast({naive} as varchar), '') as \"{column}\""


def _lacks(column: str) -> str:
    """The condition that a row holds none of the ids to leave out; text that is no id is kept, to be told as such."""
    field = f"nullif(cast(\"{column}\" as varchar), '')"
    return f"coalesce(as_id({field}) not in (select id from left_out_{column}), true)"


def _csv_rows(profile: str) -> int | None:
    """Return how many rows the CSV reader gave, from DuckDB's profile, or None where this DuckDB does not say."""
    waiting, counts = [json.loads(profile)], []
    while waiting:
        node = waiting.pop()
        waiting += [*node.get("children", []), *node.get("operator", [])]
        if "READ_CSV" in node.get("name", "") and "rows_scanned" in node:
            counts.append(int(node["rows_scanned"]))
    return counts[0] if len(counts) == 1 else None


def _plain(error: duckdb.Error, reading: Path | None) -> ValueError:
    text = str(error)
    where = place(reading) if reading else "the cohort"
    if isinstance(error, duckdb.OutOfMemoryException):
        return CohortError(f"{where}: needs more memory than its limit; raise the memory limit or free disk space")
    if "GZIP" in text:
        return SourceError(f"{where}: the gzip file ends early or is damaged; copy or download it again")
    line = _CSV_LINE.search(text)
    if line:
        return SourceError(
            f"{where}: line {line.group(1)} does not have the columns of the header or is not UTF-8 text; "
            "export or download the file again"
        )
    if "No space left" in text:
        return CohortError(f"{where}: the disk of the scratch directory is full; free space or name another one")
    if reading:
        return SourceError(f"{where}: cannot be read ({type(error).__name__}); copy or download it again")
    return CohortError(f"{where}: DuckDB stopped ({type(error).__name__}); please report it with the versions used")
