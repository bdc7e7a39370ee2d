"""Small fitted models of every kind, each with a way to ask it that knows nothing of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import PyFuncModel
from mlflow.types import ColSpec, Schema
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.tree import DecisionTreeRegressor

from mlflow_cf.quiet import quietly
from mlflow_cf.testing.goals import CUTS, GOALS, Floats, Goal, Labels, Reply, positions, truth
from mlflow_cf.testing.worlds import GRADES, ORDERS, overrides, table

Ask = Callable[[pd.DataFrame], NDArray[Any]]
Library = Any  # the boosting libraries are imported where they are installed
CLOSE: Final = 1e-6  # libraries predict in single precision
TRAINING_SEED: Final = 11
TRAINING_ROWS: Final = 400
TYPES: Final = {  # of MLflow; whole numbers that may be missing are doubles there
    "age": "long",
    "income": "double",
    "hours": "float",
    "grade": "string",
    "job": "string",
    "member": "boolean",
    "rooms": "double",
    "since": "datetime",
}


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model ready to be explained.

    Attributes:
        model: what `wrap` takes.
        predict: rows -> labels or values (n,), asked of the model itself.
        labels: its labels in the order of its probabilities; empty for a regression.
        probabilities: rows -> (n, k), or None.
        output: what `wrap` must be told.
        store: folder -> what `save_model` takes instead of `model`; None: `model` can be written as it is.
    """

    model: Any
    predict: Ask
    labels: Labels = ()
    probabilities: Ask | None = None
    output: str | None = None
    store: Callable[[Path], object] | None = None

    def replies(self, rows: pd.DataFrame) -> list[Reply]:
        """Ask the model itself."""
        likely = [None] * len(rows) if self.probabilities is None else list(self.probabilities(rows))
        return [Reply(*pair) for pair in zip(self.predict(rows).tolist(), likely, strict=True)]


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        fit: (goal, rows, their true values) -> the model.
        plain: whether it takes the table without strings and dates only.
        probabilities: whether it has probabilities.
        function: whether it can be stored with ``allow_functions=True`` only.
        opened: whether there is a structure inside, so that certificates can be asked for.
        n_labels: how many labels its models can have; 0: they answer values.
        gaps: whether it takes missing levels; its rows have none otherwise.
        numbers: whether it takes numbers and truth values alone; levels are then their positions.
        close: how far apart its answers to a row alone and among others may be, relative; labels are the same.
    """

    fit: Callable[[Goal, pd.DataFrame, Floats], Fitted]
    plain: bool = False
    probabilities: bool = True
    function: bool = False
    opened: bool = False
    n_labels: tuple[int, ...] = (0, 2, 3)
    gaps: bool = True
    numbers: bool = False
    close: float = CLOSE

    def rows(self, seed: int) -> pd.DataFrame:
        """Return random rows that models of this kind take."""
        rows = table(seed, plain=self.plain or self.numbers)
        if self.numbers:
            codes = {name: rows[name].cat.codes.astype(float) for name in ("grade", "job")}
            return rows.assign(**{name: column.mask(column < 0) for name, column in codes.items()})
        return rows if self.gaps else rows.fillna({"grade": GRADES[0], "job": "a"})

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """What `features=` must say of its rows."""
        return {} if self.numbers else overrides("observed")

    @property
    def orders(self) -> Mapping[str, tuple[str, ...]]:
        """The levels in order of its features whose levels have one."""
        return {} if self.numbers else ORDERS

    def takes(self, goal: Goal) -> bool:
        """Whether models of this kind can have such a target."""
        return goal.n_labels in self.n_labels and (self.probabilities or not goal.probabilities)


@cache
def fitted(kind: str, goal: str) -> Fitted:
    """Return the model of a kind for a goal, fitted once; it skips the test if its library is not installed."""
    rows = table(TRAINING_SEED, TRAINING_ROWS, plain=KINDS[kind].plain)
    return KINDS[kind].fit(GOALS[goal], rows, values_of(rows))


def values_of(rows: pd.DataFrame) -> Floats:
    """Return the values (n,) that models are fitted to: the truth and a little noise."""
    return truth(rows) + np.random.default_rng(TRAINING_SEED).normal(scale=0.15, size=len(rows))


def _sklearn(goal: Goal, rows: pd.DataFrame, values: Floats) -> Fitted:
    prepare = make_column_transformer(
        (SimpleImputer(add_indicator=True), ["age", "income", "hours", "rooms"]),
        (OneHotEncoder(handle_unknown="ignore"), ["grade", "job", "member"]),
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["since"]),
    )
    final = {
        0: DecisionTreeRegressor(max_depth=6, random_state=0),
        2: LogisticRegression(max_iter=10_000),
        3: RandomForestClassifier(8, max_depth=5, random_state=0),
    }[goal.n_labels]
    return _estimator(make_pipeline(prepare, final), goal, rows, values, words(goal))


def _xgboost(goal: Goal, rows: pd.DataFrame, values: Floats) -> Fitted:
    library: Library = pytest.importorskip("xgboost")
    options: dict[str, Any] = {"max_depth": 3, "learning_rate": 0.4}
    if goal.booster:
        several = {"objective": "multi:softprob", "num_class": 3} if goal.n_labels == 3 else {}
        options = {"objective": "binary:logistic", "nthread": 1, **options, **several}
        matrix = library.DMatrix(rows, positions(values, goal.n_labels), enable_categorical=True)
        booster = library.train(options, matrix, num_boost_round=12)
        return _booster(booster, goal, lambda rows: booster.predict(library.DMatrix(rows, enable_categorical=True)))
    interface = library.XGBClassifier if goal.n_labels else library.XGBRegressor
    model = interface(n_estimators=12, n_jobs=1, enable_categorical=True, **options)
    return _estimator(model, goal, rows, values, tuple(range(goal.n_labels)))


def _lightgbm(goal: Goal, rows: pd.DataFrame, values: Floats) -> Fitted:
    library: Library = pytest.importorskip("lightgbm")
    options: dict[str, Any] = {"num_leaves": 7, "min_child_samples": 5, "verbose": -1}
    if goal.booster:
        several = {"objective": "multiclass", "num_class": 3} if goal.n_labels == 3 else {}
        options = {"objective": "binary", "num_threads": 1, **options, **several}
        booster = library.train(options, library.Dataset(rows, positions(values, goal.n_labels)), num_boost_round=12)
        return _booster(booster, goal, booster.predict)
    interface = library.LGBMClassifier if goal.n_labels else library.LGBMRegressor
    model = interface(n_estimators=12, n_jobs=1, **options)
    return _estimator(model, goal, rows, values, words(goal))


def _estimator(model: Any, goal: Goal, rows: pd.DataFrame, values: Floats, labels: Labels) -> Fitted:
    """Fit a model with scikit-learn's interface; it sorts its labels, and so are ours."""
    if not goal.n_labels:
        return Fitted(model.fit(rows, values), model.predict)
    model.fit(rows, np.array(labels)[positions(values, goal.n_labels)])
    return Fitted(model, model.predict, labels, model.predict_proba)


