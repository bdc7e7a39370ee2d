"""Candidates written and rated by their changes alone are the same candidates, with the same ratings."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from laws import many
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from worlds import background, constraint_dicts, explained, lottery, problem_of, table, wide_rows
from xgboost import XGBClassifier

import mlflow_cf
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import Candidates, GeCo
from mlflow_cf.explainers.geco.deltas import Deltas, Partial
from mlflow_cf.explainers.geco.draws import Draws
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.wrapping import assemble

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "xgboost": lambda: XGBClassifier(n_estimators=20, max_depth=4, n_jobs=1),
    "histgb": lambda: HistGradientBoostingClassifier(max_iter=20),
    "forest": lambda: RandomForestClassifier(20, max_depth=6, random_state=0),
    "network": lambda: MLPClassifier((12,), tol=0.01, n_iter_no_change=2, random_state=0),
}
CONSTRAINTS = {
    "immutable": ["region"],
    "increasing": ["age", "years"],
    "groups": [["job", "hours"]],
    "rules": ["IF x_cf.years > x.years THEN x_cf.age >= x.age + 2"],
}


def adults(rows: int = 700, more: int = 0) -> pd.DataFrame:
    """Return a table like Adult, with `more` columns of levels, and the labels in its last column."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 75, rows),
            "years": rng.integers(1, 17, rows),
            "hours": rng.choice([20, 30, 40, 40, 40, 50, 60], rows),
            "gain": rng.choice([0, 0, 0, 0, 5000, 15000], rows) + rng.integers(0, 3, rows),
            "income": rng.lognormal(10, 0.4, rows).round(),
            "job": rng.choice(["craft", "office", "sales", "care"], rows),
            "region": rng.choice(["north", "south", "west"], rows),
            **{f"more {number}": rng.choice(list("abcdefgh"), rows) for number in range(more)},
        }
    )
    strength = frame["years"] + frame["hours"] / 8 + frame["gain"] / 2000 + (frame["job"] == "office") * 3
    strength += sum((frame[f"more {number}"] < "c") * 2 for number in range(more))
    return frame.assign(label=(strength + rng.normal(0, 2, rows) > np.quantile(strength, 0.7)).astype(int))


def pipeline(name: str, frame: pd.DataFrame, labels: pd.Series) -> Any:
    levels = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), levels), remainder=StandardScaler()
    )
    return make_pipeline(columns, ESTIMATORS[name]()).fit(frame, labels)


@cache
def opened(name: str, more: int = 0) -> tuple[ExplainedModel, pd.DataFrame]:
    """Return an explained model, and rows it does not favour."""
    frame = adults(more=more)
    labels = frame.pop("label")
    model = pipeline(name, frame, labels)
    found = mlflow_cf.wrap(model, frame, target=1, constraints=CONSTRAINTS)
    return found, frame[model.predict(frame) == 0]


class Captured:
    """An explainer that keeps the problem it is asked and finds nothing."""

    name = "captured"
    polish = False

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def search(self, problem: Problem, *_: object) -> Candidates:
        self.problems.append(problem)
        return Candidates(np.empty((0, len(problem.space))))


@cache
def problem_with(name: str, row: int = 0) -> Problem:
    model, rows = opened(name)
    captured = Captured()
    model.explain(rows.iloc[[row]], explainer=captured)
    (problem,) = captured.problems
    assert problem.scorer is not None
    return problem


def drawn(problem: Problem, rng: np.random.Generator, size: int, sets: int) -> Codes:
    """Return `size` candidates whose changes lie within a few random sets of groups."""
    codes = np.column_stack([rng.integers(len(group.actions), size=size) for group in problem.groups])
    flags = rng.random((sets, len(problem.groups))) < rng.random((sets, 1))
    return np.where(flags[rng.integers(sets, size=size)], codes, problem.own)


