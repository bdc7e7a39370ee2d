"""Answers in the hull of favourable rows: worked by hand, enlarged, in clusters, and what is refused."""

from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Learned

# Good rows stand in two squares, (6..8, 0..2) and (0..2, 6..8); between them x + y >= 6 holds, and nobody is there.
GOOD = [(6, 0), (8, 0), (6, 2), (8, 2), (0, 6), (2, 6), (0, 8), (2, 8)]
BAD = [(0, 0), (1, 1), (2, 2), (3, 1), (1, 3), (2, 0), (0, 2), (2.5, 2.5)]
DATA = pd.DataFrame([*GOOD, *BAD], columns=["x", "y"], dtype="float64")
LABELS = np.array([1] * 8 + [0] * 8)
MODEL = LogisticRegression(C=1e4).fit(DATA, LABELS)
POOR = pd.DataFrame({"x": [1.0], "y": [1.0]})


def wrapped(**options: Any) -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(
        MODEL,
        DATA,
        LABELS,
        target=1,
        values="continuous",
        distance=(0.0, 1.0, 0.0),
        features={name: {"kind": "real"} for name in ("x", "y")},
        explainer=CEOCL(**options),
    )


def answer(**options: Any) -> tuple[Any, np.ndarray]:
    (found,) = wrapped(**options).explain(POOR)
    rows = [list(one.row.values()) for one in found.counterfactuals]
    return found, np.array(rows).reshape(-1, 2)


