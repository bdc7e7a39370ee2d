"""Targets end to end: several classes, any other label, least probabilities, intervals, and who decides."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from checker import one_row
from laws import many
from scipy.special import expit
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import OpenModel, Outcome
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.words.result import Explanation
from mlflow_cf.wrapping import assemble

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.integers(0, 11, 200), "b": RNG.integers(0, 11, 200), "c": RNG.normal(size=200).round(1)})
CLASSES = ("red", "green", "blue")


def shares(rows: pd.DataFrame) -> np.ndarray:
    """Three smooth classes: red where both are small, green where a is large, blue where b is."""
    raw = np.exp(np.column_stack([np.full(len(rows), 2.0), rows["a"] * 0.5, rows["b"] * 0.5]))
    return raw / raw.sum(axis=1, keepdims=True)


def three_classes(decide: Callable[[pd.DataFrame], Any] | None = None, **parts: Any) -> OpenModel:
    def likeliest(rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(CLASSES)[shares(rows).argmax(axis=1)]

    return OpenModel("test", CLASSES, decide or likeliest, **({"score": shares, "score_kind": "probability"} | parts))


def row(a: int, b: int, c: float = 0.0) -> pd.DataFrame:
    return pd.DataFrame({"a": [a], "b": [b], "c": [c]})


def explain(explained: ExplainedModel, x: pd.DataFrame, **options: Any) -> Explanation:
    (found,) = explained.explain(x, **options)
    return found


def answers(found: Explanation, frame: pd.DataFrame = FRAME) -> pd.DataFrame:
    assert found.status == "found", found.reason
    return pd.concat([one_row(frame, answer.row) for answer in found.counterfactuals], ignore_index=True)


def wrapped(model: OpenModel, target: Any, **options: Any) -> ExplainedModel:
    return assemble(model, FRAME, None, WrapOptions(target=target, **options))


class TestSeveralClasses:
    @pytest.mark.parametrize("label", CLASSES)
    @pytest.mark.parametrize("start", [(0, 0), (10, 2), (1, 10)])
    def test_a_label_is_reached(self, label: str, start: tuple[int, int]) -> None:
        model = three_classes()
        explained = wrapped(model, label)
        x = row(*start)
        found = explain(explained, x, count=3)
        if model.decide(x)[0] == label:
            assert (found.status, found.counterfactuals) == ("already", ())
            return
        rows = answers(found)
        assert model.decide(rows).tolist() == [label] * len(rows)
        assert [answer.prediction for answer in found.counterfactuals] == [label] * len(rows)
        expected = shares(rows)[:, CLASSES.index(label)]
        assert [answer.probability for answer in found.counterfactuals] == pytest.approx(expected.tolist())
        assert found.prediction == model.decide(x)[0]
        assert found.probability == pytest.approx(shares(x)[0, CLASSES.index(label)])

    def test_a_winner_may_have_less_than_one_half(self) -> None:
        explained = wrapped(three_classes(), "green")
        found = explain(explained, row(0, 4))
        (answer,) = found.counterfactuals
        assert answer.prediction == "green"
        assert answer.probability is not None
        assert answer.probability < 0.5
        more = explain(explained, row(0, 4), target={"label": "green", "min_probability": 0.5}).counterfactuals[0]
        assert more.probability is not None
        assert more.probability >= 0.5
        assert more.distance > answer.distance

    def test_the_nearest_is_found(self) -> None:
        """One change of a that makes green the likeliest: all are known, so the smallest is, too."""
        found = explain(wrapped(three_classes(), "green"), row(0, 0))
        assert found.counterfactuals[0].row == {"a": 5, "b": 0, "c": 0.0}  # exp(2.5) > exp(2)

    def test_grades_of_a_label(self) -> None:
        """exact.md section 5: (1 + p_target - best other) / 2; the labels come from the model."""
        scores = np.array([[0.5, 0.3, 0.2], [0.2, 0.35, 0.45], [0.25, 0.5, 0.25], [0.0, 1.0, 0.0]])
        rating = BoundTarget(Target(label="green"), three_classes()).rate(Outcome(np.array([0, 2, 1, 1]), scores))
        assert rating.grade.tolist() == pytest.approx([0.4, 0.45, 0.625, 1.0])
        assert rating.favourable.tolist() == [False, False, True, True]

    def test_grades_of_any_other_label(self) -> None:
        """(1 + best other - p_current) / 2."""
        scores = np.array([[0.5, 0.3, 0.2], [0.2, 0.35, 0.45], [0.9, 0.1, 0.0]])
        target = BoundTarget(Target.other(), three_classes(), own=0)
        rating = target.rate(Outcome(np.array([0, 2, 0]), scores))
        assert rating.grade.tolist() == pytest.approx([0.4, 0.625, 0.1])
        assert rating.favourable.tolist() == [False, True, False]
        two = OpenModel("test", (0, 1), len, shares, score_kind="probability")
        binary = BoundTarget(Target.other(), two, own=1).rate(
            Outcome(np.array([1, 0]), np.array([[0.3, 0.7], [0.6, 0.4]]))
        )
        assert binary.grade.tolist() == pytest.approx([0.3, 0.6])  # with two classes the probability of the other one

    def test_margins_grade_by_difference(self) -> None:
        """Two columns of a function need not be -m and m; the model decides by the larger one."""
        margins = np.array([[5.0, 1.0], [5.0, 4.9], [-3.0, 4.0], [1.0, 1.0], [-0.5, 0.5]])
        model = OpenModel("test", (0, 1), len, shares, score_kind="margin")
        grade = BoundTarget(Target(label=1), model).rate(Outcome(np.zeros(5, dtype=int), margins)).grade
        assert grade.tolist() == pytest.approx(expit([-2.0, -0.05, 3.5, 0.0, 0.5]).tolist())
        three = OpenModel("test", CLASSES, len, shares, score_kind="margin")
        rated = BoundTarget(Target(label="red"), three).rate(
            Outcome(np.zeros(2, dtype=int), np.array([[0.0, 0.0, 0.0], [800.0, 0.0, -800.0]]))
        )
        assert rated.grade.tolist() == pytest.approx([0.5, 1.0])


class TestAnyOther:
    @pytest.mark.parametrize("start", [(0, 0), (10, 2), (1, 10)])
    def test_the_label_changes(self, start: tuple[int, int]) -> None:
        model = three_classes()
        found = explain(wrapped(model, Target.other()), row(*start), count=4)
        rows = answers(found)
        assert not (model.decide(rows) == model.decide(row(*start))[0]).any()
        assert [answer.prediction for answer in found.counterfactuals] == model.decide(rows).tolist()

    def test_it_never_holds_already(self) -> None:
        found = wrapped(three_classes(), Target.other()).explain(FRAME.head(40))
        assert {answer.status for answer in found} == {"found"}

    def test_over_http(self) -> None:
        reply = wrapped(three_classes(), "red", seal=()).predict(
            row(0, 0), {"counterfactual": {"target": {"other": True}}}
        )
        assert reply["status"].iloc[0] == "found"
        assert reply["counterfactuals"].iloc[0][0]["prediction"] in ("green", "blue")

    def test_a_least_probability_is_that_of_the_label_decided_for(self) -> None:
        explained = wrapped(three_classes(), Target.other(min_probability=0.9))
        found = explain(explained, row(0, 0), count=3)
        for answer, share in zip(found.counterfactuals, shares(answers(found)), strict=True):
            assert share[CLASSES.index(answer.prediction)] >= 0.9

    def test_a_least_probability_where_the_likeliest_label_does_not_win(self) -> None:
        def decide(rows: pd.DataFrame) -> np.ndarray:  # blue only from 0.2 on, whatever the others are
            return np.where(shares(rows)[:, 2] >= 0.2, "blue", np.asarray(CLASSES)[shares(rows).argmax(axis=1)])

        model = three_classes(decide)
        limits = {"ranges": {"a": [7, None], "b": [6, 6]}}
        found = explain(wrapped(model, Target.other(min_probability=0.6), constraints=limits), row(0, 0))
        (answer,) = found.counterfactuals
        # at a = 8 green has 0.67, but the model says blue, which has 0.25
        assert (answer.row["a"], answer.prediction) == (9, "green")

    def test_labels_alone(self) -> None:
        def decide(rows: pd.DataFrame) -> np.ndarray:
            return np.where(rows["a"] > 7, "high", np.where(rows["b"] > 7, "broad", "low"))

        model = OpenModel("test", ("low", "high", "broad"), decide)
        found = explain(wrapped(model, Target.other()), row(9, 9), count=3)
        assert set(decide(answers(found))) <= {"low", "broad"}
        assert found.probability is None
        assert all(answer.probability is None for answer in found.counterfactuals)

    def test_a_label_the_model_never_announced_is_no_answer(self) -> None:
        """It could not be reported: the position among the classes is all there is."""

        def decide(rows: pd.DataFrame) -> np.ndarray:
            return np.where(rows["a"] > 5, "surprise", np.where(rows["b"] > 7, "yes", "no"))

        model = OpenModel("test", ("no", "yes"), decide)
        found = explain(wrapped(model, Target.other()), row(0, 0), count=5)
        assert [answer.prediction for answer in found.counterfactuals] == decide(answers(found)).tolist()
        assert {answer.prediction for answer in found.counterfactuals} == {"yes"}
        surprised = explain(wrapped(model, Target.other()), row(9, 0))
        assert surprised.prediction == "surprise"
        assert surprised.counterfactuals[0].prediction in ("no", "yes")


class TestLeastProbability:
    FRAME: ClassVar = pd.DataFrame({"p": np.arange(0, 101) / 100, "z": [0, 1] * 50 + [0]})

    def model(self, threshold: float = 0.5) -> OpenModel:
        return OpenModel(
            "test",
            ("no", "yes"),
            lambda rows: np.where(rows["p"] > threshold, "yes", "no"),
            lambda rows: np.column_stack([1 - rows["p"], rows["p"]]),
            score_kind="probability",
        )

    def best(self, policy: Any, **options: Any) -> Explanation:
        wide = mlflow_cf.GeCo(m_init=200, m_mut=100)
        policy = WrapOptions(target=policy, distance=(0.0, 1.0, 0.0), explainer=wide)
        return explain(assemble(self.model(), self.FRAME, None, policy), self.FRAME.iloc[[10]], **options)

    @pytest.mark.parametrize("least", [0.51, 0.6, 0.7, 0.75, 0.99, 1, 1.0])
    def test_is_inclusive(self, least: float) -> None:
        assert self.best({"label": "yes", "min_probability": least}).counterfactuals[0].row["p"] == least

    @pytest.mark.parametrize("least", [0, 0.3, 0.5])
    def test_comes_on_top_of_the_decision(self, least: float) -> None:
        assert self.best({"label": "yes", "min_probability": least}).counterfactuals[0].row["p"] == 0.51

    def test_a_request_may_ask_for_more(self) -> None:
        found = self.best({"label": "yes", "min_probability": 0.6}, target={"label": "yes", "min_probability": 0.8})
        assert found.counterfactuals[0].row["p"] == 0.8

    def test_a_request_may_not_ask_for_less(self) -> None:
        with pytest.raises(
            InputError, match=r"target\.min_probability: 0.5 is less than the policy's 0.6; ask for more"
        ):
            self.best({"label": "yes", "min_probability": 0.6}, target={"label": "yes", "min_probability": 0.5})

    @pytest.mark.parametrize("asked", ["yes", {"label": "yes"}, {"other": True}])
    def test_it_is_inherited_by_a_request_that_names_none(self, asked: Any) -> None:
        found = self.best({"label": "yes", "min_probability": 0.6}, target=asked)
        assert found.counterfactuals[0].row["p"] == 0.6

    def test_of_the_other_label_too(self) -> None:
        policy = WrapOptions(target={"label": "yes", "min_probability": 0.9}, distance=(0.0, 1.0, 0.0))
        explained = assemble(self.model(), self.FRAME, None, policy)
        found = explain(explained, pd.DataFrame({"p": [0.7], "z": [0]}), target="no")
        assert found.counterfactuals[0].row["p"] <= 0.1

    def test_the_models_own_threshold_holds_as_well(self) -> None:
        explained = assemble(
            self.model(0.8), self.FRAME, None, WrapOptions(target={"label": "yes", "min_probability": 0.6})
        )
        found = explain(explained, pd.DataFrame({"p": [0.7], "z": [0]}))
        assert found.prediction == "no"
        assert found.counterfactuals[0].row["p"] > 0.8

    def test_a_row_above_the_threshold_is_not_there_already(self) -> None:
        explained = assemble(
            self.model(), self.FRAME, None, WrapOptions(target={"label": "yes", "min_probability": 0.9})
        )
        assert explain(explained, pd.DataFrame({"p": [0.89], "z": [0]})).status == "found"
        assert explain(explained, pd.DataFrame({"p": [0.9], "z": [0]})).status == "already"


class TestRegression:
    FRAME: ClassVar = pd.DataFrame({"a": np.arange(41) * 1.0, "b": np.arange(41)[::-1] * 1.0})

    def explained(self, target: Any, **options: Any) -> ExplainedModel:
        model = OpenModel("test", (), lambda rows: np.asarray(rows["a"] + 1000 * (rows["b"] >= 40)))
        options = {"distance": (0.0, 1.0, 0.0), "explainer": mlflow_cf.GeCo(m_init=100, m_mut=50), **options}
        return assemble(model, self.FRAME, None, WrapOptions(target=target, **options))

    def value(self, target: Any, a: float, b: float = 0.0) -> Any:
        found = explain(self.explained(target), pd.DataFrame({"a": [a], "b": [b]}))
        return found.counterfactuals[0].prediction if found.status == "found" else found.status

    @pytest.mark.parametrize(
        ("target", "a", "expected"),
        [
            ({"low": 30}, 10, 30.0),
            ({"low": 30}, 30, "already"),
            ({"low": 30}, 29, 30.0),
            ({"high": 5}, 10, 5.0),
            ({"high": 5}, 5, "already"),
            ({"low": 20, "high": 25}, 10, 20.0),
            ({"low": 20, "high": 25}, 30, 25.0),
            ({"low": 20, "high": 25}, 25, "already"),
            ({"low": 20, "high": 25}, 20, "already"),
            ({"low": 20, "high": 20}, 30, 20.0),
            (Target(low=20.5, high=21), 30, 21.0),
            ({"low": -5.0, "high": -1}, 30, "not_found"),
            ({"low": 20.25, "high": 20.75}, 30, "not_found"),
        ],
    )
    def test_intervals_are_inclusive_and_may_be_open(self, target: Any, a: float, expected: Any) -> None:
        assert self.value(target, a) == expected

    def test_replies(self) -> None:
        found = explain(self.explained({"low": 30}), pd.DataFrame({"a": [10.0], "b": [0.0]}))
        assert (found.prediction, found.probability) == (10.0, None)
        assert (found.counterfactuals[0].prediction, found.counterfactuals[0].probability) == (30.0, None)

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([4.0, 6.0, 5.0], [1.0, 1.0, 1.0]),  # inside, ends included
            ([3.0, 7.0, 2.0], [0.45, 0.45, 0.4]),  # (1 - gap / 10) / 2
            ([-6.0, 16.0, -7.0], [0.0, 0.0, 0.0]),  # a gap of the spread or more
            ([3.999, 6.001], [0.49995, 0.49995]),
            ([np.nan, np.inf, -np.inf], [0.0, 0.0, 0.0]),
        ],
        ids=str,
    )
    def test_grades(self, values: list[float], expected: list[float]) -> None:
        """exact.md section 5: inside 1, else max(0, (1 - gap / range) / 2)."""
        target = BoundTarget(Target(low=4, high=6), OpenModel("test", (), len), spread=10.0)
        rating = target.rate(Outcome(np.full(len(values), -1), None, np.array(values)))
        assert rating.grade.tolist() == pytest.approx(expected)
        assert rating.favourable.tolist() == [grade == 1 for grade in expected]

    def test_open_ends_grade_from_one_side(self) -> None:
        model = OpenModel("test", (), len)
        values = Outcome(np.full(3, -1), None, np.array([-99.0, 3.0, 99.0]))
        assert BoundTarget(Target(low=4), model, spread=10.0).rate(values).grade.tolist() == [0.0, 0.45, 1.0]
        assert BoundTarget(Target(high=4), model, spread=10.0).rate(values).grade.tolist() == [1.0, 1.0, 0.0]

    def test_a_request_stays_inside(self) -> None:
        explained = self.explained({"low": 20, "high": 30})
        x = pd.DataFrame({"a": [10.0], "b": [0.0]})
        assert explain(explained, x, target={"low": 25}).counterfactuals[0].prediction == 25.0
        assert explain(explained, x, target={"high": 22}).counterfactuals[0].prediction == 20.0
        for asked in ({"low": 19}, {"high": 31}, {"high": 10}, {"low": 35}, {"low": 22, "high": 40}):
            with pytest.raises(InputError, match=r"target\.\w+: \d+ is outside the policy's \[20, 30\]"):
                explained.explain(x, target=asked)

    @pytest.mark.parametrize(
        "asked",
        [1, {"other": True}, {"label": 3}, {"low": 25, "min_probability": 0.5}, {"low": 29, "high": 21}],
        ids=str,
    )
    def test_what_no_regression_can_be_asked(self, asked: Any) -> None:
        with pytest.raises(InputError, match="target"):
            self.explained({"low": 20}).explain(pd.DataFrame({"a": [10.0], "b": [0.0]}), target=asked)

    def test_a_constant_regression_says_not_found(self) -> None:
        model = OpenModel("test", (), lambda rows: np.zeros(len(rows)))
        found = explain(assemble(model, self.FRAME, None, WrapOptions(target={"low": 1})), self.FRAME.head(1))
        assert found.status == "not_found"

    @pytest.mark.parametrize(
        "model", [LinearRegression(), RandomForestRegressor(10, random_state=0)], ids=lambda m: type(m).__name__
    )
    def test_fitted_ones(self, model: Any) -> None:
        y = FRAME["a"] * 2.0 - FRAME["b"] + FRAME["c"]
        model.fit(FRAME, y)
        low = float(np.quantile(y, 0.7))
        explained = mlflow_cf.wrap(
            model, FRAME, target=Target(low=low, high=low + 4), constraints={"increasing": ["b"]}
        )
        for found, x in zip(explained.explain(FRAME.head(12), count=2), FRAME.head(12).to_dict("records"), strict=True):
            assert found.status in ("found", "already", "not_found")
            for answer in found.counterfactuals:
                (value,) = model.predict(one_row(FRAME, answer.row))
                assert answer.prediction == pytest.approx(value)  # libraries add up a single row in another order
                assert low <= answer.prediction <= low + 4
                assert answer.row["b"] >= x["b"]


class TestWhoDecides:
    """The model's own predict, however it comes to its label."""

    LABELS: ClassVar = np.where(FRAME["a"] + FRAME["b"] + FRAME["c"] > 11, "good", "bad")

    def check(self, model: Any, target: Any = "good", rows: int = 25) -> list[Explanation]:
        explained = mlflow_cf.wrap(model, FRAME, target=target)
        refused = FRAME[model.predict(FRAME) != target].head(rows)
        found = explained.explain(refused, count=2)
        assert {answer.status for answer in found} == {"found"}
        for answer in found:
            assert set(model.predict(answers(answer))) == {target}
        assert {answer.status for answer in explained.explain(FRAME[model.predict(FRAME) == target].head(5))} == {
            "already"
        }
        return found

    @pytest.mark.parametrize("threshold", [0.15, 0.85])
    def test_tuned_thresholds(self, threshold: float) -> None:
        base = make_pipeline(StandardScaler(), LogisticRegression())
        model = FixedThresholdClassifier(base, threshold=threshold, pos_label="good").fit(FRAME, self.LABELS)
        found = self.check(model, rows=many(10, 25))
        nearest = [answer.counterfactuals[0].probability for answer in found]
        assert min(nearest) < 0.5 if threshold < 0.5 else min(nearest) >= 0.85

    def test_a_support_vector_machine_whose_probabilities_disagree(self) -> None:
        frame, labels = FRAME, self.LABELS
        with pytest.warns(FutureWarning, match="probability"):
            model = SVC(probability=True, random_state=0, C=0.1).fit(frame, labels)
        likeliest = model.classes_[model.predict_proba(frame).argmax(axis=1)]
        assert (likeliest != model.predict(frame)).any()  # else this would test nothing
        self.check(model)

    def test_margins(self) -> None:
        self.check(make_pipeline(StandardScaler(), SVC()).fit(FRAME, self.LABELS))

    def test_labels_of_every_type(self) -> None:
        for labels, target in ((self.LABELS == "good", True), (np.where(self.LABELS == "good", 1.5, -1.5), 1.5)):
            model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(
                FRAME, np.asarray(labels).astype(str if target == 1.5 else bool)
            )
            self.check(model, str(target) if target == 1.5 else target, rows=5)

    def test_a_judge_that_leaves_the_likeliest_label_beyond_the_background(self) -> None:
        """On the background the largest score always decides; elsewhere it does not."""
        frame = pd.DataFrame({"a": [0, 1, 2, 3] * 5, "b": [0, 1, 2, 3] * 5})

        def score(rows: pd.DataFrame) -> np.ndarray:
            good = np.clip((rows["a"] + rows["b"]) / 6, 0, 1)
            return np.column_stack([1 - good, good])

        def decide(rows: pd.DataFrame) -> np.ndarray:  # a veto that no background row meets
            vetoed = (rows["a"] - rows["b"]).abs() > 2
            return np.where((score(rows)[:, 1] > 0.5) & ~vetoed, "yes", "no")

        model = OpenModel("test", ("no", "yes"), decide, score, score_kind="probability")
        explained = assemble(model, frame, None, WrapOptions(target="yes"))
        assert explained.describe()["largest_score_decides"]
        (found,) = explained.explain(pd.DataFrame({"a": [1], "b": [0]}), count=5)
        assert found.status == "found"
        assert set(decide(pd.concat([one_row(frame, answer.row) for answer in found.counterfactuals]))) == {"yes"}
