"""The README's code, run as it stands, one block after the other."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mlflow_cf

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
RULES = re.findall(r"^\| (?:``|`)(.*?x_cf\..*?)(?:``|`) \|", README, re.MULTILINE)

BEFORE = """
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

rng = np.random.default_rng(0)
X_train = pd.DataFrame(
    {
        "age": rng.integers(18, 80, 300),
        "sex": rng.choice(["f", "m"], 300),
        "income": rng.integers(0, 100, 300) * 500.0,
        "floor": rng.integers(0, 5, 300),
        "education": rng.choice(["school", "bachelor", "master"], 300),
        "housing": rng.choice(["own", "rent"], 300),
        "hours per week": rng.integers(0, 60, 300),
        "start": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 300), unit="D"),
        "end": pd.Timestamp("2024-05-01") + pd.to_timedelta(rng.integers(0, 90, 300), unit="D"),
    },
    index=pd.RangeIndex(1000, 1300, name="applicant"),
)
y = (X_train["income"] + 10_000 * (X_train["education"] == "master") > 30_000).astype(int)
columns = make_column_transformer(
    (OneHotEncoder(), ["education", "housing"]), (StandardScaler(), ["income", "age", "floor"])
)
pipeline = make_pipeline(columns, LogisticRegression()).fit(X_train, y)
challenger = make_pipeline(columns, LogisticRegression(C=0.1)).fit(X_train, y)
rows = X_train[pipeline.predict(X_train) == 0].head(5)
"""


AFTER = """
assert {answer.status for answer in answers} == {"found"}
assert set(pipeline.predict(changed[X_train.columns])) == {1}
assert changed.index.name == "applicant"
"""


def test_code_runs(tmp_path: Path) -> None:
    """In a process and a store of its own: MLflow keeps the experiment of other tests in mind."""
    assert len(BLOCKS) >= 4
    script = tmp_path / "readme.py"
    script.write_text("\n".join([BEFORE, *BLOCKS, AFTER]), encoding="utf-8")
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'runs.db'}"}
    others = {
        name: value for name, value in os.environ.items() if name not in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID")
    }
    environment, command = {**others, **store}, [sys.executable, str(script)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the README's examples are about."""
    script = tmp_path_factory.mktemp("readme") / "before.py"
    script.write_text(BEFORE, encoding="utf-8")
    return runpy.run_path(str(script))


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_rules(rule: str, before: dict[str, Any]) -> None:
    explained = mlflow_cf.wrap(
        before["pipeline"],
        before["X_train"],
        constraints={"rules": [rule]},
        features={"education": {"kind": "ordinal", "levels": ["school", "bachelor", "master"]}},
    )
    assert explained.bound_policy.rules


def test_all_examples_of_rules_were_found() -> None:
    assert len(RULES) == 6
