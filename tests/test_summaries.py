"""What a summary says beyond its changes: what is proved, of which changes, and what a clock leaves open."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.cohorts import Cohorts, SummaryOptions, cohorts
from mlflow_cf.evaluation.summary import asking
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.request.admission import Admission

# Card a suits four kinds of people, b and c three each, of which two are others: b and c together turn everybody.
SUITS = {"a": (1, 2, 3, 4), "b": (1, 2, 5), "c": (3, 4, 6)}
PEOPLE = pd.DataFrame({"kind": [1, 2, 3, 4, 5, 6], "card": ["none", "none", "none", "a", "b", "c"]})
ASKING = pd.DataFrame({"kind": [1, 2, 3, 4, 5, 6], "card": ["none"] * 6})


def suited(rows: pd.DataFrame) -> np.ndarray:
    return np.array([int(kind in SUITS.get(card, ())) for kind, card in zip(rows["kind"], rows["card"], strict=True)])


def cards() -> ExplainedModel:
    return mlflow_cf.wrap(suited, PEOPLE, target=1, output="label", constraints={"immutable": ["kind"]})


def trees(**options: Any) -> tuple[ExplainedModel, pd.DataFrame]:
    """Return an opened model of numbers, and 200 rows."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.integers(0, 50, (200, 3)), columns=["a", "b", "c"])
    model = DecisionTreeClassifier(max_depth=6, random_state=0).fit(rows, rows.sum(axis=1) + rows["a"] % 7 > 100)
    return mlflow_cf.wrap(model, rows, target=True, **options), rows


