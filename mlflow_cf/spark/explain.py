"""Rows of a Spark data frame explained where they are: block by block in Spark's workers, nothing on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from mlflow.models import Model
from mlflow.types import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as sql
from pyspark.sql.functions import col

from mlflow_cf.artifact.publish.signature import PARAM
from mlflow_cf.artifact.served import origin_of
from mlflow_cf.errors import CounterfactualError, InputError, did_you_mean
from mlflow_cf.files.answers import answer_block
from mlflow_cf.files.typed import typed_replies
from mlflow_cf.model.flavors import fetch
from mlflow_cf.spark.columns import reply_columns, rows_of
from mlflow_cf.spark.errors import MOST_SHOWN, told
from mlflow_cf.spark.shipped import opened, ship


def explain(
    df: DataFrame,
    model_uri: str | Path,
    params: Mapping[str, Any] | None = None,
    key: str | Sequence[str] | None = None,
) -> DataFrame:
    """Explain the rows of a Spark data frame in its workers.

    The driver fetches the model and sends it along, one worker tries it at once, and each worker process opens it
    once. All else happens when the result is asked for, partition by partition; a partition that is lost is explained
    again, with the same answers.

    Args:
        df: rows with the model's columns, perhaps among others.
        model_uri: the explained model's URI or folder, as the driver sees it.
        params: options as a request has them, ``{"counterfactual": {...}}``; a ``time_limit_s`` is that of a block of
            rows (``spark.sql.execution.arrow.maxRecordsPerBatch``).
        key: the column, or columns, kept beside each answer; None: all columns of `df`.

    Returns:
        One row per row of `df`: the kept columns, then those of a reply with the types of the model's output schema.
        A row that cannot be read has the status ``invalid``, and a null prediction where the model makes none.

    Raises:
        InputError: columns that are missing, there twice or named as those of a reply; options that do not fit; no
            model at that address, or workers that cannot open it.
        ArtifactError: it is not an explained model, or damaged.
    """
    folder = fetch(model_uri)
    origin = origin_of(folder)
    signature: Any = Model.load(str(folder)).signature
    outputs, inputs = reply_columns(signature.outputs), inputs_of(df, signature.inputs)
    keys = list(df.columns) if key is None else [key] if isinstance(key, str) else list(key)
    _check_keys(df, keys, list(outputs))
    kinds = {name: kind for name, (_, kind) in outputs.items()}
    work = Work(ship(df.sparkSession, folder, origin.manifest_sha256), dict(params or {}), tuple(keys), kinds)
    _try(df, work)
    wanted = list(dict.fromkeys([*keys, *inputs]))
    fields = [df.schema[name] for name in keys] + [sql.StructField(name, kind) for name, (kind, _) in outputs.items()]
    return df.select([col(f"`{name}`") for name in wanted]).mapInArrow(work, sql.StructType(fields))


@dataclass(frozen=True)
class Work:
    """What a worker does with the blocks of a partition.

    Attributes:
        model: the name that workers find the model by.
        params: options of a request.
        keys: columns that are kept.
        kinds: the columns of a reply and their types.
    """

    model: str
    params: Mapping[str, Any]
    keys: tuple[str, ...]
    kinds: Mapping[str, pa.DataType]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers to each block of rows, with its keys."""
        explained = opened(self.model)
        for batch in batches:
            if not batch.num_rows:
                continue
            answers = answer_block(explained, rows_of(batch, explained.space), self.params.get(PARAM) or {})
            columns = {name: batch.column(name) for name in self.keys} | typed_replies(answers, self.kinds)
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True)
class Trial:
    """Opens the model in one worker, and asks it once; yields what is wrong with that, or nothing."""

    work: Work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one text: the error, or ""."""
        for _ in batches:
            pass
        try:
            explained = opened(self.work.model)
            explained.request(explained.background.head(1), self.work.params)
        except CounterfactualError as error:
            yield pa.RecordBatch.from_arrays([pa.array([error.message])], names=["error"])
            return
        yield pa.RecordBatch.from_arrays([pa.array([""])], names=["error"])


def _try(df: DataFrame, work: Work) -> None:
    """Let one worker open the model and answer a row of its background with these options."""
    fix = "install the same mlflow-cf, and the model's requirements, for the Python of Spark's workers"
    try:
        (tried,) = df.sparkSession.range(1, numPartitions=1).mapInArrow(Trial(work), "error string").collect()
    except PySparkException as error:
        raise InputError("workers", f"cannot open the model ({told(error)})", fix) from error
    if tried["error"]:
        raise InputError("model", tried["error"].replace("\n", " ")[:MOST_SHOWN])


def inputs_of(df: DataFrame, inputs: Schema) -> list[str]:
    """Return the model's columns that `df` has.

    Raises:
        InputError: one is missing, or there twice.
    """
    names = list(map(str, inputs.input_names()))
    required = set(map(str, inputs.required_input_names()))
    for name in names:
        if df.columns.count(name) > 1:
            raise InputError(f"df.{name}", "two columns have this name", "rename one of them")
        if name not in df.columns and name in required:
            raise InputError(f"df.{name}", "column is missing", did_you_mean(name, df.columns, "columns"))
    return [name for name in names if name in df.columns]


def _check_keys(df: DataFrame, keys: Sequence[str], outputs: Sequence[str]) -> None:
    for name in keys:
        if df.columns.count(name) != 1:
            there = "two columns have this name" if name in df.columns else "not a column of df"
            raise InputError(f"key.{name}", there, did_you_mean(name, df.columns, "columns"))
        if name in outputs:
            fix = "rename it, or name the columns to keep: key=[..]"
            raise InputError(f"key.{name}", "a reply has a column of this name, too", fix)
