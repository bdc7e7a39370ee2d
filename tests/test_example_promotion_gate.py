"""The promotion gate: what its generator promises, and both ways that it can end."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

GATE = Path(__file__).resolve().parent.parent / "example_projects" / "promotion_gate"


@pytest.fixture(scope="module")
def generator():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(GATE)
        yield __import__("loans")
        sys.modules.pop("loans", None)


def test_same_seed_same_loans(generator):
    pd.testing.assert_frame_equal(generator.loans(50, 2024, 0), generator.loans(50, 2024, 0))
    assert not generator.loans(50, 2024, 1).equals(generator.loans(50, 2024, 0))


def test_years_drift(generator):
    first, third = (generator.loans(20_000, year, 0) for year in (2023, 2025))
    assert third["income"].mean() == pytest.approx(1.03**2 * first["income"].mean(), rel=0.02)
    shares = [(table["debts"] / table["income"]).mean() for table in (first, third)]
    assert shares[1] > shares[0]
    asked = first.drop(columns="repaid")
    assert np.mean(generator.points(asked, 2025)) < np.mean(generator.points(asked, 2023))
    assert 0.3 < first["repaid"].mean() < 0.8


@pytest.mark.parametrize(("least", "code", "more"), [(0.0, 0, []), (1.01, 1, ["--no-remedies"])])
def test_the_gate_opens_and_stays_shut(tmp_path, least, code, more):
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    words = ["--rows", 600, "--rows-to-explain", 40, "--registered-name", "gated", "--least-survival", least, *more]
    run = subprocess.run(
        [sys.executable, str(GATE / "gate.py"), *map(str, words)],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": store},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert run.returncode == code, run.stderr
    assert ("NOT PROMOTED" in run.stdout) == bool(code)
    assert ("cf/survival value threshold check failed" in run.stdout) == bool(code)
    for answers in ("plain", "margin=0.1", "robust_to", "both"):
        assert (f"\n{answers} " in run.stdout) == (not more)
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    aliases = client.get_registered_model("gated").aliases
    assert {name: str(version) for name, version in aliases.items()} == ({} if code else {"champion": "2"})
