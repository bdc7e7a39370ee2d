"""UFCE: what it tries where its first candidates are no answers, and when it stops."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import dear
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf.explainers import UFCE, Candidates
from mlflow_cf.explainers.ufce import predictors as known
from mlflow_cf.explainers.ufce import ufce
from mlflow_cf.explainers.ufce.lines import Acceptance
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.testing.watched import Clock
from mlflow_cf.wrapping import assemble


def bank(seed: int, rows: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    """Return loans, most of them small: rows with much of one thing and little of the others are outliers."""
    rng = np.random.default_rng(seed)
    wealth = rng.gamma(2.0, 1.0, rows)
    frame = pd.DataFrame(
        {
            "income": (20 * wealth + rng.normal(0, 3, rows)).round().clip(5),
            "spending": (wealth + rng.normal(0, 0.2, rows)).round(1).clip(0),
            "mortgage": np.where(rng.random(rows) < 0.6, 0, (30 * wealth).round()),
            "family": rng.integers(1, 5, rows),
            "online": rng.random(rows) < 0.5,
        }
    )
    return frame, (frame["income"] / 20 + frame["spending"] + frame["family"] / 2 > 5.5).to_numpy()


def answered(explained, rows: pd.DataFrame, share: float, **options) -> list[list[dict]]:
    up = {name: {"up": share * spread, "down": 0} for name, spread in rows.attrs["spread"].items()}
    answers = explained.explain(rows, constraints={"relative": up}, explainer=UFCE(**options))
    return [[cf.row for cf in answer.counterfactuals] for answer in answers]


def rejected(frame: pd.DataFrame, model, most: int) -> pd.DataFrame:
    rows = frame[~model.predict(frame)].head(most)
    rows.attrs["spread"] = frame[["income", "spending", "mortgage"]].std().to_dict()
    return rows


@dear(20)
@example(0, 0.1, {"search": "scan", "pairs": 1, "polish": True})
@given(
    seed=st.integers(0, 50),
    share=st.floats(0.1, 2.0),
    options=st.fixed_dictionaries(
        {"search": st.sampled_from(["walk", "scan"]), "pairs": st.sampled_from([1, 3, None]), "polish": st.booleans()}
    ),
)
def test_more_changes_never_answer_fewer_rows(seed: int, share: float, options: dict) -> None:
    frame, y = bank(seed)
    model = LogisticRegression(max_iter=500).fit(frame, y)
    explained = mlflow_cf.wrap(model, frame, y, target=True, explainer="ufce")
    rows = rejected(frame, model, 6)
    found = [[bool(each) for each in answered(explained, rows, share, changes=k, **options)] for k in (1, 2, 3)]
    assert np.all(np.diff(np.array(found, dtype=int), axis=0) >= 0)


@dataclass(frozen=True)
class Careful:
    """Changes two features, and promises that the second one stays changed."""

    name: ClassVar[str] = "careful"
    polish: ClassVar[bool] = True

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        del budget, rng
        return Candidates(np.array([[6.0, 3.0, 2.0]]), promise=lambda rows: rows[:, 1] != problem.x0[1])


def test_needless_changes_stay_where_an_answer_would_break_its_promise() -> None:
    frame = pd.DataFrame({"a": range(8), "b": range(8), "c": range(8)})
    model = OpenModel("test", (0, 1), lambda rows: (rows["a"] >= 5).to_numpy().astype(int))
    explained = assemble(model, frame, None, WrapOptions(target=1, explainer=Careful()))
    (answer,) = explained.explain(frame.head(1))
    assert answer.counterfactuals[0].row == {"a": 6, "b": 3, "c": 0}


@pytest.mark.parametrize("changes", [2, 3])
def test_it_looks_on_where_all_that_it_found_are_outliers(changes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, y = bank(0)
    model = LogisticRegression(max_iter=500).fit(frame, y)
    explained = mlflow_cf.wrap(model, frame, y, target=True, explainer="ufce")
    row = rejected(frame, model, 1)
    tried = {}
    for plausible in (True, False):
        monkeypatch.setattr(known.Inliers, "accept", lambda _, Z, kept=plausible: np.full(len(Z), kept))
        (answer,) = explained.explain(row, explainer=UFCE(changes=changes, search="scan"))
        tried[plausible] = answer.diagnostics["tried"][str(changes)]["evaluations"]
    assert tried[False] > tried[True]


def test_wide_tables_are_searched_block_by_block(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 40)), columns=[f"c{at}" for at in range(40)])
    model = OpenModel("test", (0, 1), lambda rows: (rows["c0"] > 2).to_numpy().astype(int))
    options = WrapOptions(target=1, explainer=UFCE(search="scan"), constraints={"immutable": ["c0"]})
    explained = assemble(model, frame, None, options)
    own = Acceptance.ask

    def ask(self, lines, line, position):
        clock.now += 1e-4 * len(line)
        return own(self, lines, line, position)

    monkeypatch.setattr(Acceptance, "ask", ask)
    started = clock.now
    (answer,) = explained.explain(frame[frame["c0"] < 0].head(1), time_limit_s=2.0)
    assert answer.status == "budget"
    assert clock.now - started < 2.0 + 1e-4 * 2 * ufce.CELLS / 40
