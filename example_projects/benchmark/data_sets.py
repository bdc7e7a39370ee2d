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


def adult_with_education(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 12) with `education` beside `education_num`, as the paper has both."""
    return adult_view(rows).assign(education=rows["education"])


def adult_in_bits(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Adult's columns (n, 42) as the paper's code counts them: a column `name=level` of 0 and 1 per level."""
    return pd.get_dummies(adult_with_education(rows), columns=list(IN_BITS), prefix_sep="=", dtype=int)


def credit_view(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Credit's columns (n, 14): all of them."""
    return rows


View = Callable[[pd.DataFrame], pd.DataFrame]
VIEWS: Mapping[str, View] = {"credit": credit_view, "adult": adult_view}
IN_BITS = ("workclass", "marital_status", "occupation", "relationship")


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


def load_case(name: str, rows: int, seed: int, view: View | None = None) -> Case:
    """Read a data set, fit its tree and pick the first `rows` held-out rows that the tree rejects.

    Args:
        name: of the data set.
        rows: most rows to pick.
        seed: of split and tree.
        view: its columns; None: those of VIEWS.
    """
    table = _read(data_folder(), f"{name}.csv")
    labels = table.iloc[:, -1]
    columns = (view or VIEWS[name])(table.iloc[:, :-1])
    X, X_test, y, y_test = train_test_split(columns, labels, stratify=labels, random_state=seed)
    X_test, y_test = X_test.sort_index(), y_test.sort_index()
    model = tree(X, seed).fit(X, y)
    predicted = model.predict(X_test)
    rejected = X_test[predicted != FAVOURABLE].head(rows).reset_index(drop=True)
    constraints = constraints_for(name, columns, rules=False)
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


def constraints_for(name: str, columns: pd.DataFrame, *, rules: bool) -> dict[str, list[str]]:
    """Return the constraints of the paper for the columns in use; a column in bits is constrained bit by bit.

    Args:
        name: of the data set.
        columns: a table of them; every feature that a rule names must be among them.
        rules: whether the IF..THEN rules are wanted too; the paper's comparisons have none.
    """
    file = data_folder() / "constraints" / f"{name}.yaml"
    if not file.is_file():
        raise SystemExit(f"{file} is missing; it belongs to the folder of public data sets")
    constraints = yaml.safe_load(file.read_text(encoding="utf-8"))
    program = constraints.pop("rules", [])
    lists = {key: [c for feature in names for c in bits(feature, columns)] for key, names in constraints.items()}
    return {**lists, "rules": program} if rules else lists


def bits(feature: str, columns: pd.DataFrame) -> list[str]:
    """Return the columns that hold `feature`: itself, its bits, or none."""
    return [column for column in map(str, columns) if column == feature or column.startswith(f"{feature}=")]
