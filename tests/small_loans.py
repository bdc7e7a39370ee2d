"""A small table of loans and a small model on it, for tests that are about something else."""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROWS = 80
CANARY = 97.53124  # one row's income; nobody but that row's owner should ever see it
CONSTRAINTS = {"immutable": ["age"], "ranges": {"income": [0, 120]}, "max_changes": 2}
# where answers are compared: a busy machine cuts none short
PATIENT = {"time_limit_s": 600.0, "row_time_limit_s": 10.0}


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, ROWS),
            "income": rng.normal(40, 10, ROWS).round(1),
            "job": rng.choice(["clerk", "cook", "nurse"], ROWS),
            "owner": rng.choice([True, False], ROWS),
            "debts": np.where(rng.random(ROWS) < 0.1, np.nan, rng.integers(0, 6, ROWS)),
        }
    )
    frame.loc[ROWS - 1, "income"] = CANARY
    return frame


def labels(frame: pd.DataFrame) -> np.ndarray:
    return np.where(frame["income"] + 8 * frame["owner"] - 2 * frame["debts"].fillna(0) > 40, "good", "bad")


def fitted(frame: pd.DataFrame) -> Pipeline:
    """Return a fitted logistic regression; it takes neither missing debts nor unknown jobs badly."""
    columns = make_column_transformer(
        (StandardScaler(), ["age", "income"]), (OneHotEncoder(handle_unknown="ignore"), ["job", "owner", "debts"])
    )
    return make_pipeline(columns, LogisticRegression()).fit(frame, labels(frame))


def rejected(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return rows that the model refuses, without missing values."""
    model = fitted(frame)
    return frame[(model.predict(frame) == "bad") & frame["debts"].notna()].head(count).reset_index(drop=True)


def files(folder: Path) -> list[str]:
    """Return the relative names of all files below `folder`."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
