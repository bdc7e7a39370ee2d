"""Common changes: chosen as an independent greedy search chooses them, and nothing counted that does not hold."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import same
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from summary_worlds import NUMBERS, Aim, rank, turned_into, words
from worlds import (
    GRADES,
    background,
    checker_of,
    constraint_dicts,
    explained,
    lottery,
    row_dicts,
    table,
    wide_rows,
)

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.cohorts import Cohorts, cohorts
from mlflow_cf.evaluation.summary import refused
from mlflow_cf.evaluation.summary.changes import MOST_VALUES, common_changes
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.wrapping import assemble

seeds = st.integers(0, 40)
some_rows = st.lists(wide_rows, min_size=1, max_size=7)


def aims_of(old: dict[str, Any], new: dict[str, Any]) -> list[Aim]:
    """Return where each change goes, written out a second time."""
    aims: list[Aim] = []
    for name, value in old.items():
        if same(value, new[name]) or (name in NUMBERS and value is None):
            continue
        if name in NUMBERS or (name == "grade" and value in GRADES):
            rises = rank(name, new[name]) > rank(name, value)
            aims.append((name, "at_least" if rises else "at_most", new[name]))
        else:
            aims.append((name, "equal", new[name]))
    return aims


def slow_cohorts(
    wrapped: ExplainedModel, frame: pd.DataFrame, raw: pd.DataFrame, model: OpenModel, checker: Any
) -> Any:
    """Return (text, turned, distance) of the changes that are chosen greedily, and how many rows miss the target."""
    rows = [row for row, label in zip(row_dicts(raw), model.decide(raw), strict=True) if label != "yes"]
    answers = wrapped.explain(table(rows, frame)) if rows else []
    changes: set[tuple[Aim, ...]] = set()
    for row, answer in zip(rows, answers, strict=True):
        aims = aims_of(row, dict(answer.counterfactuals[0].row)) if answer.counterfactuals else []
        changes.update([*((aim,) for aim in aims), *combinations(aims, 2)])
    distance: dict[tuple[int, int], float] = {}
    listed = sorted(changes, key=words)
    for number, change in enumerate(listed):
        for at, row in enumerate(rows):
            new = turned_into(row, change)
            if checker.accepts(row, new) and model.decide(table([new], frame))[0] == "yes":
                (said,) = wrapped.verify(table([row], frame), table([new], frame))
                distance[number, at] = said.distance or 0.0
    chosen, left = [], set(range(len(rows)))
    while True:
        best = None
        for number, change in enumerate(listed):
            mine = [distance[number, at] for at in sorted(left) if (number, at) in distance]
            key = (-len(mine), float(np.mean(mine)) if mine else 0.0, len(change), words(change))
            best = min(best or (key, number), (key, number))
        if best is None or best[0][0] == 0:
            return chosen, len(rows)
        (gain, mean, _, text), number = best
        chosen.append((text, -gain, mean))
        left -= {at for at in left if (number, at) in distance}


@dear(3)
@given(seeds, constraint_dicts, some_rows, st.sampled_from([0.1, 0.3, 0.6]))
def test_changes_are_chosen_as_a_slow_search_does(
    seed: int, constraints: dict[str, Any], rows: list[dict[str, Any]], share: float
) -> None:
    frame, model = background(seed), lottery(seed, share)
    wrapped, raw = explained(model, frame, constraints), table(rows, frame)
    found = cohorts(wrapped, raw, most=99, options={"family": "answers"})
    expected, missed = slow_cohorts(wrapped, frame, raw, model, checker_of(model, frame, constraints))
    assert [(item.text, item.turned, item.distance) for item in found.items] == expected
    assert found.rows == missed
    assert found.covered == (sum(item.turned for item in found.items) / missed if missed else 0)


@dear(3)
@given(seeds, constraint_dicts, some_rows)
def test_more_changes_never_cover_less(seed: int, constraints: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    frame = background(seed)
    wrapped, raw = explained(lottery(seed, 0.3), frame, constraints), table(rows, frame)
    found = [cohorts(wrapped, raw, most=most, groups=raw["job"]) for most in range(1, 5)]
    shares = [one.covered for one in found]
    assert shares == sorted(shares)
    assert all(one.greedy <= one.covered <= one.bound for one in found)
    greedy = [one.items for one in found if one.covered == one.greedy]  # where nothing turns more, one by one
    assert all(items == greedy[-1][: len(items)] for items in greedy)
    for one in found:
        assert set(one.by_group) == set(one.groups)
        assert sum(one.groups.values()) == one.rows
        turned = sum(one.groups[name] * share for name, share in one.by_group.items())
        assert turned == pytest.approx(one.covered * one.rows)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=60))
def test_many_values_of_a_number_are_rounded_to_few_that_go_as_far(pairs: list[tuple[int, int]]) -> None:
    space = FeatureSpace.infer(pd.DataFrame({"x": range(501)}))
    olds, news = np.array(pairs, dtype=np.float64).T[:, :, None]
    changes = common_changes(space, olds, news, 99)
    for direction in (1, -1):
        values = {move.code for (move,) in changes if move.direction == direction}
        reached = {new for old, new in pairs if (new - old) * direction > 0}
        assert len(values) <= MOST_VALUES
        assert values <= reached
        assert values == reached or len(reached) > MOST_VALUES
        for old, new in pairs:
            if (new - old) * direction > 0:
                assert any((value - new) * direction >= 0 for value in values)
    assert len(set(changes)) == len(changes)


# A world to check by hand: a loan is granted from an income of 50, of 30 to members.
PEOPLE = pd.DataFrame(
    {
        "income": [10, 20, 30, 40, 45, 60, 80, 30],
        "member": [False, False, False, False, True, True, False, True],
        "town": ["a", "b", "a", "b", "a", "b", "a", "b"],
    }
)
ASKING = pd.DataFrame(
    {
        "income": [10, 20, 40, 40, 45, 80],
        "member": [False, False, False, False, False, False],
        "town": ["a", "a", "b", "b", "b", "a"],
    }
)

APART = {"max_changes": 1, "rules": ["IF x.income >= 40 THEN x_cf.income = x.income"]}


def granted(rows: pd.DataFrame) -> np.ndarray:
    return np.where((rows["income"] >= 50) | (rows["member"] & (rows["income"] >= 30)), "yes", "no")


def loans(decide: Any = granted, **options: Any) -> ExplainedModel:
    model = OpenModel("test", ("no", "yes"), decide)
    return assemble(model, PEOPLE, None, WrapOptions(**{"target": "yes", **options}))


class TestByHand:
    def test_who_is_turned(self) -> None:
        found = cohorts(loans(), ASKING, groups=ASKING["town"])
        assert found.rows == 5
        first = found.items[0]
        assert first.text == "income to 60 or more"
        assert first.changes == ({"feature": "income", "at_least": 60},)
        assert (first.turned, first.share, dict(first.by_group)) == (5, 1.0, {"a": 1.0, "b": 1.0})
        assert found.covered == 1
        assert len(found.items) == 1

    def test_two_features_together(self) -> None:
        """Who earns 30 already keeps it; 10 is too far."""
        found = cohorts(loans(constraints={"relative": {"income": {"up": 10}}}), ASKING)
        assert [(item.text, item.turned) for item in found.items] == [("income to 30 or more and member to yes", 4)]
        assert found.items[0].changes == ({"feature": "income", "at_least": 30}, {"feature": "member", "equal": True})
        assert found.covered == 0.8

    def test_constraints_leave_others(self) -> None:
        found = cohorts(loans(constraints=APART), ASKING, groups=ASKING["town"])
        assert [(item.text, item.turned) for item in found.items] == [
            ("member to yes", 3),
            ("income to 60 or more", 2),
        ]
        assert found.by_group == {"a": 1.0, "b": 1.0}
        assert [dict(item.by_group) for item in found.items] == [{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 0.0}]

    def test_everything_is_said_in_tables_and_words(self) -> None:
        found = cohorts(loans(constraints=APART), ASKING, groups=ASKING["town"])
        frame = found.to_frame()
        assert frame.columns.tolist() == ["change", "turned", "share", "covered", "distance", "a", "b"]
        assert frame["covered"].tolist() == [0.6, 1.0]
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["items"][1]["turned"] == 2
        assert plain["covered"] == 1
        assert str(found).splitlines()[0] == "2 common changes turn 100.0% of 5 rows that miss the target"
        assert "<td>income to 60 or more</td>" in found._repr_html_()

    def test_known_answers_are_enough(self) -> None:
        answers = [None, {"income": 60, "member": False, "town": "a"}, *[None] * 4]
        found = cohorts(loans(), ASKING, counterfactuals=answers)
        assert [item.text for item in found.items] == ["income to 60 or more"]
        assert cohorts(loans(), ASKING, counterfactuals=[None] * 6) == Cohorts((), 5)

    def test_nobody_misses_the_target(self) -> None:
        found = cohorts(loans(), ASKING[ASKING["income"] > 50])
        assert (found, found.covered) == (Cohorts((), 0), 0.0)
        assert found.to_frame().empty

    def test_any_other_label(self) -> None:
        found = cohorts(loans(target=Target.other()), ASKING, most=2)
        assert [(item.text, item.turned) for item in found.items] == [
            ("income to 60 or more", 5),
            ("income to 45 or less", 1),
        ]

    def test_a_row_that_makes_the_model_fail_is_left_out(self) -> None:
        def fussy(rows: pd.DataFrame) -> np.ndarray:
            if rows["income"].eq(11).any():
                raise RuntimeError("11")
            return granted(rows)

        found = cohorts(loans(fussy), ASKING.assign(income=ASKING["income"].replace(20, 11)))
        assert found.rows == 4
        assert found.covered == 1

    def test_what_verification_refuses_is_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Further requirements are asked there alone."""
        verdicts = refused.verdicts_on

        def stricter(*how: Any) -> Any:
            *how, rows, others = how
            return verdicts(*how, rows, others.assign(income=others["income"].where(rows["income"] != 10, 0)))

        monkeypatch.setattr(refused, "verdicts_on", stricter)
        found = cohorts(loans(), ASKING)
        assert [(item.text, item.turned) for item in found.items] == [("income to 60 or more", 4)]
        assert found.covered == 0.8

    @pytest.mark.parametrize("together", [1, 3])
    def test_small_parts_give_the_same(self, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = cohorts(loans(), ASKING)
        monkeypatch.setattr(refused, "TOGETHER", together)
        assert cohorts(loans(), ASKING) == whole


class TestBadInput:
    def test_no_rows(self) -> None:
        with pytest.raises(InputError, match="rows: there are none; pass at least one row"):
            cohorts(loans(), ASKING.head(0))

    def test_no_change_is_asked_for(self) -> None:
        with pytest.raises(InputError, match="most: 0 is less than 1; ask for one change at least"):
            cohorts(loans(), ASKING, most=0)

    def test_groups_of_other_rows(self) -> None:
        with pytest.raises(InputError, match="groups: 2 for 6 rows; give one for every row"):
            cohorts(loans(), ASKING, groups=ASKING["town"].head(2))

    def test_answers_of_other_rows(self) -> None:
        with pytest.raises(InputError, match="counterfactuals: 1 for 6 rows"):
            cohorts(loans(), ASKING, counterfactuals=[None])

    def test_answers_without_a_feature(self) -> None:
        answers: list[Any] = [None, {"income": 60, "member": False}, *[None] * 4]
        message = r"counterfactuals\[1\]\.town: feature is missing; give every feature a value"
        with pytest.raises(InputError, match=message):
            cohorts(loans(), ASKING, counterfactuals=answers)
