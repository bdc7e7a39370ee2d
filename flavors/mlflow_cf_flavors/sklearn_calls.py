"""How scikit-learn's estimators are asked: on one thread, one answer per row."""

from __future__ import annotations

import sys
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
    """Rows -> labels and scores of a pipeline that is asked for both, transformed once.

    Attributes:
        transform: all steps but the last.
        ask: the last step: a table -> labels and scores.
        select: rows -> the columns the pipeline takes.
    """

    transform: Callable[[Any], Any]
    ask: Callable[[Any], tuple[Any, Any]]
    select: Rows

    def __call__(self, rows: pd.DataFrame) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
        """Return the answers for rows (n, d)."""
        answers, found = self.ask(self.transform(self.select(rows)))
        labels, scores = one_answer_per_row(np.asarray(answers)), np.asarray(found, dtype=np.float64)
        return labels, np.column_stack((-scores, scores)) if scores.ndim == 1 else scores


def label_and_score(estimator: Any, table: Any) -> tuple[Any, Any]:
    """Return an estimator's labels and scores for a table."""
    ensemble = sys.modules.get("sklearn.ensemble")  # an estimator of a module that is not loaded cannot be here
    if ensemble is not None and type(estimator) in (ensemble.RandomForestClassifier, ensemble.ExtraTreesClassifier):
        scores = estimator.predict_proba(table)  # `predict` of a forest takes the first label of the largest one
        return estimator.classes_.take(np.argmax(scores, axis=1)), scores
    score = estimator.predict_proba if hasattr(estimator, "predict_proba") else estimator.decision_function
    return estimator.predict(table), score(table)


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
