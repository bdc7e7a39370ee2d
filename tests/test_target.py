"""Targets: what is inferred, what is refused, how rows are rated, and what the model itself decides."""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.errors import InputError
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.wrapping import assemble


def model(*classes: Any, kind: str = "probability") -> OpenModel:
    def decide(rows: pd.DataFrame) -> np.ndarray:
        return np.full(len(rows), classes[0] if classes else 0.0)

    def score(rows: pd.DataFrame) -> np.ndarray:
        return np.full((len(rows), len(classes)), 1 / len(classes))

    return OpenModel("test", classes, decide, score if kind != "none" and classes else None, score_kind=kind)


class TestReading:
    @pytest.mark.parametrize(
        ("classes", "label"), [((0, 1), 1), ((1, 0), 1), ((False, True), True), ((0.0, 1.0), 1.0)], ids=str
    )
    def test_favourable_label_of_zeros_and_ones_is_inferred(self, classes: Any, label: Any) -> None:
        target = Target.read(None, model(*classes))
        assert target.label == label
        assert type(target.label) is type(label)

    @pytest.mark.parametrize("classes", [("bad", "good"), (0, 1, 2), (-1, 1), (1, 2), ("0", "1")], ids=str)
    def test_any_other_must_be_named(self, classes: Any) -> None:
        with pytest.raises(InputError, match="target: the favourable label cannot be inferred") as error:
            Target.read(None, model(*classes))
        listed = ", ".join(map(repr, classes))
        assert str(error.value).endswith(f"name the wanted label, target=...; labels: {listed}")

    @pytest.mark.parametrize("source", ["good", {"label": "good"}, Target(label="good"), np.str_("good")], ids=repr)
    def test_sources(self, source: Any) -> None:
        assert Target.read(source, model("bad", "good")) == Target(label="good")

    def test_numpy_labels(self) -> None:
        assert Target.read(np.int64(1), model(0, 1)).label == 1
        assert Target.read(np.bool_(True), model(False, True)).label is True

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("goood", "target.label: the model does not know 'goood'; did you mean 'good'?"),
            ({"label": 7}, "target.label: the model does not know 7; labels: 'bad', 'good'"),
            ({"lable": "good"}, "target.lable: not a known key; did you mean 'label'?"),
            ({"label": ["good"]}, "target.label: must be true or false, a text or a number, got ['good']"),
            (("good", "bad"), "target.label: must be true or false, a text or a number, got ('good', 'bad')"),
            ({"label": float("nan")}, "target.label: "),
            ({}, "target: name one of label, other, or low and high"),
            ({"label": "good", "other": True}, "target: name one of"),
            ({"label": "good", "min_probability": 1.5}, "target.min_probability: input should be less than or equal"),
            ({"label": "good", "min_probability": -0.1}, "target.min_probability: input should be greater than"),
            ({"label": "good", "min_probability": "0.7"}, "target.min_probability: "),
            ({"low": 1}, "target: the model predicts labels, not numbers"),
        ],
        ids=str,
    )
    def test_bad_ones(self, source: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            Target.read(source, model("bad", "good"))
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("classes", "label", "fix"),
        [
            ((0, 1), "1", "it is the number 1, not the text '1'"),
            (("0", "1"), 1, "it is the text '1', not the number 1"),
        ],
    )
    def test_digits_are_no_numbers(self, classes: Any, label: Any, fix: str) -> None:
        with pytest.raises(InputError) as error:
            Target.read(label, model(*classes))
        assert str(error.value) == f"target.label: the model does not know {label!r}; {fix}"

    @pytest.mark.parametrize("kind", ["margin", "none"])
    def test_a_probability_needs_probabilities(self, kind: str) -> None:
        with pytest.raises(InputError, match=r"target\.min_probability: the model gives no probabilities"):
            Target.read({"label": 1, "min_probability": 0.7}, model(0, 1, kind=kind))

    def test_a_dict_again(self) -> None:
        for target in (Target(label="a", min_probability=0.7), Target(label=0), Target(label=False), Target.other()):
            assert Target.model_validate(target.to_dict()) == target


class TestRegression:
    def test_needs_an_interval(self) -> None:
        for source in (None, 1, {"label": 1}, Target.other()):
            with pytest.raises(InputError, match="the model predicts numbers"):
                Target.read(source, model())
        assert Target.read({"low": 5}, model()) == Target(low=5)

    @pytest.mark.parametrize(
        "source",
        [{"low": 5, "high": 4}, {"low": 1, "min_probability": 0.5}, {"low": 10**400}, {"high": -1e300}],
        ids=str,
    )
    def test_bad_intervals(self, source: Any) -> None:
        with pytest.raises(InputError, match="target"):
            Target.read(source, model())

    def test_rating_is_inclusive_and_grows_towards_the_interval(self) -> None:
        values = np.array([0.0, 3.9, 4.0, 5.0, 6.0, 6.1, 99.0, np.nan])
        target = BoundTarget(Target(low=4, high=6), model(), spread=10.0)
        rating = target.rate(Outcome(np.full(8, -1), None, values))
        assert rating.favourable.tolist() == [False, False, True, True, True, False, False, False]
        # half of what the gap, in spreads, leaves of 1
        assert rating.grade.tolist() == pytest.approx([0.3, 0.495, 1, 1, 1, 0.495, 0, 0])

    def test_a_request_stays_inside_the_policys_interval(self) -> None:
        sealed = Target(low=4, high=6)
        assert sealed.tightened(Target(low=5)) == Target(low=5, high=6)
        for asked in (Target(low=3), Target(high=7), Target(low=7), Target(high=3)):
            with pytest.raises(InputError, match="target"):
                sealed.tightened(asked)


