"""FACE: its graph, its ways under rules against a plain search for them, its plans, and bad input."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import Checker
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist
from worlds import ORDERS, background, constraint_dicts, explained, lottery, row_dicts, table, wide_rows

import mlflow_cf
from mlflow_cf import FACE, InputError
from mlflow_cf.explainers.baselines import face as neighbour_graph
from mlflow_cf.explainers.baselines.face import NeighbourGraph
from mlflow_cf.features import UNIT_MISMATCH, Embedding
from mlflow_cf.stepwise import finished

# a path of rows from 0 to 10, one row far off, and a second path over rows with another job
LINE = pd.DataFrame({"a": [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], "job": ["u"] * 5 + ["v"]})


def rich(rows: pd.DataFrame) -> np.ndarray:
    return (rows["a"] >= 7).to_numpy().astype(int)


def wrapped(frame: pd.DataFrame = LINE, explainer: Any = "face", **options: Any) -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(rich, frame, output="label", target=1, explainer=explainer, **options)


def first(loan: mlflow_cf.ExplainedModel, **asked: Any) -> mlflow_cf.Explanation:
    return loan.explain(LINE.iloc[:1], **asked)[0]


def test_the_way_by_hand() -> None:
    """Steps of 0.2 of the range: over 2, 4 and 6 to 8, which costs 0.8."""
    found = first(wrapped(explainer=FACE(graph="epsilon", radius=0.25)))
    (answer,) = found.counterfactuals
    assert [step.row["a"] for step in answer.plan] == [2, 4, 6, 8]
    assert [step.effort for step in answer.plan] == pytest.approx([0.2] * 4)
    assert {(step.discount, step.action) for step in answer.plan} == {(1.0, "become as a similar row")}
    assert found.diagnostics["costs"] == pytest.approx([0.8])
    assert (answer.row["a"], answer.row["job"]) == (8, "u")


def test_without_neighbours_it_fails() -> None:
    assert first(wrapped(explainer=FACE(graph="epsilon", radius=0.1))).status == "not_found"
    far = LINE.iloc[:1].assign(a=-9.0)
    loan = wrapped(explainer=FACE(graph="epsilon"))
    assert loan.explain(far)[0].status == "not_found"


def test_steps_may_not_go_back_though_the_end_might() -> None:
    """From 4 the only way to 9 leads over 3, which is forbidden once a may only rise."""
    frame = pd.DataFrame({"a": [4.0, 3.0, 9.0, 0.0, 10.0], "b": [0.0, 0.2, 0.4, 1.0, 1.0]})
    query = frame.iloc[:1]

    def up(rows: pd.DataFrame) -> np.ndarray:
        return ((rows["a"] >= 7) & (rows["b"] < 0.9)).to_numpy().astype(int)

    explainer = FACE(graph="epsilon", radius=0.65)
    free, rising = (
        mlflow_cf.wrap(up, frame, output="label", target=1, explainer=explainer, constraints=constraints)
        for constraints in ({}, {"increasing": ["a"]})
    )
    (answer,) = free.explain(query)[0].counterfactuals
    expected = [[3.0, 9.0], [9.0]][int(np.hypot(0.5, 0.4) <= 0.65)]
    assert [step.row["a"] for step in answer.plan] == expected
    assert bool(rising.explain(query)[0].counterfactuals) == (len(expected) == 1)


def test_a_request_may_add_rules() -> None:
    loan = wrapped(explainer=FACE(graph="epsilon"))
    assert first(loan).status == "found"
    assert first(loan, constraints={"relative": {"a": {"up": 1}}}).status in ("not_found", "infeasible")
    assert first(loan, constraints={"ranges": {"a": [None, 5]}}).status in ("not_found", "infeasible")
    assert first(loan, constraints={"rules": ["IF x_cf.a > x.a THEN x_cf.a <= 9"]}).status == "found"


def test_nearest_is_another_order() -> None:
    """CARLA's choice: what is nearest as the crow flies, though the way to it costs more."""
    frame = pd.DataFrame({"a": [0.0, 0.3, 0.6, 0.8, 1.0, 0.0], "b": [0.0, 0.0, 0.0, 0.3, 0.5, 1.0]})

    def good(rows: pd.DataFrame) -> np.ndarray:
        return (rows["b"] > 0.2).to_numpy().astype(int)

    answers = {}
    for choice in ("cheapest", "nearest"):
        loan = mlflow_cf.wrap(good, frame, output="label", target=1, explainer=FACE(k=2, choice=choice))
        found = loan.explain(frame.iloc[:1], count=3)[0]
        costs = found.diagnostics["costs"]
        assert costs == sorted(costs)
        answers[choice] = costs[0]
    assert answers["nearest"] <= answers["cheapest"]


