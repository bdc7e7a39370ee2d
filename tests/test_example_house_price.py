"""The example of houses: its generator, its works, and the whole story as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

FOLDER = Path(__file__).resolve().parent.parent / "example_projects" / "house_price"
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        module = __import__("houses")
        sys.modules.pop("houses", None)
    return module


def test_same_seed_same_houses(generator: ModuleType) -> None:
    table = generator.houses(200, 0)
    pd.testing.assert_frame_equal(generator.houses(200, 0), table)
    assert not generator.houses(200, 1).equals(table)


def test_sales_scatter_around_the_formula(generator: ModuleType) -> None:
    table = generator.houses(5_000, 0)
    ratio = np.log(table["price"] / generator.price(table))
    assert abs(ratio.mean()) < 0.005
    assert ratio.std() == pytest.approx(0.04, rel=0.1)


def test_works_raise_the_value(generator: ModuleType) -> None:
    table = generator.houses(500, 0)
    worth = generator.price(table)
    better = {"living_area": table["living_area"] + 25, "bathrooms": table["bathrooms"] + 1, "kitchen_age": 0}
    better |= {"energy_use": table["energy_use"] - 20, "heating": "heat pump"}
    for name, value in better.items():
        assert (generator.price(table.assign(**{name: value})) >= worth).all(), name


def test_plans_end_in_the_interval(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = subprocess.run(
        [sys.executable, str(FOLDER / "house_price.py"), "--rows", "1500", "--houses", "10"],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": store},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    then = [int(value.replace(",", "")) for value in re.findall(r"then valued at ([\d,]+) EUR", run.stdout)]
    assert len(then) >= 2
    assert all(400_000 <= value <= 420_000 for value in then)
    assert re.search(r"\n  1\. .*\(effort [^)]*\)", run.stdout)
    assert re.search(r"[1-9]\d* plans are proved to be the cheapest", run.stdout)
    client = MlflowClient(tracking_uri=store)
    (logged,) = client.search_runs([client.get_experiment_by_name("house_price").experiment_id])
    assert logged.data.metrics["mean_absolute_error"] < 20_000
    assert logged.data.metrics["cf/validity"] == 1
    assert logged.data.metrics["cf/constraint_satisfaction"] == 1
    assert "plans.png" in [file.path for file in client.list_artifacts(logged.info.run_id)]
