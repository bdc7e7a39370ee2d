"""Calls of scikit-learn's estimators: on one thread, and once for labels and scores where possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from threadpoolctl import ThreadpoolController

from mlflow_cf.model import Label
from mlflow_cf_flavors.answers import Answers, ClearScore, Floats, LargestScore, OwnAnswers, Rows, margins
from mlflow_cf_flavors.catboost.export import threshold_of

Both = Callable[[Any], tuple[Answers, Floats]]

# their `predict` takes the first of the largest shares, by definition; a hard vote has none
_LARGEST: Final = frozenset(
    {
        "BaggingClassifier",
        "CalibratedClassifierCV",
        "DecisionTreeClassifier",
        "ExtraTreeClassifier",
        "ExtraTreesClassifier",
        "RandomForestClassifier",
        "VotingClassifier",
    }
)
# theirs takes the largest share or margin too, but they do not all agree on equal ones
_CLEAR: Final = frozenset(
    {
        "AdaBoostClassifier",
        "BernoulliNB",
        "CatBoostClassifier",
        "CategoricalNB",
        "ComplementNB",
        "ExplainableBoostingClassifier",
        "GaussianNB",
        "GradientBoostingClassifier",
        "HistGradientBoostingClassifier",
        "KNeighborsClassifier",
        "LGBMClassifier",
        "LinearSVC",
        "LogisticRegression",
        "LogisticRegressionCV",
        "MLPClassifier",
        "MultinomialNB",
        "RidgeClassifier",
        "SGDClassifier",
        "XGBClassifier",
    }
)


def whole(rows: Any) -> Any:
    """Return a table as it comes."""
    return rows


@dataclass(frozen=True)
class Named:
    """Rows -> the columns an estimator was fitted on, by name and in its order."""

    names: tuple[str, ...]

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return these columns of rows (n, d)."""
        return rows if rows.columns.equals(self._index) else rows.loc[:, list(self.names)]

    @cached_property
    def _index(self) -> pd.Index[str]:
        return pd.Index(self.names)


@dataclass(frozen=True)
class OneThread:
    """Calls an estimator on one OpenMP thread: on small tables, starting more costs far more than they save."""

    ask: Callable[[Any], Any]
    threads: ThreadpoolController = field(default_factory=ThreadpoolController, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[OneThread], tuple[Callable[[Any], Any]]]:
        """Pickle the call alone; handles of loaded libraries belong to this process."""
        return OneThread, (self.ask,)

    def instead(self, ask: Callable[[Any], Any]) -> OneThread:
        """Return the same for another call; the loaded libraries are not searched again, which takes milliseconds."""
        return OneThread(ask, self.threads)

    def __call__(self, table: Any) -> Any:
        """Return the estimator's answers for a table."""
        with self.threads.limit(limits=1, user_api="openmp"):
            return self.ask(table)


@dataclass(frozen=True)
class Scores:
    """Rows -> one float64 column per class; a single margin m becomes (-m, m).

    Attributes:
        score: what the estimator takes -> its scores; `select`: rows, or their codes -> what it takes.
    """

    score: Callable[[Any], Any]
    select: Callable[[Any], Any]

    def __call__(self, rows: Any) -> Floats:
        """Return the answers for rows (n, d)."""
        scores = np.asarray(self.score(self.select(rows)), dtype=np.float64)
        return margins(scores) if scores.ndim == 1 else scores


def both_of(decide: OwnAnswers, scores: Scores, estimator: object, classes: tuple[Label, ...]) -> Both | None:
    """Return rows -> labels and scores of an estimator that is asked by `decide` and `scores`; None: by both of them.

    Classes that are derived from those known here may decide otherwise.
    """
    kind, library = type(estimator).__name__, type(estimator).__module__.split(".")[0]
    if library not in ("sklearn", "lightgbm", "xgboost", "catboost", "interpret"):
        return None
    if library == "catboost" and threshold_of(estimator) is not None:
        return None
    if kind in _LARGEST:
        return LargestScore(scores, classes).both
    return ClearScore(decide, scores, classes) if kind in _CLEAR else None


@dataclass(frozen=True)
class OneByOne:
    """Rows -> labels and scores, by two calls."""

    labels: OwnAnswers
    scores: Scores

    def __call__(self, rows: Any) -> tuple[Answers, Floats]:
        """Return the answers for rows (n, d)."""
        return self.labels(rows), self.scores(rows)


@dataclass(frozen=True)
class Prepared:
    """Rows -> what the last step of a pipeline takes, transformed step by step as its `predict` does.

    Attributes:
        select: rows -> the columns the pipeline takes; transforms: those of all steps but the last.
    """

    select: Rows
    transforms: tuple[Callable[[Any], Any], ...]

    def __call__(self, rows: pd.DataFrame) -> Any:
        """Return the last step's table for rows (n, d)."""
        table = self.select(rows)
        for transform in self.transforms:
            table = transform(table)
        return table


@dataclass(frozen=True)
class PreparedOnce:
    """Rows, or their codes -> labels and scores of an estimator; `both` takes what is `prepared` of them."""

    prepared: Callable[[Any], Any]
    both: Both

    def __call__(self, rows: Any) -> tuple[Answers, Floats]:
        """Return the answers for rows (n, d)."""
        return self.both(self.prepared(rows))
