"""The data sets of GeCo's paper in the paper's view, as far as our files hold it, and the tree to explain."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

VARIABLE = "MLFLOW_CF_DATA"
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
FAVOURABLE = 1


@dataclass(frozen=True, eq=False)
class Case:
    """A fitted model and the rows it turned down.

    Attributes:
        name: of the data set.
        background: (n, d) training rows, raw columns.
        rejected: (m, d) held-out rows the model rejects, in the order of the file.
        constraints: what counterfactuals must respect, as users write it.
        model: preparation and tree in one pipeline, rows -> 0 or 1.
        accuracy: share of the held-out rows it predicts right.
    """

    name: str
    background: pd.DataFrame
    rejected: pd.DataFrame
    constraints: dict[str, list[str]]
    model: Pipeline
    accuracy: float


def adult_view(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 11) as in the paper.

    Left out: `fnlwgt` and `race`, which the paper has not either, and `education`, a function of `education_num` that
    the paper keeps beside it in a group. The paper has the country of birth as one bit.
    """
    home = rows["native_country"] == "United-States"
    kept = rows.drop(columns=["fnlwgt", "race", "education"])
    return kept.assign(native_country=np.where(home, "United-States", "Other"))


def credit_view(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Credit's columns (n, 14): all of them."""
    return rows


VIEWS: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"credit": credit_view, "adult": adult_view}


def data_folder() -> Path:
    """Return the folder with the public data sets.

    Raises:
        SystemExit: there is none.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else BESIDE
    if not folder.is_dir():
        raise SystemExit(
            f"The benchmark needs the public data sets (credit.csv, adult.csv, constraints/), and there is no folder "
            f"{folder}. Name it in the environment: {VARIABLE}=/path/to/data make bench"
        )
    return folder


def load_case(name: str, rows: int, seed: int) -> Case:
    """Read a data set, fit its tree and pick the first `rows` held-out rows that the tree rejects."""
    table = _read(data_folder(), f"{name}.csv")
    labels = table.iloc[:, -1]
    view = VIEWS[name](table.iloc[:, :-1])
    X, X_test, y, y_test = train_test_split(view, labels, stratify=labels, random_state=seed)
    X_test, y_test = X_test.sort_index(), y_test.sort_index()
    model = tree(X, seed).fit(X, y)
    predicted = model.predict(X_test)
    rejected = X_test[predicted != FAVOURABLE].head(rows).reset_index(drop=True)
    constraints = _constraints(data_folder() / "constraints" / f"{name}.yaml", list(view.columns))
    accuracy = float((predicted == y_test).mean())
    return Case(name, X.reset_index(drop=True), rejected, constraints, model, accuracy)


def tree(rows: pd.DataFrame, seed: int) -> Pipeline:
    """Return an unfitted decision tree with scikit-learn's own settings; levels are spread over columns."""
    levels = list(rows.select_dtypes(exclude="number"))
    spread = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    preparation = ColumnTransformer([("levels", spread, levels)], remainder="passthrough")
    return make_pipeline(preparation, DecisionTreeClassifier(random_state=seed))


def _read(folder: Path, name: str) -> pd.DataFrame:
    if not (folder / name).is_file():
        raise SystemExit(f"{name} is not in {folder}; name the folder of public data sets in {VARIABLE}")
    return pd.read_csv(folder / name)


def _constraints(file: Path, columns: list[str]) -> dict[str, list[str]]:
    """Return the constraints of the paper's comparisons, which have no IF..THEN rules, for the columns in use."""
    if not file.is_file():
        raise SystemExit(f"{file} is missing; it belongs to the folder of public data sets")
    constraints = yaml.safe_load(file.read_text(encoding="utf-8"))
    constraints.pop("rules", None)
    return {key: [name for name in names if name in columns] for key, names in constraints.items()}
