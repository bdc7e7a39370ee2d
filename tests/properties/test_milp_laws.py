"""Optima of mixed-integer programs against enumeration, the best-first search, and a program written by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from exact_worlds import TOLERANCE, Drawn, _sums, drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear
from milp_worlds import continuous, linear_world
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.explainers.ceocl import diverse
from mlflow_cf.milp import minimise as minimising
from mlflow_cf.milp.minimise import lower_bound, minimise
from mlflow_cf.milp.model import Model
from mlflow_cf.milp.program import NotLinearError
from mlflow_cf.problem import Budget
from mlflow_cf.proof.certify import NEARLY

MODELS = ("forest", "linear", "network")
MARGIN = 1e-4
opened = drawn(MODELS).filter(lambda world: world.open).map(linear_world)


def lead(world: Drawn, Z: np.ndarray) -> np.ndarray:
    """Return by how much rows meet the target on the scale of sums, below 0 if they do not."""
    sums, (target,) = _sums(world.structure, Z), world.row_task().problem.scorer.targets
    if target.kind == "interval":
        return np.minimum(sums[:, 0] - target.low, target.high - sums[:, 0])
    found = np.full(len(Z), -np.inf)
    for column in target.columns:
        if target.link == "share":
            own = sums[:, 0] if column == 1 else 1 - sums[:, 0]
            ahead = np.minimum(2 * own - 1, own - target.least)
        elif target.link == "sigmoid" and sums.shape[1] == 1:
            ahead = sums[:, 0] * (1 if column == 1 else -1)
            least = np.log(target.least / (1 - target.least)) if target.least > 0 else -np.inf
            ahead = np.minimum(ahead, ahead - least)
        else:
            ahead = sums[:, column] - np.delete(sums, column, axis=1).max(axis=1)
            if target.least > 0 and target.link == "identity":
                ahead = np.minimum(ahead, sums[:, column] - target.least)
            elif target.least > 0:
                ahead = np.minimum(ahead, ahead - np.log(target.least / (1 - target.least)))
        found = np.maximum(found, ahead)
    return found


def every_row(world: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows that constraints allow, and how far each is."""
    problem = world.row_task().problem
    sizes = [len(group.actions) for group in problem.groups]
    codes = np.stack([place.ravel() for place in np.indices(sizes)], axis=1)
    rows = problem.rows(codes)
    rows = rows[problem.check(rows)]
    return rows, problem.bound_distance.distance(problem.columns, rows, problem.x0)


def minimum(world: Drawn, **options):
    try:
        return minimise(Model(world.row_task().problem, **options), (), Budget(10**7), 0)
    except NotLinearError:
        assume(False)


@dear(2)
@given(opened)
def test_optima_are_those_of_enumeration(world):
    """Of several sizes of a rounding error: rows at the margin itself may be taken, or not."""
    found = minimum(world, margin=MARGIN)
    rows, distance = every_row(world)
    ahead, unit = lead(world, rows), 50 if world.task == "value" else 2  # a margin of values grows with these
    sure = distance[ahead >= unit * MARGIN].min(initial=np.inf)
    (target,) = world.row_task().problem.scorer.targets
    half = (target.high - target.low) / 2 if target.kind == "interval" else np.inf  # less than a margin: its middle
    least = min(0.9 * MARGIN, half - 1e-6)
    maybe = distance[ahead >= least].min(initial=np.inf)
    if found.row is None:
        assert found.status == "broken" or (found.status == "infeasible" and np.isinf(sure))
        return
    own = world.row_task().problem
    far = own.bound_distance.distance(own.columns, found.row[None], own.x0)[0]
    assert own.check(found.row[None])[0]
    assert lead(world, found.row[None])[0] >= least
    assert found.cost == pytest.approx(far, abs=1e-6)
    assert maybe - 1e-6 <= far
    assert far <= sure + 1e-6


@dear(2)
@given(opened)
def test_bounds_are_never_above_what_best_first_proves(world):
    task = world.row_task()
    best = world.certified(task)
    try:
        low = lower_bound(Model(task.problem, margin=-4 * TOLERANCE), Budget(10**7), 0)
    except NotLinearError:
        assume(False)
    if len(best.rows):
        assert low.bound <= best.bounds[0] + 1e-6
    elif low.status != "infeasible":  # something at the target's very end, or that breaks a rule left out
        assert low.status == "optimal"


@dear(4)
@given(opened, st.integers(2, 4))
def test_several_answers_change_other_groups_or_take_other_values(world, count):
    world = replace(world, count=count)
    try:
        answers = diverse(Model(world.row_task().problem), np.empty((0, len(world.x0))), Budget(10**7), 0)
    except NotLinearError:
        assume(False)
    found = [one for one in answers if one.row is not None]
    rows = np.array([one.row for one in found]).reshape(-1, len(world.x0))
    assert len({row.tobytes() for row in rows}) == len(rows)
    assert world.row_task().problem.check(rows).all()
    changed = [set(np.flatnonzero(line)) for line in world.row_task().problem.changed(rows)]
    others = next((at for at in range(1, len(rows)) if any(one <= changed[at] for one in changed[:at])), len(rows))
    assert all(one.status in ("optimal", "infeasible", "broken") for one in answers)
    assert np.all(
        np.diff([one.cost for one in found[:others]]) >= -1e-6
    )  # of other changes first, each the nearest that is left