@dear(3)
@given(
    st.integers(0, 50),
    wide_rows,
    constraint_dicts,
    st.sampled_from([FACE(k=2), FACE(k=5), FACE(graph="epsilon", radius=1.1), FACE(k=3, density=True)]),
)
def test_the_answer_is_at_the_end_of_the_shortest_way(
    seed: int, row: dict[str, Any], constraints: dict[str, Any], explainer: FACE
) -> None:
    """Against scipy's shortest ways over a matrix whose every edge a second, slow checker has allowed."""
    frame, model = background(seed), lottery(seed, share=0.3)
    query = table([row], frame)
    try:
        loan = explained(model, frame, constraints, explainer=explainer)
    except InputError:
        return
    (found,) = loan.explain(query, count=2)
    cost = _slowly(loan, model, frame, query, constraints, explainer)
    if found.status == "already":
        return
    assert bool(found.counterfactuals) == bool(np.isfinite(cost))
    if found.counterfactuals:
        assert found.diagnostics["costs"][0] == pytest.approx(cost, abs=1e-9)
        for answer, costs in zip(found.counterfactuals, found.diagnostics["costs"], strict=True):
            assert sum(step.effort for step in answer.plan) == pytest.approx(costs)


def _slowly(
    loan: Any, model: Any, frame: pd.DataFrame, query: pd.DataFrame, constraints: dict[str, Any], explainer: FACE
) -> float:
    """Return what the cheapest way to an answer costs, inf without one; the row to explain comes last."""
    checker = Checker(model.decide, frame, (constraints,), "yes", ORDERS, "observed")
    space = loan.bound_policy.space.covering(query)
    codes = loan.bound_policy.background
    _, places = np.unique(np.nan_to_num(codes, nan=99), axis=0, return_index=True)
    some = frame.iloc[np.sort(places)]
    rows = [*row_dicts(some), *row_dicts(query)]
    embedding = Embedding.fit(loan.bound_policy.space, codes, level_weight=UNIT_MISMATCH)
    own = Embedding.from_arrays(space, embedding.to_arrays()).vectors(space.encode(query))
    points = np.concatenate([embedding.vectors(codes[np.sort(places)]), own])
    length = cdist(points, points)
    n = len(some)
    near = np.zeros(length.shape, dtype=bool)
    among = length[:n, :n] + np.diag(np.full(n, np.inf))
    for one in range(n + 1):
        line = among[one] if one < n else np.where(length[n, :n] > 0, length[n, :n], np.inf)
        known = np.sort(line[np.isfinite(line)])
        limit = explainer.radius if explainer.graph == "epsilon" else known[min(explainer.k, len(known)) - 1]
        near[one] |= length[one] <= limit
        near[:, one] |= length[one] <= limit
    graph = NeighbourGraph.from_arrays(loan.bound_policy.space, loan.learned.arrays)
    matrix = np.full((n + 1, n + 1), np.inf)
    for start in range(n + 1):
        for end in range(n):
            if start != end and near[start, end] and checker.accepts(rows[start], rows[end]):
                matrix[start, end] = max(length[start, end], 1e-300) * (
                    _rarity(graph, (points[start] + points[end]) / 2) if explainer.density else 1.0
                )
    cost = dijkstra(np.where(np.isinf(matrix), 0, np.maximum(matrix, 1e-300)), indices=n)[:n]
    good = [not checker.faults(rows[n], rows[end]) for end in range(n)]
    return float(np.min(cost[good], initial=np.inf))


def _rarity(graph: NeighbourGraph, middle: np.ndarray) -> float:
    def density(point: np.ndarray) -> float:
        squares = ((graph.points - point) ** 2).sum(axis=1)
        return float(np.exp(-squares / (2 * graph.width**2)).mean())

    peak = max(density(point) for point in graph.points)
    return float(-np.log(np.clip(density(middle) / peak, 1e-12, 1.0)))


