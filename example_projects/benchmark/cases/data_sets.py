"""The data sets: their columns as a user would take them and as GeCo's paper has them, and the rows to explain."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import yaml
from cases.generated import CONSTRAINTS, GENERATORS
from cases.models import as_published
from catboost import CatBoostClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from xgboost import XGBClassifier

import mlflow_cf
from mlflow_cf import ExplainedModel

VARIABLE = "MLFLOW_CF_DATA"
BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
FAVOURABLE = 1


@dataclass(frozen=True, eq=False)
class Case:
    """A fitted model and the rows it turned down.

    Attributes:
        name: of the data set.
        background: (n, d) training rows, raw columns.
        labels: (n,) what these rows were in truth, 0 or 1.
        rejected: (m, d) held-out rows the model rejects, in the order of the file.
        constraints: what counterfactuals must respect, as users write it.
        model: preparation and estimator in one pipeline, or trees alone; rows -> 0 or 1.
        accuracy: share of the held-out rows it predicts right.
        levels: the columns that a model without preparation takes as levels -> the levels it was fitted on.
    """

    name: str
    background: pd.DataFrame
    labels: pd.Series[int]
    rejected: pd.DataFrame
    constraints: dict[str, list[str]]
    model: Pipeline | XGBClassifier | RandomForestClassifier | CatBoostClassifier
    accuracy: float
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def wrapped(self, seed: int, values: Literal["observed", "continuous"] = "observed") -> ExplainedModel:
        """Return the model with its constraints, as the contest asks it: mlflow_cf's own distance."""
        return mlflow_cf.wrap(
            self.model, self.background, constraints=self.constraints, target=FAVOURABLE, values=values, seed=seed
        )


@dataclass(frozen=True, eq=False)
class Split:
    """A data set, three quarters of it to train on: rows (n, d) and (m, d) of raw columns, labels (n,) and (m,)."""

    name: str
    X: pd.DataFrame
    y: pd.Series[int]
    X_test: pd.DataFrame
    y_test: pd.Series[int]

    def case(self, model: Pipeline, rows: int, constraints: dict[str, list[str]]) -> Case:
        """Return the fitted `model` and the first `rows` held-out rows that it rejects."""
        predicted = model.predict(self.X_test)
        rejected = self.X_test[predicted != FAVOURABLE].head(rows).reset_index(drop=True)
        if rejected.empty:
            raise SystemExit(
                f"The model rejects none of the held-out rows of {self.name}: there is nothing to explain."
            )
        accuracy = float((predicted == self.y_test).mean())
        return Case(self.name, self.X, self.y, rejected, constraints, model, accuracy)


def adult_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 12) as models mostly have them: without the weight and the second `education`."""
    return rows.drop(columns=["fnlwgt", "education"])


def adult_view(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 11) as in the paper.

    Left out: `fnlwgt` and `race`, which the paper has not either, and `education`, a function of `education_num` that
    the paper keeps beside it in a group. The paper has the country of birth as one bit.
    """
    home = rows["native_country"] == "United-States"
    kept = rows.drop(columns=["fnlwgt", "race", "education"])
    return kept.assign(native_country=np.where(home, "United-States", "Other"))


def adult_with_education(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 12) with `education` beside `education_num`, as the paper has both."""
    return adult_view(rows).assign(education=rows["education"])


def adult_in_bits(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 42) as the paper's code counts them: a column `name=level` of 0 and 1 per level."""
    return pd.get_dummies(adult_with_education(rows), columns=list(IN_BITS), prefix_sep="=", dtype=int)


def compas_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return COMPAS's columns (n, 10) without its scores, which are no inputs, and the second `age_cat`."""
    return rows.drop(columns=["age_cat", "decile_score", "score_text", "v_decile_score"])


def every_column(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns (n, d) as they are."""
    return rows


View = Callable[[pd.DataFrame], pd.DataFrame]
PAPER_VIEWS: Mapping[str, View] = {"credit": every_column, "adult": adult_view}
IN_BITS = ("workclass", "marital_status", "occupation", "relationship")
VIEWS: Mapping[str, View] = {
    "adult": adult_columns,
    "credit": every_column,
    "compas": compas_columns,
    "bankloan": every_column,
    "german": every_column,
    **dict.fromkeys(GENERATORS, every_column),
}


def folder() -> Path:
    """Return where the public data sets should be."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else BESIDE


def data_folder() -> Path:
    """Return the folder with the public data sets.

    Raises:
        SystemExit: there is none.
    """
    if not folder().is_dir():
        raise SystemExit(
            f"This part needs the public data sets (credit.csv, adult.csv, constraints/), and there is no folder "
            f"{folder()}. Name it in the environment: {VARIABLE}=/path/to/data make bench"
        )
    return folder()


def split(name: str, seed: int, view: View) -> Split:
    """Read a data set, or generate it, and set a quarter of its rows aside, in the order of the file."""
    table = GENERATORS[name](seed) if name in GENERATORS else _read(data_folder(), f"{name}.csv")
    labels = table.iloc[:, -1]
    X, X_test, y, y_test = train_test_split(view(table.iloc[:, :-1]), labels, stratify=labels, random_state=seed)
    return Split(name, X.reset_index(drop=True), y.reset_index(drop=True), X_test.sort_index(), y_test.sort_index())


def load_case(name: str, rows: int, seed: int, view: View | None = None) -> Case:
    """Return the paper's tree on a data set of the paper, without IF..THEN rules.

    Args:
        name: of the data set.
        rows: most rows to pick.
        seed: of split and tree.
        view: its columns; None: those of PAPER_VIEWS.
    """
    parts = split(name, seed, view or PAPER_VIEWS[name])
    model = as_published(parts.X, seed).fit(parts.X, parts.y)
    return parts.case(model, rows, constraints_for(name, parts.X, rules=False))


def _read(folder: Path, name: str) -> pd.DataFrame:
    if not (folder / name).is_file():
        raise SystemExit(f"{name} is not in {folder}; name the folder of public data sets in {VARIABLE}")
    return pd.read_csv(folder / name)


def constraints_for(name: str, columns: pd.DataFrame, *, rules: bool) -> dict[str, list[str]]:
    """Return the constraints of a data set for the columns in use; a column in bits is constrained bit by bit.

    Args:
        name: of the data set.
        columns: a table of them; every feature that a rule names must be among them.
        rules: whether the IF..THEN rules are wanted too; the paper's comparisons have none.
    """
    if name in CONSTRAINTS:
        return {key: names for key, names in CONSTRAINTS[name].items() if rules or key != "rules"}
    file = data_folder() / "constraints" / f"{name}.yaml"
    if not file.is_file():
        raise SystemExit(f"{file} is missing; it belongs to the folder of public data sets")
    constraints = yaml.safe_load(file.read_text(encoding="utf-8"))
    program = constraints.pop("rules", [])
    lists = {
        key: names if isinstance(names, dict) else [c for feature in names for c in bits(feature, columns)]
        for key, names in constraints.items()
    }
    return {**lists, "rules": program} if rules else lists


def bits(feature: str, columns: pd.DataFrame) -> list[str]:
    """Return the columns that hold `feature`: itself, its bits, or none."""
    return [column for column in map(str, columns) if column == feature or column.startswith(f"{feature}=")]
