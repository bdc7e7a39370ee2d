"""Ensembles of trees over numbers, and over the levels that CatBoost takes: what treecf can be asked about, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, VIEWS, Case, constraints_for, folder, split
from catboost import CatBoostClassifier
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier

DRAWN, BACKGROUND, ASKED = 3_000, 1_000, 1_000  # rows: in all, the first of them, and the last
FAVOURABLE_SHARE = 0.4
MANY = 200  # trees; so many learn slower
VALUES = 200  # of each column, among which one change is looked for

LEVELS = 64  # most of a column that a model tests one by one

Trees = XGBClassifier | RandomForestClassifier | CatBoostClassifier
Pick = Callable[[Case, int], Case]


@dataclass(frozen=True)
class Shape:
    """A boosting model on drawn numbers: its features, those of them that may change, its trees and their depth."""

    features: int
    free: int
    trees: int
    depth: int

    @property
    def name(self) -> str:
        """The four numbers."""
        return f"{self.features} features {self.free} free / xgboost {self.trees} x {self.depth}"

    def case(self, seed: int) -> Case:
        """Return the fitted model, and all rows asked about that it rejects.

        The outcome is linear but for a product of two columns and a wave in a third. The model learns from all rows:
        what is measured is how long explanations take.
        """
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(DRAWN, self.features))
        strength = X @ rng.normal(size=self.features) + 0.7 * X[:, 0] * X[:, 1] + 1.5 * np.sin(2 * X[:, 2])
        rows = pd.DataFrame(X, columns=[f"f{number}" for number in range(self.features)])
        labels = pd.Series((strength > np.quantile(strength, 1 - FAVOURABLE_SHARE)).astype(int))
        rate = 0.1 if self.trees >= MANY else 0.2
        model = XGBClassifier(
            n_estimators=self.trees, max_depth=self.depth, learning_rate=rate, n_jobs=1, random_state=seed
        )
        fixed = [f"f{number}" for number in rng.permutation(self.features)[self.free :]]
        case = _case(self.name, model.fit(rows, labels), rows, labels)
        return replace(case, constraints={"immutable": fixed})


def public(data: str, name: str, model: Trees, seed: int) -> Case:
    """Return `model` fitted to three quarters of a public data set, and all held-out rows that it rejects."""
    parts = split(data, seed, VIEWS[data])
    levels = {str(column): sorted(parts.X[column].unique()) for column in parts.X.select_dtypes(exclude="number")}
    if levels:
        model.set_params(cat_features=list(levels))
    rows, labels = pd.concat([parts.X, parts.X_test]), pd.concat([parts.y, parts.y_test])
    case = _case(f"{data} / {name}", model.fit(parts.X, parts.y), rows, labels)
    immutable = constraints_for(data, parts.X, rules=False)["immutable"]
    return replace(case, constraints={"immutable": immutable}, levels=levels)


def credit(name: str, model: Trees, seed: int) -> Case:
    """Return `model` fitted to three quarters of Credit, and all held-out rows that it rejects."""
    return public("credit", name, model, seed)


def _case(name: str, model: Trees, rows: pd.DataFrame, labels: pd.Series[int]) -> Case:
    """Return a case over the first rows; asked are those of the last whose numbers and levels the first have, too."""
    background, last = rows.iloc[:BACKGROUND], rows.iloc[-ASKED:]
    predicted = model.predict(last)
    numbers = background.select_dtypes("number")
    within = ((last[numbers.columns] >= numbers.min()) & (last[numbers.columns] <= numbers.max())).all(axis=1)
    for column in background.columns.difference(numbers.columns):
        within &= last[column].isin(background[column])
    rejected = last[within & (predicted != FAVOURABLE)].reset_index(drop=True)
    accuracy = float((predicted == labels.iloc[-ASKED:]).mean())
    return Case(name, background, labels.iloc[:BACKGROUND], rejected, {}, model, accuracy)


def first(case: Case, rows: int) -> Case:
    """Keep the first rows, in the order of the table."""
    return replace(case, rejected=case.rejected.head(rows))


def spread_out(case: Case, rows: int) -> Case:
    """Keep rows from near the boundary to far from it, in this order: they need one change, two, and more."""
    nearest_first = np.argsort(-case.model.predict_proba(case.rejected)[:, 1], kind="stable")
    places = ((np.arange(rows) + 0.5) * len(nearest_first) / rows).astype(np.intp)
    chosen = case.rejected.iloc[nearest_first[places]].reset_index(drop=True)
    return replace(case, name=f"{case.name} / near to far", rejected=chosen)


def one_change(case: Case, rows: int) -> Case:
    """Keep the first rows that one change turns; the model itself is asked about every column and many values."""
    turned: list[int] = []
    for at in range(len(case.rejected)):
        if len(turned) == rows:
            break
        if turns_by_one(case, case.rejected.iloc[at]):
            turned.append(at)
    return replace(case, name=f"{case.name} / one change", rejected=case.rejected.iloc[turned].reset_index(drop=True))


def turns_by_one(case: Case, row: pd.Series[float]) -> bool:
    """Return whether one value of the background in one column that may change turns a row."""
    free = [name for name in case.background if name not in case.constraints["immutable"]]
    shares = np.linspace(0, 1, VALUES)
    changed = pd.DataFrame([row] * (len(free) * VALUES), columns=case.background.columns, dtype=np.float64)
    for at, name in enumerate(free):
        values: NDArray[np.float64] = np.quantile(case.background[name], shares, method="nearest")
        changed.iloc[at * VALUES : (at + 1) * VALUES, changed.columns.get_loc(name)] = values
    return bool((case.model.predict(changed) == FAVOURABLE).any())


# How a case is made of a seed, and which of its rows are asked about.
GENERATED: tuple[tuple[Shape, Pick], ...] = (
    (Shape(8, 4, 120, 4), first),
    (Shape(20, 15, 100, 4), first),
    (Shape(50, 50, 300, 6), one_change),
    (Shape(50, 50, 300, 6), spread_out),
)


def _catboost(seed: int) -> CatBoostClassifier:
    return CatBoostClassifier(
        iterations=100,
        depth=6,
        one_hot_max_size=LEVELS,
        thread_count=1,
        random_seed=seed,
        logging_level="Silent",
        allow_writing_files=False,
    )


CREDIT: Mapping[str, Callable[[int], Trees]] = {
    "xgboost 100 x 6": lambda seed: XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1, random_state=seed),
    "forest 100 x 8": lambda seed: RandomForestClassifier(100, max_depth=8, n_jobs=1, random_state=seed),
    "catboost 100 x 6": _catboost,
}


def cases(rows: int, seed: int) -> Iterator[Case]:
    """Yield all cases, those on Credit and Adult where the public data sets are, each with the rows asked about."""
    for shape, pick in GENERATED:
        yield pick(shape.case(seed), rows)
    if not folder().is_dir():
        print("The cases on Credit and Adult are left out: there are no public data sets")
        return
    for name, kind in CREDIT.items():
        yield first(credit(name, kind(seed), seed), rows)
    yield first(public("adult", "catboost 100 x 6", _catboost(seed), seed), rows)
