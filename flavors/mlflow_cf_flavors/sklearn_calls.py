"""How scikit-learn's estimators are asked: on one thread, one answer per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from mlflow_cf.errors import InputError

Rows = Callable[[pd.DataFrame], Any]


@dataclass(frozen=True)
class OneThread:
    """Calls an estimator on one OpenMP thread: on small tables, starting more costs far more than they save."""

    ask: Callable[[Any], Any]
    threads: ThreadpoolController

    def __call__(self, table: Any) -> Any:
        """Return the estimator's answers for a table."""
        with self.threads.limit(limits=1, user_api="openmp"):
            return self.ask(table)


@dataclass(frozen=True)
class Both:
    """Rows -> labels and scores of a pipeline that is asked for both, transformed once."""

    transform: Callable[[Any], Any]
    decide: Callable[[Any], Any]
    score: Callable[[Any], Any]
    select: Rows

    def __call__(self, rows: pd.DataFrame) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
        """Return the answers for rows (n, d)."""
        table = self.transform(self.select(rows))
        scores = np.asarray(self.score(table), dtype=np.float64)
        labels = one_answer_per_row(np.asarray(self.decide(table)))
        return labels, np.column_stack((-scores, scores)) if scores.ndim == 1 else scores


@dataclass(frozen=True)
class Labels:
    """Rows -> the estimator's own labels, shape (n,)."""

    predict: Callable[[Any], Any]
    select: Rows

    def __call__(self, rows: pd.DataFrame) -> NDArray[np.generic]:
        """Return the answers for rows (n, d)."""
        return one_answer_per_row(np.asarray(self.predict(self.select(rows))))


@dataclass(frozen=True)
class Values:
    """Rows -> the regressor's values, shape (n,) float64."""

    predict: Callable[[Any], Any]
    select: Rows

    def __call__(self, rows: pd.DataFrame) -> NDArray[np.generic]:
        """Return the answers for rows (n, d)."""
        return one_answer_per_row(np.asarray(self.predict(self.select(rows)), dtype=np.float64))


@dataclass(frozen=True)
class Scores:
    """Rows -> one float64 column per class; a single margin m becomes (-m, m)."""

    score: Callable[[Any], Any]
    select: Rows

    def __call__(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return the answers for rows (n, d)."""
        scores = np.asarray(self.score(self.select(rows)), dtype=np.float64)
        return np.column_stack((-scores, scores)) if scores.ndim == 1 else scores


def one_answer_per_row(answers: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return answers (n,), or refuse an estimator that gives several per row."""
    if answers.ndim == 2 and answers.shape[1] == 1:
        return answers[:, 0]
    if answers.ndim != 1:
        raise InputError("model", f"answers {answers.shape[1:]} values per row", "wrap one model per output")
    return answers