class TestRating:
    def test_binary_grade_is_the_probability(self) -> None:
        scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
        rating = BoundTarget(Target(label=1), model(0, 1)).rate(Outcome(np.array([0, 1, 0]), scores))
        assert rating.favourable.tolist() == [False, True, False]  # the label decides, ties included
        assert rating.grade.tolist() == [0.1, 0.6, 0.5]

    def test_several_classes(self) -> None:
        scores = np.array([[0.5, 0.3, 0.2], [0.2, 0.35, 0.45]])
        outcome = Outcome(np.array([0, 2]), scores)
        assert BoundTarget(Target(label="b"), model("a", "b", "c")).rate(outcome).grade.tolist() == pytest.approx(
            [(1 + 0.3 - 0.5) / 2, (1 + 0.35 - 0.45) / 2]
        )
        other = BoundTarget(Target.other(), model("a", "b", "c"), own=0).rate(outcome)
        assert other.favourable.tolist() == [False, True]
        assert other.grade.tolist() == pytest.approx([(1 + 0.3 - 0.5) / 2, (1 + 0.45 - 0.2) / 2])

    def test_min_probability_is_inclusive_and_on_top_of_the_label(self) -> None:
        scores = np.array([[0.3, 0.7], [0.31, 0.69], [0.2, 0.8]])
        outcome = Outcome(np.array([1, 1, 0]), scores)  # a model that calls 0.8 a refusal is still the judge
        target = BoundTarget(Target(label=1, min_probability=0.7), model(0, 1))
        assert target.rate(outcome).favourable.tolist() == [True, False, False]

    def test_margins_are_squashed_in_order(self) -> None:
        margins = np.array([[-m, m] for m in (-800.0, -1.0, 0.0, 2.0, 800.0)])
        grade = BoundTarget(Target(label=1), model(0, 1, kind="margin")).rate(Outcome(np.zeros(5), margins)).grade
        assert ((grade >= 0) & (grade <= 1)).all()
        assert (np.diff(grade) > 0).all()
        assert grade[2] == 0.5

    def test_labels_alone_are_0_or_1(self) -> None:
        rating = BoundTarget(Target(label=1), model(0, 1, kind="none")).rate(Outcome(np.array([0, 1, -1]), None))
        assert rating.grade.tolist() == [0.0, 1.0, 0.0]
        assert rating.favourable.tolist() == [False, True, False]

    def test_probability_of_the_wanted_label(self) -> None:
        outcome = Outcome(np.array([0]), np.array([[0.75, 0.25]]))
        assert BoundTarget(Target(label="b"), model("a", "b")).probability(outcome) == [0.25]
        assert BoundTarget(Target(label="b"), model("a", "b", kind="margin")).probability(outcome) == [None]


class TestJudge:
    """The logged model's own rule decides, also where it is not the largest score."""

    FRAME: ClassVar = pd.DataFrame({"x": np.arange(0, 11) / 10, "y": [0, 1] * 5 + [0]})

    def tuned(self, threshold: float) -> OpenModel:
        def score(rows: pd.DataFrame) -> np.ndarray:
            return np.column_stack([1 - rows["x"], rows["x"]])

        return OpenModel(
            "test", ("no", "yes"), lambda r: np.where(r["x"] >= threshold, "yes", "no"), score, score_kind="probability"
        )

    def test_learns_whether_the_largest_score_decides(self) -> None:
        assert Judge.learn(self.tuned(0.55), self.FRAME)[0].argmax_decides
        assert not Judge.learn(self.tuned(0.3), self.FRAME)[0].argmax_decides
        # a tie at 0.5 goes to the first class
        assert not Judge.learn(self.tuned(0.5), self.FRAME)[0].argmax_decides

    @pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
    def test_counterfactuals_reach_the_models_own_threshold(self, threshold: float) -> None:
        wrapped = assemble(self.tuned(threshold), self.FRAME, None, WrapOptions(target="yes"))
        found = wrapped.explain(pd.DataFrame({"x": [0.0], "y": [0]}))[0]
        assert found.status == "found"
        assert found.counterfactuals[0].row["x"] == threshold
        assert found.counterfactuals[0].prediction == "yes"

    def test_a_row_that_meets_the_target_is_answered_already(self) -> None:
        wrapped = assemble(self.tuned(0.3), self.FRAME, None, WrapOptions(target="yes"))
        at_threshold = wrapped.explain(pd.DataFrame({"x": [0.3], "y": [0]}))[0]
        assert (at_threshold.status, at_threshold.prediction, at_threshold.evaluations) == ("already", "yes", 0)

    def test_min_probability_makes_a_favourable_row_worth_explaining(self) -> None:
        wrapped = assemble(
            self.tuned(0.3), self.FRAME, None, WrapOptions(target={"label": "yes", "min_probability": 0.9})
        )
        found = wrapped.explain(pd.DataFrame({"x": [0.4], "y": [0]}))[0]
        assert (found.prediction, found.probability, found.status) == ("yes", 0.4, "found")
        assert found.counterfactuals[0].row["x"] == 0.9

    def test_unannounced_labels_never_meet_a_label(self) -> None:
        maybe = OpenModel("test", ("no", "yes"), lambda rows: np.where(rows["x"] > 0.5, "maybe", "no"))
        wrapped = assemble(maybe, self.FRAME, None, WrapOptions(target="yes"))
        found = wrapped.explain(pd.DataFrame({"x": [0.9, 0.1], "y": [0, 0]}))
        assert [f.prediction for f in found] == ["maybe", "no"]
        assert {f.status for f in found} == {"not_found"}
