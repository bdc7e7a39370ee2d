"""The example of a portfolio in Spark, as a user runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

BATCH = Path(__file__).resolve().parent.parent / "example_projects" / "spark_batch" / "batch.py"


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_every_loan_is_explained(tmp_path):
    pytest.importorskip("pyspark")
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}", "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(
        [sys.executable, str(BATCH), "--rows", "600", "--output", str(tmp_path / "answers")],
        cwd=tmp_path,
        env={**os.environ, **store},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr
    assert "Background(600 rows, 4 columns, 600 rows drawn)" in run.stdout
    answers = pq.read_table(tmp_path / "answers").to_pandas()
    assert sorted(answers["loan"]) == list(range(600))
    assert set(answers["status"]) <= {"found", "already", "infeasible"}
    assert "found" in run.stdout
    assert "income" in run.stdout
    assert len(BATCH.read_text(encoding="utf-8").splitlines()) < 100