def _booster(model: Any, goal: Goal, ask: Ask) -> Fitted:
    """Join a trained Booster with the labels 0, 1, ... that its scores mean."""

    def chances(rows: pd.DataFrame) -> Floats:
        answers = np.asarray(ask(rows), dtype=np.float64)
        return answers if answers.ndim == 2 else np.column_stack((1 - answers, answers))

    return Fitted(model, lambda rows: chances(rows).argmax(axis=1), tuple(range(goal.n_labels)), chances)


def _pyfunc(goal: Goal, rows: pd.DataFrame, _: Floats) -> Fitted:
    """Return a loaded pyfunc that answers labels or values only, as remote models do."""
    formula = Formula(words(goal))
    signature = ModelSignature(Schema([ColSpec(TYPES[name], name, required=False) for name in rows.columns]))
    model = PyFuncModel(Model(signature=signature, flavors={"python_function": {}}), formula)

    def store(folder: Path) -> object:
        (folder / "labels.txt").write_text(" ".join(formula.labels))
        meta = Model(signature=signature)
        with quietly(UserWarning):  # no example is given: the explained model around this one brings it
            mlflow.pyfunc.save_model(
                folder / "model",
                loader_module=__name__,
                data_path=str(folder / "labels.txt"),
                mlflow_model=meta,
                pip_requirements=["numpy"],
            )
        return folder / "model"

    output = "label" if goal.n_labels else "value"
    return Fitted(model, formula.predict, formula.labels, output=output, store=store)


@dataclass(frozen=True)
class Formula:
    """A model without training: the true value cut into labels, or as it is."""

    labels: Labels

    def predict(self, rows: pd.DataFrame) -> NDArray[Any]:
        """Return labels or values (n,)."""
        values = truth(rows)
        return np.array(self.labels)[positions(values, len(self.labels))] if self.labels else values


def _load_pyfunc(path: str) -> Formula:
    """Load a stored `Formula`: MLflow calls it, because such a model names this module as its loader."""
    return Formula(tuple(Path(path).read_text().split()))


def _function(goal: Goal, _: pd.DataFrame, __: Floats) -> Fitted:
    """Return a function: one probability, a table of probabilities per label, or values."""
    if not goal.n_labels:
        return Fitted(truth, truth, output="value")

    def chances(rows: pd.DataFrame) -> Floats:
        above = [expit(4 * (truth(rows) - cut)) for cut in CUTS[goal.n_labels]]
        return np.column_stack((1 - above[0], *(-np.diff(above, axis=0)), above[-1]))

    def decide(rows: pd.DataFrame) -> NDArray[Any]:
        return np.asarray(np.array(labels)[chances(rows).argmax(axis=1)])

    if goal.n_labels == 2:
        labels: Labels = (0, 1)
        return Fitted(lambda rows: chances(rows)[:, 1], decide, labels, chances, output="score")
    labels = words(goal)
    named = list(labels)
    return Fitted(lambda rows: pd.DataFrame(chances(rows), columns=named), decide, labels, chances, output="score")


def words(goal: Goal) -> Labels:
    """Return labels that are words, in alphabetical order."""
    return {0: (), 2: ("no", "yes"), 3: ("bad", "fair", "good")}[goal.n_labels]


KINDS: Final[Mapping[str, Kind]] = {
    "sklearn": Kind(_sklearn),
    "xgboost": Kind(_xgboost, plain=True, opened=True),
    "lightgbm": Kind(_lightgbm, plain=True, opened=True),
    "pyfunc": Kind(_pyfunc, probabilities=False),
    "function": Kind(_function, function=True),
}