class TestHull:
    def test_an_answer_is_the_nearest_one_of_the_hull(self) -> None:
        """The hull of all good rows has the edge x + y = 6, on which the answer stands: 4 away from (1, 1)."""
        free, _ = answer()
        held, rows = answer(manifold="hull")
        assert rows.sum() == pytest.approx(6.0, abs=1e-4)
        assert held.counterfactuals[0].distance == pytest.approx(4 / 8 / 2, abs=1e-4)
        assert held.counterfactuals[0].distance > free.counterfactuals[0].distance
        assert held.counterfactuals[0].proof == "optimal"
        assert held.diagnostics["manifold"]["points"] == 8
        assert held.diagnostics["manifold"]["apart"] == [pytest.approx(0, abs=1e-6)]

    def test_clusters_leave_no_mixtures(self) -> None:
        _, rows = answer(manifold="hull", clusters=2)
        assert min(abs(rows[0] - (6, 1)).sum(), abs(rows[0] - (1, 6)).sum()) < 1e-4

    @pytest.mark.parametrize(("norm", "total"), [("l1", 6 - 8 * 0.05), ("linf", 6 - 16 * 0.05), ("l2", 6 - 8 * 0.05)])
    def test_a_hull_can_be_enlarged(self, norm: str, total: float) -> None:
        """Coordinates are eighths: 0.05 is 0.4 together, or 0.4 each."""
        held, rows = answer(manifold="hull", eps=0.05, norm=norm)
        assert rows.sum() == pytest.approx(max(total, answer()[1].sum()), abs=1e-3)  # no nearer than without a hull
        assert held.diagnostics["manifold"]["apart"][0] <= 0.05 + 1e-6

    def test_what_is_out_of_reach_is_told(self) -> None:
        limits = {"ranges": {"x": [None, 2.9], "y": [None, 2.9]}}  # x + y <= 5.8
        (held,) = wrapped(manifold="hull").explain(POOR, constraints=limits)
        assert held.status == "infeasible"
        assert held.diagnostics["infeasible"] == "manifold"
        (near,) = wrapped(manifold="hull", enlarge="penalty").explain(POOR, constraints=limits)
        assert near.status == "found"
        assert near.diagnostics["manifold"]["enlarged"]
        assert near.diagnostics["manifold"]["apart"] == [pytest.approx(0.2 / 8, abs=1e-4)]
        assert near.counterfactuals[0].proof == "none"

    def test_the_nearest_points_are_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mlflow_cf.explainers.hull.MOST_POINTS", 4)
        held, rows = answer(manifold="hull")
        assert held.diagnostics["manifold"]["points"] == 4
        assert not held.diagnostics["manifold"]["whole"]
        assert rows.sum() == pytest.approx(6.0, abs=1e-4)
        assert held.counterfactuals[0].proof != "optimal"

    @pytest.mark.parametrize("objective", ["distance", "l1", "l2"])
    def test_without_an_answer_of_the_solver_its_nearest_points_are_the_answers(
        self, objective: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A corner of the squares: (6, 0) is 6 away, and so is (0, 6)."""
        asked = wrapped(manifold="hull", objective=objective, mu=1.0)

        def fail(*_: object) -> None:
            raise RuntimeError("out of memory")

        monkeypatch.setattr(highspy.Highs, "run", fail)
        (held,) = asked.explain(POOR, count=2)
        rows = [tuple(one.row.values()) for one in held.counterfactuals]
        assert set(rows) <= {(float(x), float(y)) for x, y in GOOD}
        assert sum(rows[0]) == 6.0
        assert {one.proof for one in held.counterfactuals} == {"none"}
        unit = {"distance": 6 / 8 / 2, "l1": 6 / 8, "l2": (25 + 1) / 64}[objective]
        assert held.diagnostics["costs"][0] == pytest.approx(unit + 2.0)

    def test_a_regression_has_a_hull_of_its_wanted_values(self) -> None:
        model = DecisionTreeRegressor(random_state=0).fit(DATA, DATA["x"] + DATA["y"])
        explained = mlflow_cf.wrap(
            model, DATA, target=mlflow_cf.Target(low=8.0), explainer=CEOCL(manifold="hull"), values="continuous"
        )
        (held,) = explained.explain(POOR)
        row = held.counterfactuals[0].row
        assert row["x"] + row["y"] >= 8 - 1e-6

    def test_labels_are_those_of_training(self) -> None:
        turned = mlflow_cf.wrap(
            MODEL, DATA, 1 - LABELS, target=1, explainer=CEOCL(manifold="hull"), values="continuous"
        )
        own = mlflow_cf.wrap(MODEL, DATA, target=1, explainer=CEOCL(manifold="hull"), values="continuous")
        assert own.explain(POOR)[0].status == "found"
        assert turned.explain(POOR)[0].status == "infeasible"  # no row that is labelled good is predicted so


class TestRequests:
    def test_a_request_may_ask_for_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        explained = wrapped()
        monkeypatch.setattr("mlflow_cf.explainers.ceocl.learn_region", None)  # nothing is learned for a request
        asked = {"name": "ceocl", "options": {"manifold": "hull", "eps": 0.0}}
        reply = explained.predict(POOR, {"counterfactual": {"explainer": asked}})
        row = reply["counterfactuals"][0][0]["row"]
        assert row["x"] + row["y"] == pytest.approx(6.0, abs=1e-4)
        assert reply["counterfactuals"][0][0]["proof"] == "optimal"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"eps": -0.1}, r"explainer.options.eps: .* greater than or equal to 0"),
            ({"manifold": "ball"}, r"explainer.options.manifold: input should be 'none' or 'hull'"),
            ({"clusters": 3}, r"explainer.options.clusters: not an option of ceocl that a request may set"),
        ],
    )
    def test_what_it_may_not_ask(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            wrapped().predict(POOR, {"counterfactual": {"explainer": {"name": "ceocl", "options": options}}})

    def test_another_target_has_another_hull(self) -> None:
        explained = mlflow_cf.wrap(MODEL, DATA, LABELS, target=1, seal=(), explainer=CEOCL(manifold="hull", clusters=2))
        (found,) = explained.explain(pd.DataFrame({"x": [8.0], "y": [2.0]}), target=0)
        row = found.counterfactuals[0].row
        assert max(row["x"], row["y"]) <= 3  # where bad rows are
        assert found.diagnostics["manifold"]["apart"] == [pytest.approx(0, abs=1e-6)]


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"eps": -1e-9}, r"explainer.eps: -1e-09 is no number from 0 to 1,000"),
            ({"clusters": 0}, r"explainer.clusters: 0 is no whole number from 1 to 100"),
            ({"norm": "l3"}, r"explainer.norm: 'l3' is unknown; use one of l1, l2, linf"),
            ({"manifold": "hull", "engine": "best_first"}, r"explainer.engine: best-first search minimises"),
        ],
    )
    def test_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            CEOCL(**options)

    def test_the_hull_of_a_class_without_rows(self) -> None:
        message = r"explainer.manifold: no row of the background has the label that is wanted; pass labels that have it"
        with pytest.raises(InputError, match=message):
            mlflow_cf.wrap(MODEL, DATA, np.zeros(16, dtype=int), target=1, explainer=CEOCL(manifold="hull"))
        explained = mlflow_cf.wrap(MODEL, DATA, np.zeros(16, dtype=int), target=1, explainer=CEOCL())
        asked = {"name": "ceocl", "options": {"manifold": "hull"}}
        with pytest.raises(InputError, match=message):
            explained.predict(POOR, {"counterfactual": {"explainer": asked}})

    def test_columns_shuffled_apart(self) -> None:
        with pytest.raises(InputError, match=r"explainer: 'ceocl' needs rows of data, and privacy.sample 'summary'"):
            mlflow_cf.wrap(MODEL, DATA, target=1, explainer=CEOCL(manifold="hull"), privacy={"sample": "summary"})


def test_where_there_is_no_time_the_nearest_rows_are_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those with the wanted label, which meet everything: looking at some of them takes no time."""
    explained = wrapped(manifold="hull")
    monkeypatch.setattr("mlflow_cf.problem.budget.Budget.late", property(lambda _: True))
    (found,) = explained.explain(pd.DataFrame({"x": [1.0], "y": [1.0]}))
    assert found.status == "found"
    row = found.counterfactuals[0].row
    assert ((DATA.to_numpy() == [row["x"], row["y"]]).all(axis=1) & (LABELS == 1)).any()


def test_awful_scales_change_nothing() -> None:
    """Nor do they where one number follows the other: y = 1 + (x - 1) here, in units of 1e-9 and 1e9."""
    units = pd.Series({"x": 1e9, "y": 1e-9})
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e4)).fit(DATA * units, LABELS)
    explained = mlflow_cf.wrap(
        model,
        DATA * units,
        LABELS,
        target=1,
        values="continuous",
        distance=(0.0, 1.0, 0.0),
        features={name: {"kind": "real"} for name in ("x", "y")},
        explainer=CEOCL(manifold="hull"),
    )
    (free,) = explained.explain(POOR * units)
    row = pd.DataFrame([free.counterfactuals[0].row]) / units
    assert row.to_numpy().sum() == pytest.approx(6.0, abs=1e-3)
    causal = {"causal": [{"child": "y", "parents": ["x"], "coefficients": {"x": 1e-18}}]}
    (held,) = explained.explain(POOR * units, constraints=causal)
    row = pd.DataFrame([held.counterfactuals[0].row]) / units
    assert row.to_numpy()[0] == pytest.approx([3.0, 3.0], abs=1e-3)
    assert held.counterfactuals[0].proof == "optimal"


