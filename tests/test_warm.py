"""What is compiled ahead is all that is ever compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlflow_cf.artifact import warm
from mlflow_cf.cli import main

# what two processes run: one that compiles ahead, one that explains; both say which kernels they used for which arrays
USED = """
from mlflow_cf import kernel

def used():
    return sorted(f"{each.__qualname__} {kinds}" for each in kernel._KERNELS for kinds in each.signatures)
"""
ASK = """
import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from xgboost import XGBClassifier
import mlflow_cf

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
y, several = (X.a + X.b > 0).astype(int), (X.a > 0).astype(int) + (X.b > 0)
networks = [MLPClassifier(hidden, max_iter=400, random_state=0) for hidden in ((4,), (4, 3))]
trees = [XGBClassifier(n_estimators=5, n_jobs=1), LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1)]
trees += [HistGradientBoostingClassifier(max_iter=5)]
trees += [RandomForestClassifier(5, random_state=seed) for seed in (0, 15)]  # the second also needs two changes
for model in [*trees, make_pipeline(StandardScaler(), LogisticRegression()), *networks, SVC()]:
    for goal in (y, several):
        explained = mlflow_cf.wrap(model.fit(X, goal), X, goal, target=1)
        opened = explained.opened.structure is not None
        for certify in {False, opened}:
            explained.explain(X[:6], certify=certify, max_evaluations=20000, reasons=True)
        explained.explain(pd.concat([X] * 3), max_evaluations=20000, n_jobs=1)  # a long table, explained in blocks
        if type(model) in map(type, trees):
            explained.explain(pd.concat([X] * 3), max_evaluations=20000, count=2, n_jobs=1)
goal, rows, refused = (X.a + X.b > 0).astype(int), pd.concat([X] * 3), X[X.a + X.b < -0.5]
for model, other in zip(trees[1::2], trees[2::2]):  # both must accept an answer
    models = [clone(one).fit(X, goal) for one in (model, other)]
    explained = mlflow_cf.wrap(models[0], X, goal, target=1, robust_to=models[1:])
    for some, count in [(refused[:1], 1), (refused[:1], 2), (rows, 1)]:
        explained.explain(some, count=count, certify=True, max_evaluations=20000, n_jobs=1)
explained = mlflow_cf.wrap(RandomForestRegressor(5, random_state=0).fit(X, X.a), X, target=mlflow_cf.Target(low=1.0))
explained.explain(X[:2], certify=True)
"""
SERVE = """
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
import mlflow_cf
from mlflow_cf import kernel

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.integers(0, 30, size=(400, 5)), columns=list("abcde"))
y = (X.sum(axis=1) + X.a > 95).astype(int)
for model in (LogisticRegression(max_iter=1000), HistGradientBoostingClassifier(max_iter=10)):
    explained = mlflow_cf.wrap(model.fit(X, y), X, target=1)
    refused = X[model.predict(X) == 0]
    explained.warm_up()
    before = set(used())
    for rows, asked in ((1, {}), (20, {"count": 3}), (150, {}), (150, {"count": 3}), (5, {"certify": True})):
        explained.explain(refused.head(rows), time_limit_s=5, **asked)
    new = set(used()) - before
    assert not new, (model, new)
"""
WARM = "from mlflow_cf.artifact.warm import warm_all; list(warm_all())"


@pytest.mark.system
def test_no_request_waits_for_what_is_compiled_once_a_model_is_warm(tmp_path: Path) -> None:
    """Whether or not this machine has compiled it before: what is used is looked at."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    script = USED + SERVE
    asked = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr


@pytest.mark.system
def test_nothing_is_compiled_once_all_is_warm(tmp_path: Path) -> None:
    """Whether or not this machine has compiled it before: what is used is compared, not what is compiled."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    said = []
    for code in (WARM, ASK):
        lines = [USED, code, "import json; print(json.dumps(used()))"]
        asked = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr
        said.append(set(json.loads(asked.stdout.splitlines()[-1])))
    warm, needed = said
    assert len(needed) > 20
    assert not needed - warm


def test_the_command_says_what_it_did_and_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: build for name, build in warm._MODELS.items() if "not opened" in name or "regressions" in name}
    monkeypatch.setattr(warm, "_MODELS", few)
    result = CliRunner().invoke(main, ["warm"])
    assert result.exit_code == 0, result.output
    *lines, last = result.output.splitlines()
    assert [line.split(": ")[0] for line in lines] == list(few)
    assert len(few) == 2
    assert last.startswith("kept in ")


def test_another_folder_is_told_to_the_process_that_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(words: list[str], *, env: dict[str, str], check: bool) -> subprocess.CompletedProcess[bytes]:
        asked.append(env["NUMBA_CACHE_DIR"])
        return subprocess.CompletedProcess(words, len(asked) - 1)

    monkeypatch.setattr("mlflow_cf.cli.machine.subprocess.run", run)
    done, failed = (CliRunner().invoke(main, ["warm", "--cache", str(tmp_path)]) for _ in range(2))
    assert asked == [str(tmp_path)] * 2
    assert (done.exit_code, failed.exit_code) == (0, 1)
    assert f"NUMBA_CACHE_DIR={tmp_path}" in done.output


def test_it_does_not_work_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlflow_cf.artifact.warm.kept_in", lambda: None)
    result = CliRunner().invoke(main, ["warm"])
    assert result.exit_code == 2
    assert "--cache" in result.output