class TestDeltas:
    def test_worked_example(self) -> None:
        """GeCo section 5: 9 rows of 4 cells, 11 cells that change."""
        rows = [
            (28, "HS", "Service", 10000), (30, "HS", "Service", 10000), (32, "HS", "Service", 10000),
            (22, "PhD", "Service", 10000), (22, "BSc", "Service", 10000),
            (25, "HS", "Service", 15000), (23, "HS", "Service", 20000),
            (22, "HS", "Sales", 10000), (22, "HS", "Student", 10000),
        ]  # fmt: skip
        frame = pd.DataFrame([(22, "HS", "Service", 10000), *rows], columns=["age", "edu", "occup", "income"])
        model = OpenModel("test", (0, 1), lambda table: (table["age"] > 60).to_numpy().astype(int))
        problem = problem_of(assemble(model, frame, None, WrapOptions()), frame.iloc[[0]])
        deltas, encoded = Deltas(problem), problem.space.encode(frame)[1:]
        codes = np.column_stack(
            [group.actions[:, 0].searchsorted(encoded[:, n]) for n, group in enumerate(problem.groups)]
        )
        assert problem.rows(codes).tolist() == encoded.tolist()
        places = deltas.of(codes)
        assert codes.size == 36
        assert deltas.stored(places) == 11
        assert deltas.changes(places).tolist() == [1, 1, 1, 1, 1, 2, 2, 1, 1]
        run = Draws(problem, Budget(100), np.random.default_rng(0), 9)
        run.select(None, [places])
        told = run.statistics.summary(1, 9)
        assert (told["cells_naive"], told["cells_delta"]) == (36, 11)

    def test_groups_count_all_their_features(self) -> None:
        problem = problem_with("xgboost")
        pair = next(number for number, group in enumerate(problem.groups) if len(group.columns) == 2)
        codes = problem.own[None, :].copy()
        codes[0, pair] = (codes[0, pair] + 1) % len(problem.groups[pair].actions)
        deltas = Deltas(problem)
        assert deltas.stored(deltas.of(codes)) == 2

    @given(seed=st.integers(0, 30), limits=constraint_dicts, row=wide_rows, gamma=st.sampled_from([0.0, 0.4]))
    def test_nothing_is_lost(self, seed: int, limits: dict[str, Any], row: dict[str, Any], gamma: float) -> None:
        frame = background(seed)
        model = explained(lottery(seed), frame, limits, distance=(0.3, 0.7 - gamma, gamma))
        problem = problem_of(model, table([row], frame))
        deltas, rng = Deltas(problem), np.random.default_rng(seed)
        codes = drawn(problem, rng, 60, 9)
        places = deltas.of(codes)
        assert deltas.codes(places).tolist() == codes.tolist()
        assert (np.diff(places, axis=1) >= 0).all()
        assert deltas.changes(places).tolist() == (codes != problem.own).sum(axis=1).tolist()
        assert deltas.distance(places).tolist() == problem.distance(codes).tolist()
        wider = np.column_stack([places, np.full((60, 2), deltas.none)])
        assert deltas.stored(wider) == deltas.stored(places)
        assert deltas.codes(deltas.stacked([wider, places])).tolist() == [*codes.tolist(), *codes.tolist()]

    @given(seed=st.integers(0, 1000))
    def test_changes_are_put_in_and_joined(self, seed: int) -> None:
        problem = problem_with("xgboost")
        deltas, rng = Deltas(problem), np.random.default_rng(seed)
        one, two = drawn(problem, rng, 50, 5), drawn(problem, rng, 50, 5)
        number = int(rng.integers(len(problem.groups)))
        new = rng.integers(len(problem.groups[number].actions), size=50)
        new = np.where(new == problem.own[number], one[:, number], new)  # a change, or as it was
        changes = new != problem.own[number]
        grown = deltas.with_place(deltas.of(one)[changes], deltas.start[number] + new[changes])
        expected = one[changes]
        expected[:, number] = new[changes]
        assert deltas.codes(grown).tolist() == expected.tolist()
        first = deltas.stacked([deltas.of(one), deltas.of(two)])
        lower = rng.random((50, 2 * first.shape[1] - 1)) < 0.5
        joined = deltas.codes(deltas.joined(first[:50], first[50:], lower))
        for child, mine, yours in zip(joined.tolist(), one.tolist(), two.tolist(), strict=True):
            for code, left, right, own in zip(child, mine, yours, problem.own.tolist(), strict=True):
                assert code in ({left, right} - {own} or {own})


