"""The demonstration's applicants and its model: German credit, a linear support vector machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.svm import LinearSVC

NUMBERS = ("duration", "credit_amount", "installment_rate", "age")  # real here, whole numbers in the file
LABEL = "good_credit"
APPLICANT = 775  # counted from 0
CHECKOUT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, eq=False)
class Demonstration:
    """What is explained.

    Attributes:
        model: fitted on 80 % of the rows.
        rows, labels: all rows, and whether their credit was good; learned: those that the model was fitted on.
        applicant: the one row that is turned down.
    """

    model: Pipeline
    rows: pd.DataFrame
    labels: pd.Series
    learned: pd.DataFrame
    applicant: pd.DataFrame

    def ranges(self, *, positive: bool) -> dict[str, list[float]]:
        """Return one span of every real number beyond its least and largest value; below, where it may be less."""
        least, most = self.rows[list(NUMBERS)].min(), self.rows[list(NUMBERS)].max()
        low = least if positive else 2 * least - most
        return {name: [float(low[name]), float(2 * most[name] - least[name])] for name in NUMBERS}


def demonstration(folder: str = "") -> Demonstration:
    """Return the demonstration from the data in a folder; by default in `MLFLOW_CF_DATA`, or beside the checkout."""
    table = pd.read_csv(_file(folder)).astype(dict.fromkeys(NUMBERS, "float64"))
    labels, rows = table[LABEL], table.drop(columns=LABEL)
    train, _, wanted, _ = train_test_split(rows, labels, test_size=0.2, random_state=0, stratify=labels)
    numbers = [name for name in rows if rows[name].dtype.kind in "if"]
    levels = [name for name in rows if name not in numbers]
    columns = make_column_transformer((MinMaxScaler(), numbers), (OneHotEncoder(), levels))
    model = make_pipeline(columns, LinearSVC(C=0.1, dual=False, max_iter=100_000)).fit(train, wanted)
    return Demonstration(model, rows, labels, train, rows.loc[[APPLICANT]])


def _file(folder: str) -> Path:
    named = folder or os.environ.get("MLFLOW_CF_DATA")
    path = Path(named) if named else CHECKOUT.parent / "shared" / "data"
    if not (path / "german.csv").exists():
        raise SystemExit(f"german.csv is not in {path}; name its folder with --data, or in MLFLOW_CF_DATA")
    return path / "german.csv"