def test_what_was_learned_comes_back(tmp_path: Path) -> None:
    options: dict[str, Any] = {"target": 1, "explainer": CEOCL(manifold="hull", clusters=2)}
    mlflow_cf.save_model(MODEL, tmp_path / "model", DATA, LABELS, **options)
    loaded, fresh = mlflow_cf.load_model(tmp_path / "model"), mlflow_cf.wrap(MODEL, DATA, LABELS, **options)
    assert loaded.learned is not None
    assert fresh.learned is not None
    for name, array in fresh.learned.arrays.items():
        assert (loaded.learned.arrays[name].dtype, loaded.learned.arrays[name].tobytes()) == (
            array.dtype,
            array.tobytes(),
        )
    pd.testing.assert_frame_equal(loaded.explain(POOR).to_records(), fresh.explain(POOR).to_records())


@pytest.mark.parametrize(
    "other", [{"rows": np.zeros(16)}, {"rows": np.zeros(3, dtype=int)}, {"hulls": np.zeros(2)}, {"fill": np.zeros(3)}]
)
def test_what_is_no_region_is_refused(other: dict[str, Any]) -> None:
    learned = wrapped().learned
    assert learned is not None
    with pytest.raises(ValueError, match="what is no region"):
        CEOCL().bound(Learned({**learned.arrays, **other}))
    with pytest.raises(KeyError):
        CEOCL().bound(Learned({}))
