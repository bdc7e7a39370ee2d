"""An explained model on its way to Spark's workers: packed once by the driver, opened once by each worker process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel

NAMED: Final = "mlflow_cf_"  # and the digest of its manifest: the same model is sent once


def ship(spark: SparkSession, folder: Path, manifest_sha256: str) -> str:
    """Send the model in `folder` to all workers, unless it was sent before; return the name that they find it by.

    Raises:
        InputError: the session is one of Spark Connect, which has no way for files of this kind.
    """
    name = f"{NAMED}{manifest_sha256}"
    try:
        context: Any = spark.sparkContext
    except PySparkException as error:
        fix = "use a classic session, or mlflow.pyfunc.spark_udf"
        raise InputError("df", "its session is one of Spark Connect, which sends workers no model", fix) from error
    if any(str(sent).endswith(f"#{name}") for sent in context.listArchives):
        return name
    scratch = Path(tempfile.mkdtemp(prefix="mlflow-cf-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)  # workers may ask for it as long as the session lives
    archive = shutil.make_archive(str(scratch / name), "zip", folder)
    context.addArchive(f"{archive}#{name}")
    return name


def opened(name: str) -> ExplainedModel:
    """Return the model that was sent by this name, opened once in a worker process."""
    return _opened(SparkFiles.get(name))


# A worker process is given many parts of data frames, one after the other, and nothing else outlives a part.
@lru_cache(maxsize=8)  # versions that are compared are opened side by side
def _opened(folder: str) -> ExplainedModel:
    explained = load_folder(Path(folder))
    explained.warm_up()
    return explained
