"""`report`: a table explained, and what came of it as one HTML file; nothing is logged."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from numpy.typing import ArrayLike

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.evaluate import SoFar, measure_all, nobody, reported, task_of
from mlflow_cf.evaluation.measure.lines import GroupSource
from mlflow_cf.evaluation.measure.measured import Measuring
from mlflow_cf.evaluation.measure.reported import material_of, write_report
from mlflow_cf.evaluation.source import ModelSource, source_of
from mlflow_cf.explainers.registry import ExplainerSource


def report(
    model: ModelSource,
    rows: pd.DataFrame,
    path: str | Path,
    *,
    labels: str | ArrayLike | None = None,
    explainers: Sequence[ExplainerSource] | None = None,
    count: int = 1,
    groups: GroupSource | None = None,
    seed: int | None = None,
    time_limit_s: float | None = None,
    max_evaluations: int | None = None,
    certify: bool = False,
) -> Path:
    """Explain a table and write what came of it to an HTML file that needs nothing beside it; nothing is logged.

    The same model, rows and seed give the same file, unless a clock ended a search. It shows values of the rows, and of
    the background: whoever may read the file can read them. Of more than 1,000 rows a sample is shown one by one; all
    figures are of all rows.

    Args:
        model: an explained model in memory, a loaded pyfunc of one, or its URI or folder.
        rows: rows to explain (m, d); other columns than the model's are welcome.
        path: of the file; its folder is made where there is none. It is written as a whole or not at all.
        labels, explainers, groups: as in `evaluate`.
        count, seed, max_evaluations, certify: as in `ExplainedModel.explain`.
        time_limit_s: seconds for all rows of an explainer; None: no clock.

    Returns:
        The path of the file.

    Raises:
        InputError: arguments that do not fit, or no explainer that can do it.
    """
    file = Path(path)
    if file.is_dir():
        raise InputError("path", f"{file.name!r} is a folder", "name a file in it, such as report.html")
    how = Measuring(None, count, seed, time_limit_s, max_evaluations, certify)
    task = task_of(source_of(model), rows, how, labels=labels, explainers=explainers, groups=groups)
    so_far = SoFar()
    with tempfile.TemporaryDirectory(prefix="mlflow-cf-") as scratch:
        measure_all(task, Path(scratch), so_far)
        if so_far.interruption is not None:
            raise so_far.interruption
        if not so_far.paths:
            raise nobody(so_far)
        material = material_of(reported(task, so_far), patient=True)
    write_report(material, file)
    return file