class TestRatings:
    @given(
        name=st.sampled_from(sorted(ESTIMATORS)),
        row=st.integers(0, 3),
        seed=st.integers(0, 1000),
        size=st.integers(1, 300),
        sets=st.integers(1, 12),
        least=st.sampled_from([1, 2, 10, 100]),
    )
    def test_restricted_models_rate_like_whole_ones(
        self, name: str, row: int, seed: int, size: int, sets: int, least: int
    ) -> None:
        problem = problem_with(name, row)
        assert problem.scorer is not None
        codes = drawn(problem, np.random.default_rng(seed), size, sets)
        codes = codes[(codes != problem.own).any(axis=1)]
        if not len(codes):
            return
        deltas = Deltas(problem)
        partial = Partial(problem, problem.scorer, deltas)
        partial.least = least
        whole = problem.rate_codes(codes)
        for _ in range(2):  # the second time by the restrictions that were kept
            part = partial.rate(deltas.of(codes))
            if name == "network":
                assert part.grade == pytest.approx(whole.grade, abs=1e-9)
            else:
                assert part.grade.tolist() == whole.grade.tolist()
            assert part.favourable.tolist() == whole.favourable.tolist()

    def test_sets_with_enough_candidates_are_restricted_once(self) -> None:
        problem = problem_with("forest")
        assert problem.scorer is not None
        codes = np.repeat(problem.own[None, :], 80, axis=0)
        first, second = [number for number, group in enumerate(problem.groups) if group.proposals > 1][:2]
        codes[:50, first] = np.resize(np.delete(np.arange(len(problem.groups[first].actions)), problem.own[first]), 50)
        codes[50:, second] = np.resize(
            np.delete(np.arange(len(problem.groups[second].actions)), problem.own[second]), 30
        )
        deltas = Deltas(problem)
        partial = Partial(problem, problem.scorer, deltas)
        partial.least = 40
        partial.rate(deltas.of(codes))
        kept = dict(partial.known)
        assert list(kept) == [(first,)]
        partial.rate(deltas.of(codes[::-1]))
        assert partial.known == kept

    def test_more_changes_than_can_be_numbered(self) -> None:
        problem = problem_with("forest")
        assert problem.scorer is not None
        deltas = Deltas(problem)
        codes = drawn(problem, np.random.default_rng(0), 60, 1)
        codes = codes[(codes != problem.own).any(axis=1)]
        wide = np.column_stack([deltas.of(codes), np.full((len(codes), 64), deltas.none)])
        found = Partial(problem, problem.scorer, deltas).rate(wide)
        assert found.grade.tolist() == problem.rate_codes(codes).grade.tolist()


def answers(model: ExplainedModel, rows: pd.DataFrame, **options: Any) -> list[Any]:
    found = model.explain(rows, count=3, explainer=GeCo(sweep=False, **options))
    return [
        [(answer.row, answer.distance) for answer in one.counterfactuals]
        + [one.status, one.evaluations, one.diagnostics["generations"]]
        for one in found
    ]


class TestSearch:
    @pytest.mark.parametrize(("name", "more"), [*((name, 0) for name in ESTIMATORS), ("forest", 24), ("network", 24)])
    def test_same_answers_with_and_without(self, name: str, more: int) -> None:
        model, rows = opened(name, more)
        rows = rows.iloc[: many(3, 6)]
        part = answers(model, rows)
        assert part == answers(model, rows, partial=False)
        assert any("found" in one for one in part)

    @pytest.mark.parametrize("data", ["adult", "credit"])
    @pytest.mark.parametrize("name", ["xgboost", "network"])
    def test_same_answers_on_published_data(self, name: str, data: str, data_file: Callable[[str], Path]) -> None:
        frame = pd.read_csv(data_file(f"{data}.csv"), nrows=3000)
        frame = frame.drop(columns=[column for column in ("fnlwgt", "education") if column in frame])
        labels = frame.pop(frame.columns[-1])
        model = pipeline(name, frame, labels)
        limits = yaml.safe_load(data_file(f"constraints/{data}.yaml").read_text(encoding="utf-8"))
        wrapped = mlflow_cf.wrap(model, frame, target=1, constraints=limits)
        rows = frame[model.predict(frame) == 0].iloc[: many(2, 4)]
        assert answers(wrapped, rows) == answers(wrapped, rows, partial=False)

    def test_blocks_change_nothing_but_what_is_held(self) -> None:
        """A generation in blocks selects what it would select at once."""
        problem = problem_with("xgboost")
        found = []
        for block in (1, 50, 10**6):
            run = Draws(problem, Budget(10**6), np.random.default_rng(0), 30)
            codes = drawn(problem, np.random.default_rng(1), 200, 6)
            codes = codes[(codes != problem.own).any(axis=1)]
            places = run.deltas.of(codes)
            population = run.select(None, [places[at : at + block] for at in range(0, len(places), block)])
            found.append((population.codes.tolist(), population.score.tolist(), population.fresh.tolist()))
        assert found[0] == found[1] == found[2]

    @pytest.mark.parametrize("sweep", [False, True])
    def test_statistics_are_plain_numbers(self, *, sweep: bool) -> None:
        model, rows = opened("xgboost")
        told = model.explain(rows.iloc[:1], explainer=GeCo(sweep=sweep))[0].diagnostics
        counts = ("generations", "candidates", "cells_naive", "cells_delta")
        clocks = ("sweep_s", "cross_s", "score_s") if sweep else ("mutate_s", "cross_s", "select_s")
        assert [type(told[key]) for key in counts] == [int] * 4
        assert [type(told[key]) for key in clocks] == [float] * 3
        assert 0 < told["cells_delta"] < told["cells_naive"]
        assert told["cells_naive"] == told["candidates"] * rows.shape[1]
        assert 0 < sum(told[key] for key in clocks) < told["seconds"]