class TestTheChoice:
    def test_greedy_choice_is_replaced_by_a_better_one(self) -> None:
        found = cohorts(cards(), ASKING, most=2)
        assert [(item.text, item.turned) for item in found.items] == [("card to b", 3), ("card to c", 3)]
        assert (found.greedy, found.covered, found.bound, found.proof) == (5 / 6, 1.0, 1.0, "optimal")

    def test_one_change_is_the_greedy_one(self) -> None:
        found = cohorts(cards(), ASKING, most=1)
        assert [item.text for item in found.items] == ["card to a"]
        assert (found.greedy, found.bound, found.proof) == (4 / 6, 4 / 6, "optimal")

    def test_the_same_with_and_without_a_structure(self) -> None:
        opened, rows = trees(constraints={"immutable": ["a"], "relative": {"b": {"up": 12}}})
        closed = mlflow_cf.wrap(
            opened.model.decide, opened.background, target=True, output="label",
            constraints={"immutable": ["a"], "relative": {"b": {"up": 12}}},
        )  # fmt: skip
        one, other = (cohorts(made, rows.head(40), most=2, options={"family": "all"}) for made in (opened, closed))
        assert one.proof == other.proof == "optimal"
        assert one.bound == other.bound == one.covered == other.covered
        assert 0 < one.covered < 1

    def test_threads_change_nothing(self) -> None:
        made, rows = trees(constraints={"immutable": ["a"]})
        many = pd.concat([rows + step for step in range(4)], ignore_index=True)
        one, several = (cohorts(replace(made, admission=Admission(places)), many, most=3) for places in (1, 4))
        pd.testing.assert_frame_equal(one.to_frame(), several.to_frame())
        assert (one.bound, one.proof) == (several.bound, several.proof)

    def test_further_requirements_hold_for_every_row(self) -> None:
        plain, rows = trees(constraints={"immutable": ["a"]})
        other = DecisionTreeClassifier(max_depth=3, random_state=1).fit(rows, rows["b"] + rows["c"] > 50)
        sure, _ = trees(constraints={"immutable": ["a"]}, margin=0.3)
        both, _ = trees(constraints={"immutable": ["a"]}, robust_to=[other])
        whole = cohorts(plain, rows, most=2)
        for made in (sure, both):
            found = cohorts(made, rows, most=2)
            assert (found.proof, found.covered) == ("optimal", found.bound)
            assert 0 < found.covered <= whole.covered

    def test_a_model_of_several_classes(self) -> None:
        rng = np.random.default_rng(0)
        rows = pd.DataFrame(rng.integers(0, 12, (120, 2)), columns=["a", "b"])
        model = DecisionTreeClassifier(max_depth=5, random_state=0).fit(rows, (rows["a"] + rows["b"]) // 8)
        made = mlflow_cf.wrap(model, rows, target=2, constraints={"relative": {"a": {"up": 4}, "b": {"up": 4}}})
        closed = mlflow_cf.wrap(
            model.predict, rows, target=2, output="label",
            constraints={"relative": {"a": {"up": 4}, "b": {"up": 4}}},
        )  # fmt: skip
        one, other = (cohorts(each, rows, most=2) for each in (made, closed))
        assert (one.covered, one.bound, one.proof) == (other.covered, other.bound, "optimal")

    def test_the_same_again(self) -> None:
        made, rows = trees()
        assert cohorts(made, rows, most=3) == cohorts(made, rows, most=3)


class TestTheGuarantee:
    def test_it_is_told(self) -> None:
        found = cohorts(cards(), ASKING, most=2)
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert {key: plain[key] for key in ("most", "bound", "proof", "greedy")} == {
            "most": 2, "bound": 1.0, "proof": "optimal", "greedy": 5 / 6,
        }  # fmt: skip
        family = "all 3 changes of one or two of 1 feature, to a level or up or down to a number that may be proposed"
        assert plain["family"].startswith(family)
        *_, guarantee, said = str(found).splitlines()
        assert guarantee == "  no choice of 2 changes of the family turns more than 100.0% (the optimum)"
        assert said == f"  family: {found.family}"
        assert "(the optimum)</p>" in found._repr_html_()

    def test_a_bound_is_no_optimum(self) -> None:
        found = Cohorts((), 10, most=1, bound=0.5, proof="bounded", family="<all>")
        assert "no choice of 1 change of the family turns more than 50.0% (a bound)" in str(found)
        assert "&lt;all&gt;" in found._repr_html_()

    def test_a_grid_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made, rows = trees()
        whole = cohorts(made, rows, most=1)
        monkeypatch.setattr(asking, "MOST_BITS", 100 * len(rows))
        found = cohorts(made, rows, most=1)
        assert "on a grid of" in found.family
        assert "grid" not in whole.family
        assert found.covered <= whole.covered
        assert found.proof == "optimal"

    def test_very_many_values_of_a_number_are_few_moves(self) -> None:
        rng = np.random.default_rng(1)
        rows = pd.DataFrame(rng.normal(size=(3_000, 2)), columns=["a", "b"])
        model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(rows, rows.sum(axis=1) > 1)
        made = mlflow_cf.wrap(model, rows, target=True, constraints={"relative": {"a": {"up": 1}, "b": {"up": 1}}})
        found = cohorts(made, rows.head(300), most=2)
        assert "numbers of more than 1,024 values" in found.family
        assert found.proof == "optimal"
        assert found.covered > 0

    def test_answers_are_a_family(self) -> None:
        found = cohorts(cards(), ASKING, most=2, options={"family": "answers"})
        assert found.family == (
            "the 3 changes of one or two features that most of the 6 answers for single rows are cases of"
        )
        assert found.covered == 1

    def test_rows_that_may_not_be_asked_about_are_open(self) -> None:
        options = SummaryOptions(family="all", max_evaluations=9)
        found = cohorts(cards(), ASKING, most=2, options=options)  # three rows: a turns them, and 4
        assert found.family.startswith("all 3 changes")
        assert (found.bound, found.covered, found.proof) == (1.0, 4 / 6, "none")

    def test_too_many_changes_to_ask_about_are_those_of_answers(self) -> None:
        found = cohorts(cards(), ASKING, most=2, options=SummaryOptions(max_evaluations=5))
        assert "answers" in found.family


class TestTheClock:
    def test_no_time(self) -> None:
        made, rows = trees()
        found = cohorts(made, rows, options={"time_limit_s": 1e-9})
        assert (found.items, found.bound, found.proof) == ((), 1.0, "none")
        assert "is not known" in str(found)

    def test_rows_that_were_not_reached_may_all_be_turned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made, rows = trees(constraints={"immutable": ["a"], "relative": {"b": {"up": 3}, "c": {"up": 3}}})
        whole = cohorts(made, rows, most=1)
        asked = iter([False, *[True] * 99])
        monkeypatch.setattr(Clock, "late", property(lambda _: next(asked)))
        found = cohorts(made, rows, most=1)
        assert found.covered <= whole.covered < found.bound
        assert found.bound >= (found.rows - 64) / found.rows
        assert found.proof == "bounded"


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"family": "some"}, "options.family"),
            ({"time_limit_s": 0}, "options.time_limit_s"),
            ({"max_evaluations": 0}, "options.max_evaluations"),
            ({"seconds": 3}, "options.seconds"),
        ],
    )
    def test_options_that_do_not_exist(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(InputError, match=path):
            cohorts(cards(), ASKING, options=options)
