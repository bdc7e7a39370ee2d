"""Tables in parquet files that may be forged: what a file may unpack to is bounded by its own size.

Ours hold their values as they are, neither compressed nor encoded: a table of n cells of 8 bytes takes n times 8 bytes
of the file, and every file that says otherwise is refused before it is unpacked. Files of the first version were
compressed; what they may unpack to is bounded less tightly.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import Floats

MOST_CELLS: Final = 32_000_000  # of a table: 256 MB
FOOTER_BYTES: Final = 64 * 1024
FOOTER_BYTES_A_COLUMN: Final = 8 * 1024  # for 32 groups of rows, and a long name
FOOTER_LIST: Final = 1024  # elements of any list in a footer, beside one for each column
_ROWS_A_GROUP: Final = 1024**2
_LABEL: Final = "label"
_LABEL_TYPES: Final = (pa.bool_(), pa.int64(), pa.float64(), pa.string())


@dataclass(frozen=True)
class Packing:
    """How the tables of a version of the format may be packed.

    Attributes:
        codecs: parquet's names of compressions.
        free_bytes: what a table may unpack to, however small its file is.
        ratio: bytes that one byte of the file may unpack to beyond that.
    """

    codecs: tuple[str, ...] = ("UNCOMPRESSED",)
    free_bytes: int = 0
    ratio: int = 1

    def most_bytes(self, raw: bytes) -> int:
        """Return the most bytes that a file of these bytes may unpack to."""
        return max(self.free_bytes, self.ratio * len(raw))


AS_IT_IS: Final = Packing()
COMPRESSED: Final = Packing(("UNCOMPRESSED", "SNAPPY"), 8 * 1024**2, 64)


def write_codes(path: Path, codes: Floats, names: tuple[str, ...]) -> None:
    """Write the coded background, (n, d): one type for every column, exact to the bit.

    Raises:
        InputError: more cells than an artifact may have.
    """
    if codes.size > MOST_CELLS:
        raise InputError("data", f"has {len(codes):,} rows", f"sample {MOST_CELLS // len(names):,} of them at most")
    _write(pa.table({name: codes[:, column] for column, name in enumerate(names)}), path)


def write_labels(path: Path, labels: NDArray[np.generic]) -> None:
    """Write one label a row.

    Raises:
        InputError: labels of several types.
    """
    try:
        column = pa.array(labels.tolist())
    except pa.ArrowException as error:
        raise InputError("labels", "are of several types", "pass labels of one type") from error
    _write(pa.table({_LABEL: column}), path)


def _write(table: pa.Table, path: Path) -> None:
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, row_group_size=_ROWS_A_GROUP, store_schema=False, **plain)


def read_codes(raw: bytes, names: tuple[str, ...], rows: int | None, packing: Packing) -> Floats:
    """Return the coded background, (n, d), of a file with exactly these columns.

    Raises:
        ValueError, OSError, pa.ArrowException: another table, or one that unpacks to too much.
    """
    file = _opened(raw, names, packing)
    cells = file.metadata.num_rows * len(names)
    if rows not in (None, file.metadata.num_rows) or cells > MOST_CELLS or cells * 8 > packing.most_bytes(raw):
        raise ValueError("other rows than expected, or too many")
    if set(file.schema_arrow.types) != {pa.float64()}:
        raise ValueError("columns of another type")
    return np.column_stack([column.to_numpy() for column in file.read(use_threads=False).columns])


def read_labels(raw: bytes, rows: int, packing: Packing) -> NDArray[np.generic]:
    """Return (rows,) labels.

    Raises:
        ValueError, OSError, pa.ArrowException: another table, or one that unpacks to too much.
    """
    file = _opened(raw, (_LABEL,), packing)
    if file.metadata.num_rows != rows or file.schema_arrow.types[0] not in _LABEL_TYPES:
        raise ValueError("labels of another type, or for other rows")
    if file.schema_arrow.types[0] != pa.string():
        return np.asarray(file.read(use_threads=False).column(0).to_pylist())
    # Each text once, and counted before any is repeated: a few bytes can say "this page of text, a million times".
    again = _parsed(raw, (_LABEL,), read_dictionary=[_LABEL])
    column = again.read(use_threads=False).column(0).combine_chunks()
    longest = pc.sum(pc.take(pc.binary_length(column.dictionary), column.indices)).as_py()
    if longest > packing.most_bytes(raw):
        raise ValueError("labels that unpack to too much")
    return np.asarray(column.to_pylist())


def _opened(raw: bytes, names: tuple[str, ...], packing: Packing) -> pq.ParquetFile:
    """Return a file with these columns, all of whose groups of rows are packed like ours."""
    file = _parsed(raw, names)
    said = file.metadata
    if said.num_columns != len(names) or file.schema_arrow.names != list(names):
        raise ValueError("other columns than expected")
    if said.num_rows < 1 or said.num_row_groups > said.num_rows // _ROWS_A_GROUP + 1:
        raise ValueError("no rows, or more groups of rows than needed")
    rows = [_rows_of_group(file, number, packing) for number in range(said.num_row_groups)]
    if sum(rows) != said.num_rows:
        raise ValueError("groups of other rows than the table's")
    return file


def _parsed(raw: bytes, names: tuple[str, ...], **options: Any) -> pq.ParquetFile:
    """Parse the footer, which takes no more memory than one of ours does; nothing is unpacked."""
    most = FOOTER_BYTES + FOOTER_BYTES_A_COLUMN * len(names)
    if not 0 < int.from_bytes(raw[-8:-4], "little") <= most:
        raise ValueError("no parquet file, or a footer that is too large")
    limits = {"thrift_string_size_limit": most, "thrift_container_size_limit": FOOTER_LIST + len(names)}
    return pq.ParquetFile(pa.BufferReader(raw), **limits, **options)


def _rows_of_group(file: pq.ParquetFile, number: int, packing: Packing) -> int:
    """Return how many rows a group says it has; all its columns have as many values.

    Where what a footer says of a column is forged, asking pyarrow for that column ends the process; a reader of the
    same columns raises. So there is one first, of batches of no rows: it takes in the footer and unpacks nothing.
    """
    columns = range(file.metadata.num_columns)
    deque(file.reader.iter_batches(0, [number], list(columns), use_threads=False), maxlen=0)
    group = file.metadata.row_group(number)
    for column in map(group.column, columns):
        if column.num_values != group.num_rows or column.compression not in packing.codecs:
            raise ValueError("columns that are packed otherwise than ours")
    if group.num_rows < 0:
        raise ValueError("fewer rows than none")
    return int(group.num_rows)
