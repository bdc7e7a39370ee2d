"""Models that stand for the next retraining: the owner's estimator, fitted anew to rows that are drawn from its data.

What is promised is how an answer fares under the next model, which learns from other rows of the same kind. Let S be
the variance of what n rows teach. The model at hand is off by S itself, and the next one by S too, so that the next one
lies around the model at hand with the variance 2 S. A bootstrap of n of n rows only shows S; one of n / 2 rows shows
2 S. So each model here is fitted to half as many rows as there are, drawn with replacement, unless its owner says
otherwise. Halves of the rows (``folds``) have no row twice, and show S: models differ less than the next one will.

What the rows at hand have in common stays hidden: all draws share it, and a search for the nearest answer leans on it.
Linear models are moved for it (`shrinkage`). Models that follow single rows closely, such as boosting, then keep less
than is promised: `trial` finds out, and labels are drawn, too (`labels`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.model.versions import Version, opened
from mlflow_cf.policy.survival import WHERE, SurvivalWanted
from mlflow_cf.quiet import quietly
from mlflow_cf.survival.labels import Chances, chances
from mlflow_cf.survival.rows import GIVE, Draws, Rows
from mlflow_cf.unlogged import unlogged
from mlflow_cf.words.sentences import counted

SPARE: Final = 0.25  # of the models: so many more are fitted where some fail
_logger = logging.getLogger(__name__)


class Estimator(Protocol):
    """What can be fitted anew."""

    def get_params(self, *, deep: bool = True) -> dict[str, Any]:
        """Return its parameters."""
        ...

    def fit(self, X: Any, y: Any) -> Any:
        """Fit it."""
        ...


@dataclass(frozen=True, eq=False)
class Retrained:
    """Models that retraining may give.

    Attributes:
        models: opened.
        note: what went wrong on the way, for `describe()`; "" if nothing did.
        chance: the variance of a fit to all rows, as a share of that of these fits to draws; None of models that were
            given.
    """

    models: tuple[OpenModel, ...]
    note: str = ""
    chance: float | None = None

    @property
    def alike(self) -> bool:
        """Whether they are fits of one estimator."""
        return self.chance is not None


def given_models(wanted: SurvivalWanted, data: Any, output: str | None = None) -> Retrained:
    """Return the models that the owner gives, opened on rows of data (n, d).

    Raises:
        InputError: one of them cannot be opened.
    """
    return Retrained(tuple(_given(wanted.given, data, output)))


def _given(models: tuple[Any, ...], data: Any, output: str | None) -> Iterator[OpenModel]:
    """Yield the given models, opened."""
    for at, model in enumerate(models):
        try:
            yield opened(Version(f"model_{at + 1}", model), data, output)
        except InputError as error:
            raise InputError(f"{WHERE}.models[{at}]", f"{error.path}: {error.fact}", error.fix) from error


def _clonable(model: object) -> Any:
    """Return an estimator that can be copied without what it has learned.

    Raises:
        InputError: it cannot.
    """
    from sklearn.base import clone  # noqa: PLC0415  half a second that no server needs

    fact = f"a {type(model).__name__} cannot be fitted anew"
    if not hasattr(model, "fit") or not hasattr(model, "get_params"):
        raise InputError(f"{WHERE}.models", fact, f"pass the fitted scikit-learn estimator itself, or {GIVE}")
    try:
        clone(model)
    except Exception as error:
        raise InputError(f"{WHERE}.models", f"{fact} ({type(error).__name__})", GIVE) from error
    return model


@dataclass(frozen=True, eq=False)
class Refit:
    """The owner's estimator, to be fitted anew.

    Attributes:
        estimator: can be cloned; classes: what every fit must see, as text; None for a regression.
    """

    estimator: Any
    classes: NDArray[Any] | None

    @classmethod
    def of(cls, model: object, rows: Rows) -> Refit:
        """Return how a model is fitted anew to rows.

        Raises:
            InputError: it cannot be cloned, or the labels have one class.
        """
        estimator = _clonable(model)
        return cls(estimator, _classes_of(estimator, rows))

    def fit(self, rows: Rows, rng: np.random.Generator) -> Any:
        """Return the estimator fitted to rows."""
        return _fit(self.estimator, rows.data, rows.labels, int(rng.integers(2**31)))

    @property
    def asks(self) -> bool:
        """Whether its fits tell probabilities of labels."""
        return self.classes is not None and hasattr(self.estimator, "predict_proba")

    def drawn(self, rows: Rows, wanted: SurvivalWanted, rng: np.random.Generator) -> Retrained:
        """Return as many models as are wanted, fitted to draws of rows; some more are tried where fits fail.

        Raises:
            InputError: too many fits fail, a model cannot be opened, or there are no probabilities to draw labels with.
        """
        draw = Draws(rows.labels, self.classes, rng)
        of, models, failed = wanted.wanted_models, list[OpenModel](), Counter[str]()
        opened = Opening(rows.data)
        folds = wanted.models == "folds"
        places = draw.halves() if folds else draw.bootstraps(wanted.drawn)
        likely = self._chances(rows, draw, rng) if wanted.labels == "drawn" else None
        while len(models) < of and failed.total() <= SPARE * of + 1:
            try:
                some = next(places)
                learned = rows.take(some) if likely is None else likely.drawn(rows, some, rng)
                models.append(opened.open(self.fit(learned, rng)))
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001  any estimator, any error; the message may quote rows
                failed[type(error).__name__] += 1
        note = _told(failed, draw.again)
        if len(models) < of:
            fact = f"only {len(models)} of {of} models could be retrained ({note})"
            raise InputError(WHERE, fact, f"pass more rows of data, or {GIVE}")
        if note:
            _logger.warning("survival: %s", note)
        return Retrained(tuple(models), note, chance=1.0 if folds else wanted.drawn)

    def _chances(self, rows: Rows, draw: Draws, rng: np.random.Generator) -> Chances:
        """Return how likely labels of rows were, by fits that have not learned from them.

        Raises:
            InputError: fits do not tell.
        """
        if not self.asks:
            fact = f"a {type(self.estimator).__name__} tells no probabilities to draw labels with"
            raise InputError(f"{WHERE}.labels", fact, 'pass "kept", or leave it out')
        return chances(rows, draw, lambda some: self.fit(some, rng))


class Opening:
    """Opens fits of one estimator.

    Rows show how a model is asked, and which quicker way gives the same answers, in as much time as a fit of a linear
    model takes. Further fits are asked alike, about little, and opened without rows, unless they turn out to differ.
    """

    def __init__(self, data: pd.DataFrame | NDArray[Any]) -> None:
        """Set up for models that take rows like `data` (n, d)."""
        self._data = data
        self._first: OpenModel | None = None

    def open(self, model: object) -> OpenModel:
        """Return a fit, opened.

        Raises:
            InputError: it cannot be.
        """
        if self._first is None:
            self._first = open_native(model, output=None, rows=self._data)
            return self._first
        known, opened = self._first, open_native(model, output=None)
        alike = (opened.columns, opened.classes, opened.score_kind) == (known.columns, known.classes, known.score_kind)
        return opened if alike else open_native(model, output=None, rows=self._data)


def _fit(estimator: Any, data: Any, labels: Any, seed: int) -> Any:
    """Return the estimator fitted anew; what it draws itself it draws otherwise each time, as in a retraining."""
    from sklearn.base import clone  # noqa: PLC0415  as above

    fresh = clone(estimator)
    random = [name for name in fresh.get_params(deep=True) if name.rsplit("__", 1)[-1] == "random_state"]
    if random:
        fresh.set_params(**dict.fromkeys(random, seed))
    with quietly():  # its owner has seen what fits of it warn about
        unlogged(fresh.fit, data, labels)
    return fresh


def _classes_of(estimator: Any, rows: Rows) -> NDArray[Any] | None:
    """Return the classes that every fit must see, as text; None for an estimator that predicts numbers.

    Raises:
        InputError: the labels have one class.
    """
    from sklearn.base import is_regressor  # noqa: PLC0415  as above

    if is_regressor(estimator):
        return None
    classes = np.unique(rows.labels.astype(str))
    if len(classes) < 2:
        raise InputError("labels", f"{len(classes)} class in all rows", "pass labels of every class")
    return classes


def _told(failed: Counter[str], again: int) -> str:
    """Return in words what went wrong."""
    parts = [f"{counted(count, 'retrained model')} failed with {kind}" for kind, count in sorted(failed.items())]
    if again:
        parts.append(f"rows were drawn again {counted(again, 'time')}, because they lacked a class")
    return "; ".join(parts)
