"""Parquet files of users: one, or a folder of them as Spark writes it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mlflow_cf.errors import InputError


def parquet_files(path: Path) -> tuple[Path, ...]:
    """Return the parquet file at `path`, or all in and below that folder, sorted; hidden ones are none of the rows.

    Raises:
        InputError: there are none.
    """
    if path.is_file():
        return (path,)
    inside = sorted(path.rglob("*.parquet")) if path.is_dir() else []
    files = tuple(file for file in inside if not any(part[0] in "._" for part in file.relative_to(path).parts))
    if not files:
        raise InputError(str(path), "is neither a parquet file nor a folder of some", "check the path")
    return files


def footer(file: Path) -> pq.FileMetaData:
    """Return what a parquet file says of itself.

    Raises:
        InputError: it is none, or incomplete.
    """
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(file.name, f"cannot be read as parquet ({type(error).__name__})", "write it again") from error
