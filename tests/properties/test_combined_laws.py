"""A weighted sum in place of many linear models: no box with an answer is given up, no answer costs less than told."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear
from sklearn.linear_model import LogisticRegression
from worlds import problem_of

import mlflow_cf
from mlflow_cf.engine.combined import Combined
from mlflow_cf.engine.engine import Engine
from mlflow_cf.policy import Target
from mlflow_cf.policy.survival import confidence_of
from mlflow_cf.structures.capabilities import boxes_of

TOLERANCE = 1e-6


def linear(weights: Any, bias: float) -> LogisticRegression:
    """Return a model with such weights (d,)."""
    columns = list("abcde")[: len(weights)]
    model = LogisticRegression().fit(pd.DataFrame(np.eye(2, len(weights)), columns=columns), [0, 1])
    model.coef_, model.intercept_ = np.asarray(weights, dtype=float)[None], np.array([bias])
    return model


def wrapped(models: list[Any], frame: pd.DataFrame) -> Any:
    """Return explanations that a model and all others must accept."""
    sure = confidence_of(len(models) - 1, len(models) - 1, 0.5) - 1e-9
    asked = {"holds": 0.5, "confidence": sure, "compared": 1, "models": models[1:]}
    return mlflow_cf.wrap(models[0], frame, target=1, survival=asked)


def drawn(seed: int, count: int) -> tuple[list[Any], pd.DataFrame]:
    """Return so many models that differ, and rows of four columns."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 4, (60, 4)) / [1, 2, 4, 1], columns=list("abcd"))
    weights = rng.normal(0.6, 1.0, (count, 4))
    return [linear(each, bias) for each, bias in zip(weights, -rng.uniform(0, 6, count), strict=True)], frame


def searched(explained: Any, row: pd.DataFrame) -> Engine:
    requirements = explained.context.required
    scorer = requirements.scorer(requirements.targets(requirements.bound(Target(label=1), 0)))
    assert scorer is not None
    return Engine(replace(problem_of(explained, row), rate=scorer.rate, scorer=scorer))


@dear(2)
@given(st.integers(0, 2**16), st.integers(2, 8), st.integers(0, 59))
def test_no_box_with_an_answer_is_given_up_and_no_answer_costs_less(seed: int, count: int, at: int) -> None:
    models, frame = drawn(seed, count)
    engine, rng = searched(wrapped(models, frame), frame.iloc[[at]]), np.random.default_rng(seed)
    problem, actions = engine.problem, engine.actions
    boxes = boxes_of(problem.scorer.structure, actions.encoded)
    combined = Combined.of(problem.scorer, boxes, actions, TOLERANCE)
    assume(combined is not None)
    sizes = np.diff(actions.start)
    every = np.array(list(product(*map(range, sizes.tolist())))) + actions.start[:-1]
    codes = np.stack([actions.code[some] for some in every.T], axis=1)
    may, _ = problem.scorer.decisions(problem.scorer.structure.sums(problem.encoded(codes)), TOLERANCE)
    cost = actions.cost[every].sum(axis=1)
    bounds = combined.costs(actions.cost[actions.columns])
    for _ in range(20):
        mask = rng.random(len(actions.cost)) < rng.uniform(0.3, 1.0)
        mask[actions.start[:-1] + rng.integers(0, sizes)] = True
        inside = may & mask[every].all(axis=1)
        columns = mask[actions.columns]
        if inside.any():
            assert not combined.missed(columns[None])[0]
            assert bounds.of(columns, None, np.inf).low <= cost[inside].min() + 1e-9
    if engine.beyond_reach(TOLERANCE):
        assert not may.any()


def opposed() -> tuple[list[Any], pd.DataFrame]:
    """Return models that all have answers, but none in common: what one of them gains another one loses."""
    rng = np.random.default_rng(0)
    weights = np.array([-1.0, 1.0, -1.0, 1.0, -1.0])
    frame = pd.DataFrame(rng.normal(size=(80, 5)).round(1), columns=list("abcde"))
    return [linear(weights, -1.0), linear(-weights, -1.0), linear(weights * 1.1, -1.0)], frame


def test_that_models_have_no_answer_in_common_is_proved_at_once() -> None:
    models, frame = opposed()
    explained = wrapped(models, frame)
    row = frame.iloc[[int(np.flatnonzero(models[0].predict(frame) == 0)[0])]]
    (found,) = explained.explain(row, why_not=False)
    assert found.status == "infeasible"
    assert not found.diagnostics["generations"]


def test_models_that_may_refuse_are_not_combined() -> None:
    models, frame = opposed()
    asked = {"holds": 0.2, "confidence": confidence_of(1, 2, 0.2) - 1e-9, "compared": 1, "models": models[1:]}
    explained = mlflow_cf.wrap(models[0], frame, target=1, survival=asked)
    assert explained.policy.survival.needed == 1
    missed = np.flatnonzero(models[0].predict(frame) == 0)
    found = explained.explain(frame.iloc[missed[:5]], why_not=False)
    assert [one.status for one in found] == ["found"] * 5


@pytest.mark.parametrize("certify", [False, True])
def test_combined_models_find_what_trying_every_row_finds(*, certify: bool) -> None:
    found_some = 0
    for seed in range(6):
        models, frame = drawn(seed, 6)
        explained = wrapped(models, frame)
        every = pd.DataFrame(list(product(*(sorted(frame[name].unique()) for name in frame))), columns=frame.columns)
        good = every[np.all([model.predict(every) == 1 for model in models], axis=0)]
        rows = frame[models[0].predict(frame) == 0].head(4)
        for one, (_, row) in zip(explained.explain(rows, certify=certify), rows.iterrows(), strict=True):
            if good.empty:
                assert one.status == "infeasible"
                continue
            metric, space = explained.bound_policy.bound_distance, explained.space
            groups = tuple((column,) for column in range(4))
            far = metric.distance(groups, space.encode(good), space.encode(row.to_frame().T)[0]).min()
            assert one.status == "found"
            assert one.counterfactuals[0].distance >= far - 1e-9
            if certify:
                assert one.counterfactuals[0].distance == pytest.approx(far, abs=1e-9)
            found_some += 1
    assert found_some