@dear(2)
@given(continuous(MODELS, ("two", "shares", "margin", "value", "three")).filter(lambda w: w.open).map(linear_world))
def test_continuous_answers_are_valid_and_certified(world):
    """No row of a fine grid that is certainly accepted is nearer than what is proved."""
    task = world.row_task()
    found = world.certified(task)
    for row in found.rows:
        assert world.accepts(row[None])[0]
        assert task.problem.check(row[None])[0]
    low = found.bounds[0] if found.bounds else np.inf
    if found.note is not None or (not found.bounds and not found.exhausted):
        return
    grid = finer(world)
    distance = task.problem.bound_distance.distance(task.problem.columns, grid, task.problem.x0)
    nearest = distance[lead(world, grid) >= MARGIN].min(initial=np.inf)
    assert low <= nearest + 1e-9
    if found.proofs[:1] == ("optimal",):
        assert task.distance(found.rows)[0] <= low + NEARLY


def finer(world: Drawn) -> np.ndarray:
    """Return allowed rows with incomes between the observed ones, too."""
    problem = world.row_task().problem
    parts = [
        np.union1d(group.actions[:, 0], np.linspace(*group.interval, 9))[:, None] if group.interval else group.actions
        for group in problem.groups
    ]
    codes = np.indices([len(part) for part in parts]).reshape(len(parts), -1)
    rows = np.column_stack([part[code] for part, code in zip(parts, codes, strict=True)])
    return rows[problem.check(rows)]


def test_a_rule_that_rows_cannot_express_is_cut_off(monkeypatch):
    """A product of two numbers: the nearest row breaks it, and so do some that come next."""
    data = pd.DataFrame({"a": np.arange(12.0) / 2, "b": np.tile([4.5, 1.0, 2.5], 4)})
    model = DecisionTreeClassifier(random_state=0).fit(data, data["a"] > 2.6)
    constraints = {"rules": ["x_cf.a * x_cf.b >= 20"]}
    explained = mlflow_cf.wrap(model, data, target=True, constraints=constraints, explainer="exact")
    (best,) = explained.explain(data.iloc[[3]])
    monkeypatch.setattr("mlflow_cf.problem.actions.MOST_COMBINATIONS", 2)
    nothing = minimising.Minimum("infeasible")
    monkeypatch.setattr("mlflow_cf.explainers.ceocl._incumbent", lambda *_: nothing)  # with it, only one number is left
    repairs = []
    original = minimising.OtherValues
    monkeypatch.setattr(minimising, "OtherValues", lambda *cut: repairs.append(cut) or original(*cut))
    (found,) = explained.explain(data.iloc[[3]], explainer=CEOCL(engine="milp"))
    assert repairs
    assert found.counterfactuals[0].row == best.counterfactuals[0].row


def by_hand(weights: np.ndarray, bias: float, x0: np.ndarray, ends: np.ndarray) -> float:
    """Return the least distance (0.5, 0.5, 0) at which a linear score is 0 or more, by scipy's own program."""
    n = len(x0)
    width = ends[1] - ends[0]  # columns: up, down (shares of the range), changed
    cost = np.concatenate([np.full(2 * n, 0.5 / n), np.full(n, 0.5 / n)])
    score = np.concatenate([weights * width, -weights * width, np.zeros(n)])
    moved = np.hstack([np.eye(n), np.eye(n), -np.eye(n)])
    upper = np.concatenate([(ends[1] - x0) / width, (x0 - ends[0]) / width, np.ones(n)])
    rows = [
        LinearConstraint(score[None], -bias - weights @ x0, np.inf),
        LinearConstraint(moved, -np.inf, 0.0),
    ]
    integer = np.concatenate([np.zeros(2 * n), np.ones(n)])
    solved = milp(cost, integrality=integer, bounds=Bounds(0, upper), constraints=rows)
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_model_over_any_numbers_is_certified_as_an_independent_program_does(seed):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.normal(size=(120, 4)) * [1, 10, 0.01, 1000], columns=list("abcd"))
    wanted = data["a"] + data["b"] / 10 + data["d"] / 500 > 1.2
    model = LogisticRegression().fit(data / data.std(), wanted)
    model.coef_ = model.coef_ / data.std().to_numpy()
    explained = mlflow_cf.wrap(model, data, target=True, values="continuous", explainer="ceocl")
    rows = data[~model.predict(data)].head(8)
    ends = np.stack([data.min().to_numpy(), data.max().to_numpy()])
    for row, answer in zip(rows.to_numpy(), explained.explain(rows), strict=True):
        expected = by_hand(model.coef_[0], model.intercept_[0], row, ends)
        assert answer.counterfactuals[0].proof == "optimal"
        assert answer.counterfactuals[0].distance == pytest.approx(expected, abs=2e-5)


@dear(10)
@given(opened)
def test_without_a_budget_no_program_is_written(world):
    def written(*_):
        raise AssertionError("a program was written")

    model = Model(world.row_task().problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minimising, "build", written)
        for found in (minimise(model, (), Budget(0), 0), lower_bound(model, Budget(0), 0)):
            assert (found.status, found.row, found.bound) == ("limit", None, -np.inf)
