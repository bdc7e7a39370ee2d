"""Growing spheres: balls and layers, what the nearest point becomes, CARLA's version, and bad input."""

import numpy as np
import pandas as pd
import pytest
from searched import bound

import mlflow_cf
from mlflow_cf import GrowingSpheres, InputError
from mlflow_cf.explainers import Candidates
from mlflow_cf.explainers.baselines.growing_spheres import Balls
from mlflow_cf.problem import Budget, Problem

RNG = np.random.default_rng(0)
PLANE = pd.DataFrame({"a": RNG.uniform(0, 10, 300), "b": RNG.uniform(0, 2, 300)})
PLANE.iloc[:2] = [[0, 0], [10, 2]]
MIXED = PLANE.assign(job=RNG.choice(["u", "v", "w"], 300), member=RNG.random(300) < 0.5)


def search(problem: Problem, explainer: GrowingSpheres | None = None, most: int = 10**6, seed: int = 0) -> Candidates:
    return (explainer or GrowingSpheres()).search(problem, Budget(most), np.random.default_rng(seed))


def line(Z: np.ndarray) -> np.ndarray:
    """Favourable from the line on; in ranges it is 0.8 a + 0.6 b >= 0.7."""
    return 0.08 * Z[:, 0] + 0.3 * Z[:, 1] >= 0.7


def away(Z: np.ndarray, row: tuple[float, ...]) -> np.ndarray:
    return np.linalg.norm((Z[:, :2] - row[:2]) / [10, 2], axis=1)


@pytest.mark.parametrize("row", [(1.0, 0.2), (4.0, 0.9), (0.0, 0.0), (5.5, 0.8)])
def test_on_a_linear_model_it_comes_near_the_nearest_point_of_the_boundary(row: tuple[float, float]) -> None:
    problem = bound(PLANE, line, row=row, values="continuous", count=3)
    found = search(problem)
    nearest = 0.7 - 0.08 * row[0] - 0.3 * row[1]
    assert len(found.rows) == 3
    assert line(found.rows).all()
    assert (away(found.rows, row) >= nearest - 1e-9).all()
    assert (away(found.rows, row) <= nearest + 0.03).all()


def test_the_smallest_changes_are_undone_up_to_the_first_that_is_needed() -> None:
    """By hand: only a counts, so that b goes back; with both needed, none does."""
    only = search(bound(PLANE, lambda Z: Z[:, 0] >= 5, row=(1.0, 0.2), values="continuous")).rows[0]
    assert only[1] == 0.2
    assert 5 <= only[0] < 5.5
    both = search(bound(PLANE, lambda Z: (Z[:, 0] >= 5) & (Z[:, 1] > 0.6), row=(1.0, 0.2), values="continuous")).rows[0]
    assert both[1] != 0.2
    carla = GrowingSpheres(variant="carla")
    kept = search(bound(PLANE, lambda Z: Z[:, 0] >= 5, row=(1.0, 0.2), values="continuous"), carla).rows[0]
    assert kept[1] != 0.2


def test_the_ball_shrinks_until_nothing_in_it_is_favourable() -> None:
    problem = bound(PLANE, lambda Z: Z[:, 0] >= 1.2, row=(1.0, 0.2), values="continuous")
    found = search(problem)
    assert 1.2 <= found.rows[0, 0] < 1.2 + 0.3
    assert away(problem.rate.seen[0], (1.0, 0.2)).max() <= np.sqrt(2)
    assert sum(map(len, problem.rate.seen)) < 10_000


def test_points_are_drawn_between_the_radii() -> None:
    problem = bound(PLANE, line, row=(5.0, 1.0), values="continuous")
    for clip in (True, False):
        balls = Balls.of(problem, np.random.default_rng(0), levels=False, clip=clip)
        drawn = balls.away(balls.draw(0.2, 0.3, 2000, "volume"))
        assert drawn.min() > 0.2 - 0.002
        assert drawn.max() < 0.3 + 0.002
        assert np.mean(drawn < np.sqrt((0.04 + 0.09) / 2)) == pytest.approx(0.5, abs=0.05)  # half of the area
        evenly = balls.away(balls.draw(0.2, 0.3, 2000, "radius"))
        assert np.mean(evenly < 0.25) == pytest.approx(0.5, abs=0.05)


def test_radii_of_many_numbers_do_not_underflow() -> None:
    frame = pd.DataFrame(RNG.random((50, 400)), columns=[f"f{i}" for i in range(400)])
    problem = bound(frame, lambda Z: np.zeros(len(Z), bool), row=frame.to_numpy()[0].tolist(), values="continuous")
    balls = Balls.of(problem, np.random.default_rng(0), levels=False, clip=False)
    assert np.isfinite(balls.away(balls.draw(0.01, 0.02, 5, "volume"))).all()