class TestGraph:
    def test_an_edge_is_one_if_either_is_among_the_others_nearest(self) -> None:
        frame = pd.DataFrame({"a": [0.0, 1.0, 3.0, 10.0]})
        bound_policy = wrapped(frame).bound_policy
        graph = finished(NeighbourGraph.fitted(bound_policy.space, bound_policy.background, FACE(k=1), 0))
        edges = set(zip(graph.starts.tolist(), graph.ends.tolist(), strict=True))
        assert edges == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}

    def test_large_backgrounds_are_drawn_from(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(neighbour_graph, "MOST_ROWS", 20)
        frame = pd.DataFrame({"a": np.arange(100.0) % 60})
        bound_policy = wrapped(frame).bound_policy
        fitted = partial(NeighbourGraph.fitted, bound_policy.space, bound_policy.background, FACE(k=3))
        one, again, other = (finished(fitted(seed)) for seed in (0, 0, 1))
        assert len(set(one.rows.tolist())) == 20
        assert (one.rows == again.rows).all()
        assert one.rows.tolist() != other.rows.tolist()

    def test_nothing_is_learned_by_a_request(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        frame = pd.DataFrame({"a": np.arange(12.0), "b": [0.0, 1.0] * 6})
        mlflow_cf.save_model(
            rich,
            tmp_path / "m",
            frame,
            output="label",
            target=1,
            explainer="face",
            allow_functions=True,
            validate="here",
        )
        expected = wrapped(frame).explain(frame.iloc[:3])

        def never(*_: Any, **__: Any) -> None:
            raise AssertionError

        monkeypatch.setattr(NeighbourGraph, "fitted", never)
        monkeypatch.setattr(Embedding, "fit", never)
        loan = mlflow_cf.load_model(tmp_path / "m")
        assert [one.to_dict() for one in loan.explain(frame.iloc[:3])] == [one.to_dict() for one in expected]

    def test_what_is_no_graph_is_refused(self) -> None:
        learned = wrapped().learned
        assert learned is not None
        for name in ("rows", "first", "ends", "weights", "peak"):
            arrays = {key: value for key, value in learned.arrays.items() if key != name}
            with pytest.raises(KeyError):
                neighbour_graph.check_arrays(arrays)
            with pytest.raises(ValueError, match="no graph"):
                neighbour_graph.check_arrays({**arrays, name: np.zeros((3, 3))})


@pytest.mark.parametrize("explainer", [FACE(), FACE(graph="epsilon", radius=3), FACE(density=True), FACE(k=1)], ids=str)
@pytest.mark.parametrize(
    "frame",
    [
        LINE.iloc[[0, 5]],
        LINE.assign(constant=1.0, level="x"),
        pd.concat([LINE, LINE]),
        pd.DataFrame({"a": [0.0, np.nan, 9.0, np.nan], "job": ["u", "v", None, "u"]}),
    ],
    ids=["two", "constants", "twice", "missing"],
)
def test_small_and_odd_backgrounds(frame: pd.DataFrame, explainer: FACE) -> None:
    loan = wrapped(frame.reset_index(drop=True), explainer)
    row = frame.iloc[:1].assign(a=1.0)
    for query in (row, row.assign(constant=2.0) if "constant" in row else row):
        found = loan.explain(query)[0]
        assert found.status in ("found", "not_found", "infeasible"), found.reason


def test_constants_of_the_row_are_kept_and_scored_within_the_budget() -> None:
    frame = LINE.assign(constant=1.0)
    seen: list[int] = []

    def decide(rows: pd.DataFrame) -> np.ndarray:
        seen.append(len(rows))
        return ((rows["a"] >= 7) & (rows["constant"] < 9)).to_numpy().astype(int)

    loan = mlflow_cf.wrap(decide, frame, output="label", target=1, explainer=FACE(graph="epsilon"))
    answers = [loan.explain(LINE.iloc[:1].assign(constant=number))[0] for number in (1.0, 2.0, 9.0)]
    assert [bool(answer.counterfactuals) for answer in answers] == [True, True, False]
    assert [answer.counterfactuals[0].row["constant"] for answer in answers[:2]] == [1.0, 2.0]
    seen.clear()
    found = loan.explain(LINE.iloc[:1].assign(constant=2.0), max_evaluations=3)[0]
    assert sum(seen) - 1 <= found.evaluations <= 3


def test_only_likely_and_dense_rows_count() -> None:
    frame = pd.DataFrame({"a": [*np.linspace(0, 6, 30), *np.linspace(7.1, 8, 10), 10.0]})

    def score(rows: pd.DataFrame) -> np.ndarray:
        return (rows["a"] / 14).to_numpy()

    def asked(**options: Any) -> Any:
        loan = mlflow_cf.wrap(score, frame, output="score", target=1, explainer=FACE(graph="epsilon", **options))
        return loan.explain(frame.iloc[:1])[0].counterfactuals

    assert asked()[0].row["a"] == 7.1
    assert asked(tp=0.6)[0].row["a"] == 10
    assert not asked(tp=0.6, td=0.9)


@pytest.mark.parametrize(
    ("option", "value"),
    [("k", 0), ("k", 2.0), ("radius", 0), ("tp", 2), ("td", "x"), ("graph", "tree"), ("choice", "any")],
)
def test_options_that_are_refused(option: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"explainer\.{option}: "):
        FACE(**{option: value})


def test_requests_need_leave_to_see_rows() -> None:
    asked = {"counterfactual": {"explainer": "face"}}
    query = LINE.iloc[:1]
    with pytest.raises(InputError, match="explainer: 'face' does not answer requests"):
        wrapped(explainer="geco").predict(query, asked)
    with pytest.raises(InputError, match="needs rows of data"):
        wrapped(privacy={"sample": "summary"})
    shown = wrapped(explainer="geco", privacy={"sample": "shown"})
    assert shown.predict(query, asked)["status"].tolist() == ["found"]
