"""Files written piece by piece, the same bytes every time: gzip CSV and Parquet."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_COMPRESSION_LEVEL = 1


class CsvTable:
    """A gzip CSV file that grows by frames; its header is written at once, so that no rows still make a table."""

    def __init__(self, path: Path, header: tuple[str, ...]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._header = header
        self._file = path.open("wb")
        # Neither a time nor a file name goes into the gzip header: they would change the bytes from run to run.
        self._gzip = gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, self._file, mtime=0)
        self._gzip.write((",".join(header) + "\n").encode())

    def append(self, frame: pl.DataFrame) -> None:
        """Write the rows of a frame that has at least the columns of the header."""
        text = io.BytesIO()
        frame.select(self._header).write_csv(text, include_header=False, datetime_format=_TIME_FORMAT)
        self._gzip.write(text.getbuffer())

    def close(self) -> None:
        """Finish the gzip stream and the file."""
        self._gzip.close()
        self._file.close()


class ParquetTable:
    """A Parquet file that grows by one row group per frame."""

    def __init__(self, path: Path, schema: pl.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._schema = schema
        self._writer = pq.ParquetWriter(path, _arrow(schema.to_frame()).schema, compression="zstd")

    def append(self, frame: pl.DataFrame) -> None:
        """Write the rows of a frame that has at least the columns of the schema."""
        self._writer.write_table(_arrow(frame.select(self._schema.names()).cast(self._schema)))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def _arrow(frame: pl.DataFrame) -> pa.Table:
    """Return the frame as Arrow with plain strings, which every Parquet reader knows."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
