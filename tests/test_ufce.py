"""UFCE: walks, intervals, pairs, predictors, neighbourhoods, plausibility, and what it learns once."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf import InputError, Target
from mlflow_cf.constraints import Constraints
from mlflow_cf.explainers import UFCE
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.explainers.ufce import predictors as module
from mlflow_cf.explainers.ufce.lines import Acceptance, SearchLines, singles, walk
from mlflow_cf.explainers.ufce.predictors import Predictors, counted, fit_predictors, mutual_information
from mlflow_cf.explainers.ufce.subspaces import Subspaces, interval
from mlflow_cf.features import Embedding, FeatureSpace
from mlflow_cf.goal import Rating
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Budget, Problem
from mlflow_cf.stepwise import finished
from mlflow_cf.wrapping import assemble

INCOMES = pd.DataFrame({"income": range(91), "age": [20, 30, 40] * 30 + [20]})


@dataclass
class Watched:
    """Rates rows by a function of their codes, and keeps the incomes it was shown."""

    favourable: Callable[[np.ndarray], np.ndarray]

    def __post_init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, Z):
        self.seen += Z[:, 0].tolist()
        flags = self.favourable(Z)
        return Rating(flags, flags.astype(float))


def problem_of(favourable, ranges) -> Problem:
    space = FeatureSpace.infer(INCOMES)
    constraints = Constraints.read({"ranges": ranges, "immutable": ["age"]})
    bound_policy = BoundPolicy.build(space, space.encode(INCOMES), constraints, Distance(), "observed")
    return bound_policy.bind(
        np.array([40.0, 30.0]), space=space, count=1, rate=Watched(favourable), rate_background=lambda: None
    )


def walked(favourable, ranges) -> tuple[list[float], list[float]]:
    problem = problem_of(favourable, ranges)
    subspaces = Subspaces.of(problem, problem.background[:0])
    embedding = Embedding.fit(problem.space, problem.background, scale="deviation")
    predictors = Predictors(
        problem, embedding, *finished(fit_predictors(embedding, problem.background)), subspaces.ends
    )
    found = walk(Acceptance(problem, Budget(1_000), 1), SearchLines(problem, predictors, singles(subspaces)))
    return problem.rows(found.codes)[:, 0].tolist(), problem.rate.seen


class TestWalk:
    def test_it_halves_what_is_left(self) -> None:
        assert walked(lambda Z: Z[:, 0] >= 57, {"income": [40, 90]}) == ([57], [65, 52, 58, 55, 56, 57])

    def test_downwards_it_does_the_same(self) -> None:
        assert walked(lambda Z: Z[:, 0] <= 33, {"income": [25, 40]}) == ([33], [32, 36, 34, 33])

    @pytest.mark.parametrize("threshold", range(41, 91))
    def test_it_misses_no_threshold(self, threshold) -> None:
        assert walked(lambda Z: Z[:, 0] >= threshold, {"income": [40, 90]})[0] == [threshold]

    def test_where_it_records_nothing_the_nearest_come_first(self) -> None:
        assert walked(lambda Z: Z[:, 0] == 43, {"income": [40, 90]})[0] == [43]


@pytest.mark.parametrize(
    ("limits", "near", "found"),
    [
        ((40, 90), (70, 85), (40, 85)),
        ((40, 60), (70, 85), (40, 60)),
        ((20, 60), (30, 55), (30, 55)),
        ((20, 60), (10, 30), (20, 40)),
    ],
)
def test_intervals_reach_as_far_as_near_rows(limits, near, found) -> None:
    assert interval(limits, near, 40) == found


class TestInformation:
    def test_of_levels(self) -> None:
        bits, others = np.array([0, 1] * 50), np.array([0, 0, 1, 1] * 25)
        assert counted(bits, bits) == pytest.approx(np.log(2))
        assert counted(bits, others) == pytest.approx(0)

    def test_of_all_features(self) -> None:
        rng = np.random.default_rng(0)
        a = rng.normal(size=400)
        frame = pd.DataFrame({"a": a, "b": a + 0.1, "c": rng.normal(size=400), "d": np.where(a > 0, "u", "v"), "e": 1})
        space = FeatureSpace.infer(frame)
        told = finished(mutual_information(space, space.encode(frame), 0))
        assert (told == told.T).all()
        assert not told[4].any()
        assert told[0, 1] > told[0, 3] > 0.5 > told[0, 2] + 0.4
        assert (told == finished(mutual_information(space, space.encode(frame), 0))).all()


def rows_of(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    income = rng.integers(10, 100, n)
    return pd.DataFrame(
        {
            "income": income,
            "spending": (income // 10 + rng.integers(0, 4, n)).astype(float),
            "family": rng.integers(1, 5, n),
            "job": rng.choice(["a", "b", "c"], n),
            "account": rng.random(n) < 0.4,
        }
    )


FRAME = rows_of(400)


def score(rows: pd.DataFrame) -> np.ndarray:
    return (
        rows["income"].to_numpy() / 20
        + rows["spending"].to_numpy() / 4
        + 1.0 * rows["account"].to_numpy(dtype=bool)
        + (rows["job"] == "c").to_numpy()
    )


def wrapped(explainer: Any = "ufce", decide: Any = None, labels: Any = None, **options: Any):
    model = OpenModel("test", ("no", "yes"), decide or (lambda rows: np.where(score(rows) >= 6, "yes", "no")))
    return assemble(
        model, FRAME, labels, WrapOptions(**{"target": "yes", "explainer": explainer, "seed": 0, **options})
    )


REJECTED = FRAME[score(FRAME) < 5].iloc[:12]


class TestAnswers:
    @pytest.mark.parametrize("search", ["walk", "scan"])
    @pytest.mark.parametrize("changes", [1, 2, 3])
    def test_no_more_groups_change_than_asked_for(self, changes, search) -> None:
        answers = wrapped(UFCE(changes=changes, search=search)).explain(REJECTED, count=2)
        assert any(answer.status == "found" for answer in answers)
        assert all(cf.n_changed <= changes for answer in answers for cf in answer.counterfactuals)

    @pytest.mark.parametrize("changes", [1, 2, 3, "all"])
    def test_feedback_is_kept(self, changes) -> None:
        relative = {"income": {"up": 20, "down": 0}, "spending": {"up": 2, "down": 0}, "family": {"up": 0, "down": 0}}
        for answer, (_, row) in zip(
            wrapped(UFCE(changes=changes)).explain(REJECTED, constraints={"relative": relative}),
            REJECTED.iterrows(),
            strict=True,
        ):
            for cf in answer.counterfactuals:
                assert 0 <= cf.row["income"] - row["income"] <= 20
                assert 0 <= cf.row["spending"] - row["spending"] <= 2
                assert cf.row["family"] == row["family"]

    def test_triples_beside_values_of_two_groups_are_an_option(self) -> None:
        asked: dict[bool, list[int]] = {}
        relative = {"income": {"up": 8, "down": 0}, "spending": {"up": 1, "down": 0}}
        for nested in (True, False):
            explainer = UFCE(changes=3, nested_triples=nested)
            answers = wrapped(explainer).explain(REJECTED, constraints={"relative": relative})
            asked[nested] = [answer.diagnostics["tried"]["3"]["evaluations"] for answer in answers]
        assert all(one >= other for one, other in zip(asked[True], asked[False], strict=True))
        assert sum(asked[True]) > sum(asked[False])

    def test_scans_are_no_farther_than_walks(self) -> None:
        near = {}
        for search in ("walk", "scan"):
            answers = wrapped(UFCE(changes=1, search=search, plausibility="off")).explain(REJECTED)
            near[search] = np.array([a.counterfactuals[0].distance if a.counterfactuals else np.inf for a in answers])
        assert (near["scan"] <= near["walk"] + 1e-12).all()

    def test_answers_are_plausible(self) -> None:
        explained = wrapped(UFCE(polish=False))
        inliers = module.Inliers.fit(explained.space, explained.space.encode(FRAME))
        found = [cf.row for answer in explained.explain(REJECTED, count=3) for cf in answer.counterfactuals]
        assert found
        assert inliers.accept(explained.space.encode(pd.DataFrame(found)[list(FRAME)].astype(FRAME.dtypes))).all()

    def test_other_labels_and_regression(self) -> None:
        three = OpenModel(
            "test", ("a", "b", "c"), lambda rows: np.array(["a", "b", "c"])[np.digitize(score(rows), [4, 6])]
        )
        for target in ("b", Target.other()):
            answers = assemble(three, FRAME, None, WrapOptions(target=target, explainer="ufce")).explain(FRAME[:20])
            assert {answer.status for answer in answers} <= {"found", "already"}
        value = mlflow_cf.wrap(score, FRAME, target=Target(low=5, high=6), explainer="ufce", output="value")
        (answer,) = value.explain(REJECTED[:1])
        assert 5 <= answer.counterfactuals[0].prediction <= 6

    def test_both_directions(self) -> None:
        down = wrapped(UFCE(changes=1), lambda rows: np.where(score(rows) <= 5, "yes", "no"))
        (answer,) = down.explain(FRAME[(score(FRAME) > 5.4) & (score(FRAME) < 5.8)].iloc[:1])
        (change,) = answer.counterfactuals[0].changes
        assert change.new < change.old if change.feature in ("income", "spending") else change.old != change.new

    def test_the_papers_order_is_kept(self) -> None:
        for answer in wrapped(UFCE(ranking="paper")).explain(REJECTED, count=3):
            costs = answer.diagnostics.get("costs", [])
            assert min(costs, default=0.0) == (costs or [0.0])[0]  # the next ones first change something else

    def test_groups_are_one_change(self) -> None:
        grouped = wrapped(UFCE(changes=2), constraints={"groups": [["job", "account"]], "immutable": ["family"]})
        known = set(zip(FRAME["job"], FRAME["account"], strict=True))
        answers = grouped.explain(REJECTED)
        assert any(answer.counterfactuals for answer in answers)
        assert {(cf.row["job"], cf.row["account"]) for answer in answers for cf in answer.counterfactuals} <= known

    def test_continuous_numbers_move_by_steps(self) -> None:
        frame = FRAME.assign(spending=FRAME["spending"] + np.linspace(0, 0.9, len(FRAME)))
        model = OpenModel("test", ("no", "yes"), lambda rows: np.where(rows["spending"] >= 7.7, "yes", "no"))
        options = WrapOptions(target="yes", explainer=UFCE(steps={"spending": 0.25}), values="continuous")
        row = frame[frame["spending"] < 6].iloc[:1]
        (answer,) = assemble(model, frame, None, options).explain(row)
        assert answer.counterfactuals[0].row["spending"] - 7.7 <= 0.25

    def test_rules_over_several_features(self) -> None:
        rules = ["IF x_cf.income > x.income THEN x_cf.spending >= x.spending + 1"]
        for answer in wrapped(constraints={"rules": rules}).explain(REJECTED):
            for cf in answer.counterfactuals:
                moved = {change.feature: change for change in cf.changes}
                if "income" in moved and moved["income"].new > moved["income"].old:
                    assert moved["spending"].new >= moved["spending"].old + 1


ODD = np.arange(len(FRAME)) % 2 == 1
LETTERS = FRAME["job"].astype(object)


class TestOddInput:
    @pytest.mark.parametrize(
        "more",
        [
            {"z": None},
            {"z": [f"id{row}" for row in range(len(FRAME))]},
            {"z": pd.Categorical([None] * len(FRAME), categories=["p", "q"]), "q": LETTERS},
            {"p": np.nan, "q": LETTERS.where(FRAME["family"] > 1, None)},
            {"p": FRAME["spending"].where(ODD), "q": LETTERS.where(~ODD, None)},
        ],
        ids=["no text at all", "names", "no level at all", "no number at all", "one or the other"],
    )
    @pytest.mark.parametrize("options", [{"explainer": "ufce"}, {"plausible": "lof"}], ids=str)
    def test_columns_may_be_missing_or_never_repeat(self, more, options) -> None:
        frame = FRAME.assign(**more)
        model = OpenModel("test", ("no", "yes"), lambda rows: np.where(score(rows) >= 6, "yes", "no"))
        explained = assemble(model, frame, None, WrapOptions(**{"target": "yes", **options}))
        assert all(answer.counterfactuals for answer in explained.explain(frame.loc[REJECTED.index]))

    def test_levels_are_predicted_from_the_rows_that_have_one(self) -> None:
        frame = pd.DataFrame({"p": np.nan, "a": np.arange(60.0), "q": ["u"] * 20 + ["v"] * 20 + [None] * 20})
        space = FeatureSpace.infer(frame)
        embedding = Embedding.fit(space, space.encode(frame), scale="deviation")
        weights, intercepts = finished(fit_predictors(embedding, space.encode(frame)))
        odds = (embedding.vectors(space.encode(frame)) @ weights + intercepts)[:, embedding.blocks[2]]
        assert (odds.argmax(axis=1)[:40] == np.repeat([0, 1], 20)).mean() > 0.9

    @pytest.mark.parametrize(
        "constraints",
        [
            {"ranges": {"income": [500, 900]}},
            {"ranges": {"income": [95, 99]}},
            {"immutable": ["income"], "relative": {"income": {"up": 5, "down": 0}}},
            {"immutable": list(FRAME)},
        ],
        ids=str,
    )
    def test_limits_that_leave_little_are_no_crash(self, constraints) -> None:
        explained = wrapped()
        answers = explained.explain(REJECTED[:3], constraints=constraints)
        assert {answer.status for answer in answers} <= {"found", "not_found", "infeasible"}

    def test_few_favourable_rows_constants_and_rare_labels(self) -> None:
        frame = FRAME.iloc[:60].assign(same=1, rare=["x", "x", *["y"] * 58])
        model = OpenModel("test", ("no", "yes"), lambda rows: np.where(score(rows) >= 8, "yes", "no"))
        assert 0 < (score(frame) >= 8).sum() < 10
        explained = assemble(model, frame, None, WrapOptions(target="yes", explainer="ufce"))
        answers = explained.explain(frame[score(frame) < 5].iloc[:5])
        assert {answer.status for answer in answers} <= {"found", "not_found"}

    def test_no_favourable_row(self) -> None:
        answers = wrapped(decide=lambda rows: np.where(score(rows) >= 99, "yes", "no")).explain(REJECTED[:2])
        assert all(answer.status in ("not_found", "infeasible") for answer in answers)

    def test_missing_values(self) -> None:
        frame = FRAME.assign(spending=FRAME["spending"].where(np.arange(len(FRAME)) % 7 > 0))
        model = OpenModel("test", ("no", "yes"), lambda rows: np.where(rows["spending"] >= 6, "yes", "no"))
        row = frame[frame["spending"].isna()].iloc[:1]
        (answer,) = assemble(model, frame, None, WrapOptions(target="yes", explainer="ufce")).explain(row)
        assert answer.counterfactuals[0].row["spending"] >= 6

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"changes": 4}, "explainer.changes: 4 is unknown; use one of 1, 2, 3, all"),
            ({"changes": True}, "explainer.changes: True is unknown"),
            ({"search": "run"}, "explainer.search: 'run' is unknown"),
            ({"pairs": 0}, "explainer.pairs: 0 is no whole number from 1 to 100"),
            ({"radius": -1.0}, "explainer.radius: -1.0 is no number from 1e-06 to 1e+06"),
            ({"steps": {"income": 0}}, "explainer.steps.income: 0 is no number from 1e-300 to 1e+150"),
        ],
        ids=str,
    )
    def test_options_are_checked(self, options, text) -> None:
        with pytest.raises(InputError) as caught:
            UFCE(**options)
        assert text in str(caught.value)

    def test_steps_of_no_feature(self) -> None:
        with pytest.raises(InputError, match=r"explainer\.steps\.incme: not a feature"):
            wrapped(UFCE(steps={"incme": 1}))

    def test_options_survive_being_written(self) -> None:
        own = UFCE(changes=2, radius=1.5, steps={"income": 5.0})
        assert explainer_of(explainer_to_dict(own)) == own


class TestLearning:
    def test_a_request_fits_nothing_and_neither_does_loading(self, monkeypatch, tmp_path) -> None:
        fits = []

        def counts(name):
            own = getattr(module, name)

            def counting(*args):
                fits.append(name)
                return own(*args)

            return counting

        for name in ("fit_predictors", "mutual_information"):
            monkeypatch.setattr(module, name, counts(name))
        own = module.Inliers.fitted
        monkeypatch.setattr(module.Inliers, "fitted", lambda *args: fits.append("inliers") or own(*args))
        model = LogisticRegression(max_iter=500).fit(FRAME[["income", "spending", "family"]], score(FRAME) >= 6)
        data = FRAME[["income", "spending", "family"]]
        explained = mlflow_cf.wrap(model, data, score(FRAME) >= 6, target=True, explainer=UFCE())
        assert sorted(fits) == ["fit_predictors", "inliers", "mutual_information"]
        before = [answer.to_dict() for answer in explained.explain(data.loc[REJECTED.index], count=2)]
        mlflow_cf.save_model(model, tmp_path / "kept", data, score(FRAME) >= 6, target=True, explainer=UFCE())
        fits.clear()
        loaded = mlflow_cf.load_model(str(tmp_path / "kept"))
        after = [answer.to_dict() for answer in loaded.explain(data.loc[REJECTED.index], count=2)]
        assert after == before
        assert not fits
        assert loaded.explain(data.loc[REJECTED.index[:1]], explainer=UFCE(plausibility="refit"))
        assert fits == ["inliers"]

    @pytest.mark.system
    def test_another_process_answers_bit_for_bit(self, tmp_path) -> None:
        data = FRAME[["income", "spending", "family"]]
        model = LogisticRegression(max_iter=500).fit(data, score(FRAME) >= 6)
        mlflow_cf.save_model(model, tmp_path / "kept", data, score(FRAME) >= 6, target=True, explainer=UFCE())
        rows = data.loc[REJECTED.index]
        own = mlflow_cf.wrap(model, data, score(FRAME) >= 6, target=True, explainer=UFCE()).explain(rows, count=2)
        code = (
            f"import sys; sys.path = {sys.path!r}; import json, test_ufce as t, mlflow_cf; "
            f"rows = t.FRAME[['income', 'spending', 'family']].loc[t.REJECTED.index]; "
            f"found = mlflow_cf.load_model({str(tmp_path / 'kept')!r}).explain(rows, count=2); "
            "print(json.dumps([each.to_dict() for each in found]))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert json.loads(run.stdout) == json.loads(json.dumps([answer.to_dict() for answer in own]))

    def test_predictions_are_those_of_the_models(self) -> None:
        space = FeatureSpace.infer(FRAME)
        background = space.encode(FRAME)
        embedding = Embedding.fit(space, background, scale="deviation")
        weights, intercepts = finished(fit_predictors(embedding, background))
        told = embedding.vectors(background) @ weights + intercepts
        spending = told[:, embedding.blocks[1].start] * embedding.scale[1] + embedding.centre[1]
        assert np.corrcoef(spending, FRAME["spending"])[0, 1] > 0.9
        assert all((weights[block, block] == 0).all() for block in embedding.blocks)
