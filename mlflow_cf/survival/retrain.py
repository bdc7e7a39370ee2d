"""Models that stand for the next retraining: the owner's estimator, fitted anew to rows that are drawn from its data.

What is promised is how an answer fares under the next model, which learns from other rows of the same kind. Let S be
the variance of what n rows teach. The model at hand is off by S itself, and the next one by S too, so that the next one
lies around the model at hand with the variance 2 S. A bootstrap of n of n rows only shows S; one of n / 2 rows shows
2 S. So each model here is fitted to half as many rows as there are, drawn with replacement, unless its owner says
otherwise. Halves of the rows (``folds``) have no row twice, and show S: models differ less than the next one will.

What the rows at hand have in common stays hidden: all draws share it, and a search for the nearest answer leans on it.
Linear models are moved for it (`shrinkage`). Models that follow single rows closely, such as boosting, then keep less
than is promised; `trial` finds out.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.model.versions import Version, opened
from mlflow_cf.policy.survival import WHERE, SurvivalWanted
from mlflow_cf.unlogged import unlogged
from mlflow_cf.words.sentences import counted

GIVE: Final = 'pass retrained models instead: {"models": [URI or model, ...]}'
SPARE: Final = 0.25  # of the models: so many more are fitted where some fail
DRAWS: Final = 100  # until some rows have every class
_logger = logging.getLogger(__name__)
Places = NDArray[np.intp]


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


@dataclass(frozen=True, eq=False)
class Rows:
    """What models are fitted to.

    Attributes:
        data: (n, d) rows in the model's own raw columns: a table, or an array where the owner has one.
        labels: (n,) training target.
    """

    data: pd.DataFrame | NDArray[Any]
    labels: NDArray[Any]

    def take(self, places: Places) -> Rows:
        """Return some of the rows, with their labels."""
        data = self.data
        some = data.iloc[places].reset_index(drop=True) if isinstance(data, pd.DataFrame) else data[places]
        return Rows(some, self.labels[places])


def given_models(wanted: SurvivalWanted, data: Any, output: str | None = None) -> Retrained:
    """Return the models that the owner gives, opened on rows of data (n, d).

    Raises:
        InputError: one of them cannot be opened.
    """
    return Retrained(tuple(_given(wanted.given, data, output)))


def learned_from(data: pd.DataFrame | NDArray[Any], labels: ArrayLike | None) -> Rows:
    """Return the rows (n, d) and labels (n,) that models are retrained on.

    Raises:
        InputError: no labels, or not one per row.
    """
    if labels is None:
        raise InputError(WHERE, "models are retrained on labels, and there are none", f"pass labels, or {GIVE}")
    known = np.asarray(labels)
    if known.shape != (len(data),):
        raise InputError("labels", f"{known.shape} labels for {len(data)} rows", "pass one label per row of data")
    return Rows(data, known)


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

    def drawn(self, rows: Rows, wanted: SurvivalWanted, rng: np.random.Generator) -> Retrained:
        """Return as many models as are wanted, fitted to draws of rows; some more are tried where fits fail.

        Raises:
            InputError: too many fits fail, or a model cannot be opened.
        """
        draw = Draws(rows.labels, self.classes, rng)
        of, models, failed = wanted.wanted_models, list[OpenModel](), Counter[str]()
        opened = Opening(rows.data)
        folds = wanted.models == "folds"
        places = draw.halves() if folds else draw.bootstraps(wanted.drawn)
        while len(models) < of and failed.total() <= SPARE * of + 1:
            try:
                fitted = self.fit(rows.take(next(places)), rng)
                models.append(opened.open(fitted))
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its owner has seen what fits of it warn about
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


class Draws:
    """Rows that are drawn for one model after the other, each with every class.

    Attributes:
        again: how often rows had to be drawn again.
    """

    def __init__(self, labels: NDArray[Any], classes: NDArray[Any] | None, rng: np.random.Generator) -> None:
        """Draw from rows with `labels` (n,); `classes` are those that every draw must have, None without."""
        self.again, self._rng, self._count = 0, rng, len(labels)
        self._codes = None if classes is None else np.searchsorted(classes, labels.astype(str))
        self._classes = 0 if classes is None else len(classes)

    def bootstraps(self, share: float = 0.5) -> Iterator[Places]:
        """Yield a share as many rows as there are, drawn with replacement, without end."""
        size = max(2, math.ceil(self._count * share))
        while True:
            yield self._whole(lambda: [self._rng.integers(self._count, size=size)])[0]

    def parts(self, share: float) -> Iterator[Places]:
        """Yield a share of the rows, each at most once, without end."""
        size = math.ceil(self._count * share)
        while True:
            yield self._whole(lambda: [self._rng.permutation(self._count)[:size]])[0]

    def pairs(self) -> Iterator[list[Places]]:
        """Yield both halves of the rows, of one order of them after the other, without end."""
        while True:
            yield self._whole(lambda: np.array_split(self._rng.permutation(self._count), 2))

    def halves(self) -> Iterator[Places]:
        """Yield one half of the rows and then the other, of one order of them after the other, without end."""
        return chain.from_iterable(self.pairs())

    def _whole(self, draw: Any) -> list[Places]:
        """Return what is drawn, once every part of it has every class.

        Raises:
            InputError: a class is so rare that none has.
        """
        for _ in range(DRAWS):
            parts: list[Places] = draw()
            codes = self._codes
            if codes is None or all(len(np.unique(codes[part])) == self._classes for part in parts):
                return parts
            self.again += 1
        fact = f"{DRAWS} draws of half of the rows lacked a class each time"
        raise InputError("labels", fact, f"pass more rows of the rare class, or {GIVE}")