def test_levels_stay_unless_they_are_drawn() -> None:
    def job(Z: np.ndarray) -> np.ndarray:
        return (Z[:, 2] == 1) & (Z[:, 0] > 2)

    row = (1.0, 0.2, 0.0, 0.0)
    frozen = bound(MIXED, job, row=row)
    assert not len(search(frozen, most=20_000).rows)
    assert (np.concatenate(frozen.rate.seen)[:, 2:] == row[2:]).all()
    for options in ({"categorical": "resample"}, {"variant": "carla"}):
        problem = bound(MIXED, job, row=row)
        found = search(problem, GrowingSpheres(**options)).rows
        assert job(found).all()
        assert len(found) == 1
        shares = np.bincount(problem.rate.seen[0][:, 2].astype(int), minlength=3) / len(problem.rate.seen[0])
        assert shares.min() > 0.25


def test_what_may_not_change_does_not() -> None:
    problem = bound(MIXED, line, row=(1.0, 0.2, 0.0, 0.0), constraints={"immutable": ["b"], "increasing": ["a"]})
    found = search(problem)
    assert (found.rows[:, 1] == 0.2).all()
    assert (np.concatenate(problem.rate.seen)[:, 0] >= 1).all()
    nothing = bound(MIXED, line, row=(1.0, 0.2, 0.0, 0.0), constraints={"immutable": list(MIXED)})
    assert not len(search(nothing).rows)


def test_few_changes_are_the_largest() -> None:
    constraints = {"max_changes": 1}
    problem = bound(PLANE, line, row=(1.0, 0.2), constraints=constraints, values="continuous")
    found = search(problem)
    assert problem.check(np.concatenate(problem.rate.seen)).all()
    assert problem.changed(found.rows).sum(axis=1).tolist() == [1]


def test_rules_and_groups() -> None:
    rules = {"rules": ["IF x_cf.a > x.a THEN x_cf.b >= 1.5"], "groups": [["job", "member"]]}
    problem = bound(MIXED, line, row=(1.0, 0.2, 0.0, 0.0), constraints=rules)
    found = search(problem, GrowingSpheres(categorical="resample"))
    assert len(found.rows)
    assert problem.check(found.rows).all()


def test_missing_numbers_stay_missing_and_numbers_beyond_the_range_are_drawn_within() -> None:
    frame = PLANE.assign(c=np.where(np.arange(300) % 3, 1.0, np.nan), e=np.arange(300.0))
    problem = bound(frame, lambda Z: Z[:, 0] > 4, row=(1.0, 0.2, np.nan, 900.0))
    found = search(problem)
    assert len(found.rows)
    Z = np.concatenate(problem.rate.seen)
    assert np.isnan(Z[:, 2]).all()
    assert (Z[:, 3] <= 900).all()


def test_the_budget_is_kept_and_nothing_is_scored_twice() -> None:
    for most in (1, 50, 3000):
        problem = bound(MIXED, lambda Z: np.zeros(len(Z), bool), row=(1.0, 0.2, 0.0, 0.0))
        search(problem, most=most)
        Z = np.concatenate(problem.rate.seen)
        assert len(Z) <= most
        assert len(np.unique(Z, axis=0)) == len(Z)


def test_it_gives_up_at_the_diagonal() -> None:
    problem = bound(PLANE.iloc[:20], lambda Z: np.zeros(len(Z), bool), row=(1.0, 0.2))
    found = search(problem, GrowingSpheres(samples=50))
    assert found.diagnostics == {"layers": 21, "failed": 1}  # from 1 to the square root of 2 by 0.02


def test_data_without_numbers_are_refused_unless_levels_are_drawn() -> None:
    frame = pd.DataFrame({"job": list("uvw") * 10, "home": list("xyxyz") * 6})

    def decide(rows: pd.DataFrame) -> np.ndarray:
        return (rows["job"] == "w").to_numpy().astype(int)

    options = {"target": 1, "output": "label", "explainer": "growing_spheres"}
    with pytest.raises(InputError, match=r"explainer\.categorical: no feature is a number"):
        mlflow_cf.wrap(decide, frame, **options)
    loan = mlflow_cf.wrap(decide, frame, **{**options, "explainer": GrowingSpheres(categorical="resample")})
    found = loan.explain(frame.iloc[:1])[0]
    assert found.counterfactuals[0].row["job"] == "w"


@pytest.mark.parametrize(
    ("option", "value"), [("samples", 0), ("samples", 5.0), ("step", 0), ("radius", -1), ("radius", "1")]
)
def test_options_that_are_refused(option: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"explainer\.{option}: .* is no (whole )?number from"):
        GrowingSpheres(**{option: value})
    with pytest.raises(InputError, match=r"explainer\.variant: 'dice' is unknown; use one of paper, carla"):
        GrowingSpheres(variant="dice")
