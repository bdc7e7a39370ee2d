"""Answers that must meet more than the target: exact search finds what trying every row finds."""

from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.explained import ExplainedModel

ESTIMATORS: dict[str, Any] = {
    "tree": lambda seed: DecisionTreeClassifier(max_depth=4, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(5, max_depth=4, random_state=seed),
    "linear": lambda seed: LogisticRegression(C=1.0 + seed % 3),
    "unopened": lambda seed: QuadraticDiscriminantAnalysis(reg_param=1e-3 * (1 + seed % 3)),
}
LEAST = 1e-9  # probabilities at the very edge are the judge's to decide


class Drawn(NamedTuple):
    """Data, a model and others trained on parts of the data, and what is required."""

    seed: int
    model: str
    others: tuple[str, ...]
    margin: float
    quantile: float | None

    @property
    def frame(self) -> pd.DataFrame:
        rng = np.random.default_rng(self.seed)
        return pd.DataFrame(rng.integers(0, [4, 5, 6], (60, 3)) / [1, 2, 4], columns=["a", "b", "c"])

    @property
    def fitted(self) -> list[Any]:
        rng = np.random.default_rng(self.seed + 1)
        frame, models = self.frame, []
        wanted = (frame.sum(axis=1) + rng.normal(0, 0.5, len(frame)) > 3.5).astype(int)
        for at, name in enumerate((self.model, *self.others)):
            some = rng.choice(len(frame), 45, replace=False)
            assume(wanted.iloc[some].nunique() == 2)
            models.append(ESTIMATORS[name](at).fit(frame.iloc[some], wanted.iloc[some]))
        return models


def drawn(*names: str) -> st.SearchStrategy[Drawn]:
    others = st.lists(st.sampled_from(names), max_size=2).map(tuple)
    margins = st.sampled_from([0.0, 0.1, 0.35])
    return st.builds(
        Drawn, st.integers(0, 2**16), st.sampled_from(names), others, margins, st.sampled_from([None, 0.05, 0.3])
    )


class Tried:
    """Every row that may be proposed for a row, and which of them meet everything.

    Attributes:
        explained: the wrapped model; row: (1, d) the row it misses.
    """

    def __init__(self, world: Drawn, method: str = "isolation_forest") -> None:
        self.world, self.models = world, world.fitted
        plausible = None if world.quantile is None else {"method": method, "quantile": world.quantile}
        self.explained: ExplainedModel = mlflow_cf.wrap(
            self.models[0], world.frame, target=1, robust_to=self.models[1:], plausible=plausible, margin=world.margin
        )
        missed = np.flatnonzero(self.models[0].predict(world.frame) == 0)
        assume(len(missed))
        self.row = world.frame.iloc[missed[:1]]

    @cached_property
    def rows(self) -> pd.DataFrame:
        frame = self.world.frame
        every = pd.DataFrame(list(product(*(sorted(frame[name].unique()) for name in frame))), columns=frame.columns)
        return every[(every != self.row.iloc[0]).any(axis=1)].reset_index(drop=True)

    @cached_property
    def good(self) -> pd.DataFrame:
        rows, held = self.rows, self.explained.extra_models
        share = self.models[0].predict_proba(rows)[:, 1]
        meets = np.array(share >= 0.5 + self.world.margin - LEAST * (self.world.margin > 0))
        for model in self.models:
            meets &= model.predict(rows) == 1
        if self.world.quantile is not None:
            codes, background = self.explained.space.encode(rows), self.explained.bound_policy.background
            scorer = held.plausibility.scorer
            sign = 1 if hasattr(scorer, "structure") else -1
            least = np.quantile(sign * scorer.scores(background), self.world.quantile, method="lower")
            meets &= sign * scorer.scores(codes) >= least
        return rows[meets]

    @cached_property
    def nearest(self) -> float:
        space, metric = self.explained.space, self.explained.bound_policy.bound_distance
        columns = tuple((at,) for at in range(len(space)))
        return metric.distance(columns, space.encode(self.good), space.encode(self.row)[0]).min(initial=np.inf)


@dear(1)
@given(drawn("tree", "forest", "linear"))
def test_the_nearest_that_meets_everything_is_found(world: Drawn) -> None:
    tried = Tried(world)
    assume(tried.explained.context.required.structure is not None)  # forests whose shares tie are not opened
    (found,) = tried.explained.explain(tried.row, certify=True)
    if tried.good.empty:
        assert (found.status, found.counterfactuals) == ("infeasible", ())
        return
    answer = found.counterfactuals[0]
    assert (found.status, answer.proof) == ("found", "optimal")
    assert answer.distance == pytest.approx(tried.nearest, abs=1e-12)
    assert (tried.good == pd.Series(answer.row)).all(axis=1).any()


@dear(4)
@given(drawn("tree", "linear", "unopened"), st.sampled_from(["isolation_forest", "lof"]))
def test_what_cannot_be_opened_is_met_and_never_proved(world: Drawn, method: str) -> None:
    tried = Tried(world, method)
    (found,) = tried.explained.explain(tried.row, count=3, certify=True)
    for answer in found.counterfactuals:
        assert (tried.good == pd.Series(answer.row)).all(axis=1).any()
    closed = "unopened" in (world.model, *world.others) or (method == "lof" and world.quantile is not None)
    if closed:
        assert found.status in ("found", "not_found")
        assert {answer.proof for answer in found.counterfactuals} <= {"none"}
        assert found.status == "not_found" or "not certified: " in found.reason


@dear(4)
@given(drawn("tree", "forest"), st.sampled_from([0.1, 0.2, 0.45]), st.sampled_from([0.1, 0.3, 0.5]))
def test_a_request_can_only_add(world: Drawn, margin: float, quantile: float) -> None:
    """What a policy does not require a request may, and answers are those of a policy that requires it."""
    models = world.fitted
    free = [{"model": model, "required": False} for model in models[1:]]
    held = mlflow_cf.wrap(
        models[0], world.frame, target=1, robust_to=free, plausible={"quantile": world.quantile or 0, "required": False}
    )
    policy = mlflow_cf.wrap(
        models[0], world.frame, target=1, robust_to=models[1:], plausible={"quantile": quantile}, margin=margin
    )
    query = {"robust_to": True, "plausible": {"quantile": quantile}, "margin": margin, "certify": True}
    asked = held.predict(world.frame.head(3), {"counterfactual": query})
    required = policy.predict(world.frame.head(3), {"counterfactual": {"certify": True}})
    assert asked["status"].tolist() == required["status"].tolist()
    assert asked["counterfactuals"].tolist() == required["counterfactuals"].tolist()
