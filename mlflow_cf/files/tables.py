"""Whole tables of rows from the files of users: .csv, .json or .parquet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
from mlflow.models import get_model_info
from mlflow.types import DataType

from mlflow_cf.errors import InputError


def read_table(path: Path, where: str, texts: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of a file.

    Args:
        path: of the file; its name says of which kind it is.
        where: what names the file to whom an error is told, such as an option.
        texts: columns whose values stay as they are written, so that "01" is no number and "NA" is a value; only an
            empty cell of .csv, and null in .json, is a missing one. Parquet knows types by itself.

    Raises:
        InputError: a file of another kind, or one that cannot be read.
    """
    if path.suffix not in READERS:
        raise InputError(where, f"{path.name} is none of {', '.join(READERS)}", "store the table as one of them")
    try:
        return READERS[path.suffix](path, texts)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(where, f"{path} cannot be read: {str(error).strip()}", "name a table") from None


def text_columns(uri: str) -> frozenset[str]:
    """Return the columns that a model takes as texts, by its signature alone.

    There are none where it cannot be read: whoever loads the model says what is wrong with it.
    """
    try:
        signature = get_model_info(uri).signature
    except Exception:  # noqa: BLE001  errors of stores, of YAML and of what stands in it
        return frozenset()
    inputs = () if signature is None or signature.inputs is None else signature.inputs.inputs
    return frozenset(str(column.name) for column in inputs if column.type == DataType.string)


def _csv(path: Path, texts: Collection[str]) -> pd.DataFrame:
    rows = pd.read_csv(path)
    found = [str(name) for name in rows if name in texts]
    if found:  # what counts as missing can be told of all columns of one reading alone
        rows[found] = pd.read_csv(path, usecols=found, dtype=str, keep_default_na=False, na_values=[""])[found]
    return rows


def _json(path: Path, texts: Collection[str]) -> pd.DataFrame:
    return pd.read_json(path, dtype=dict.fromkeys(texts, object) or True)


def _parquet(path: Path, texts: Collection[str]) -> pd.DataFrame:
    del texts
    return pd.read_parquet(path)


READERS: Final[Mapping[str, Callable[[Path, Collection[str]], pd.DataFrame]]] = {  # by the end of the file's name
    ".csv": _csv,
    ".json": _json,
    ".parquet": _parquet,
}
