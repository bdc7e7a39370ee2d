"""Search, proof, selection, statuses: whatever an explainer claims, nothing unproved leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from checker import Checker

from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import Candidates, Explainer, GeCo
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.testing.watched import Clock
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame(
    {
        "a": [0, 1, 2, 3, 4, 5],
        "b": [0, 10, 20, 30, 40, 50],
        "c": ["x", "y", "z", "x", "y", "z"],
        "d": np.array([0.5, 0.25, 1.0, 0.75, 0.125, 0.0], dtype="float32"),
    }
)
QUERY = pd.DataFrame({"a": [0], "b": [0], "c": ["x"], "d": np.array([0.5], dtype="float32")})
ROW = {"a": 0, "b": 0, "c": "x", "d": 0.5}


def decide(rows: pd.DataFrame) -> np.ndarray:
    return ((rows["a"] >= 3) | (rows["b"] >= 40)).to_numpy().astype(int)


@dataclass(frozen=True)
class Claims:
    """An explainer that claims whatever it is told to, right or wrong."""

    rows: tuple[tuple[float, ...], ...] = ()
    fail: str = ""
    polish: bool = True

    name: ClassVar[str] = "claims"

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        del budget, rng
        if self.fail:
            raise RuntimeError(self.fail)
        return Candidates(np.array(self.rows, dtype=np.float64).reshape(-1, len(problem.space)))


def wrapped(explainer: Explainer | str = "geco", model: Callable[..., Any] = decide, **options: Any) -> ExplainedModel:
    return assemble(OpenModel("test", (0, 1), model), FRAME, None, WrapOptions(explainer=explainer, **options))


def answers(*rows: tuple[float, ...], polish: bool = True, count: int = 10, **options: Any) -> list[dict[str, Any]]:
    found = wrapped(Claims(rows, polish=polish), **options).explain(QUERY, count=count)[0]
    return [dict(answer.row) for answer in found.counterfactuals]


class TestProof:
    """Codes: a and b are themselves, c is 0, 1, 2 for x, y, z, d is itself."""

    @pytest.mark.parametrize(
        ("claim", "constraints"),
        [
            ((1, 10, 0, 0.5), {}),  # refused by the model
            ((0, 0, 0, 0.5), {}),  # the row itself
            ((3, 0, 0, 0.5), {"immutable": ["a"]}),
            ((3, 0, 0, 0.5), {"ranges": {"a": [None, 2]}}),
            ((3, 40, 0, 0.5), {"max_changes": 1}),
            ((3, 0, 0, 0.5), {"groups": [["a", "b"]]}),  # (3, 0) was never observed
            ((6, 0, 0, 0.5), {}),  # a value nobody has
            ((3.5, 0, 0, 0.5), {}),  # no whole number
            ((3, 0, 0, 0.1), {}),  # nothing a float32 can hold
            ((3, 0, 0, 0.3), {}),
            ((3, np.nan, 0, 0.5), {}),  # missing is not proposed
            ((3, 0, np.nan, 0.5), {}),
        ],
        ids=str,
    )
    def test_refuses(self, claim: tuple[float, ...], constraints: dict[str, Any]) -> None:
        assert answers(claim, constraints=constraints, polish=False) == []

    def test_refuses_a_row_that_decodes_to_another(self) -> None:
        """Any number between 0 and 1 may be proposed for d, but a float32 holds 0.3 as 0.30000001."""
        held = float(np.float32(0.3))
        assert answers((3, 0, 0, 0.3), polish=False, values="continuous") == []
        (found,) = answers((3, 0, 0, held), polish=False, values="continuous")
        assert found["d"] == held

    def test_refuses_values_of_a_regression_that_decode_to_others(self) -> None:
        model = OpenModel("test", (), lambda rows: rows["a"].to_numpy(dtype=np.float64))
        for d, status in ((0.3, "not_found"), (float(np.float32(0.3)), "found")):
            options = WrapOptions({"low": 3}, explainer=Claims(((3, 0, 0, d),), polish=False), values="continuous")
            assert assemble(model, FRAME, None, options).explain(QUERY)[0].status == status

    def test_accepts(self) -> None:
        assert answers((3, 0, 0, 0.5), (0, 40, 0, 0.5)) == [{**ROW, "a": 3}, {**ROW, "b": 40}]

    def test_one_wrong_claim_does_not_spoil_the_others(self) -> None:
        wrong = [(value, 10.0, 0.0, 0.5) for value in (1.0, 2.0)] * 40
        assert answers(*wrong, (3, 0, 0, 0.5), count=1) == [{**ROW, "a": 3}]

    def test_the_model_decides_not_the_score(self) -> None:
        """A score that says yes to everything."""

        def score(rows: pd.DataFrame) -> np.ndarray:
            yes = np.where((rows["a"] == 0) & (rows["b"] == 0), 0.1, 0.9)
            return np.column_stack([1 - yes, yes])

        shifted = [False]

        def moody(rows: pd.DataFrame) -> np.ndarray:
            return score(rows).argmax(axis=1) if not shifted[0] else decide(rows)

        loan = assemble(OpenModel("test", (0, 1), moody, score, score_kind="probability"), FRAME, None, WrapOptions())
        assert loan.judge.argmax_decides  # as it was when wrapping
        shifted[0] = True
        found = loan.explain(QUERY, count=3)[0]
        for answer in found.counterfactuals:
            assert decide(pd.DataFrame([answer.row]))[0] == 1


class TestPolish:
    def test_needless_changes_are_undone(self) -> None:
        assert answers((3, 0, 2, 0.25)) == [{**ROW, "a": 3}]
        assert answers((3, 0, 2, 0.25), polish=False) == [{**ROW, "a": 3, "c": "z", "d": 0.25}]

    def test_the_nearer_of_two_ways_back(self) -> None:
        # undoing b leaves a change of a by 3 of 5; undoing a leaves b by 40 of 50: the first is nearer
        assert answers((3, 40, 0, 0.5)) == [{**ROW, "a": 3}]
        # two chains end in one row, which is answered once
        assert answers((3, 40, 0, 0.5), (3, 0, 1, 0.5)) == [{**ROW, "a": 3}]

    @pytest.mark.parametrize(
        ("claims", "calls"),
        [
            # at last the answer by itself, if there is one
            ([(3, 0, 0, 0.5)], [1, 1]),  # nothing to undo
            ([(3, 0, 2, 0.5)], [3, 1]),  # the claim, and one row for each of its changes
            ([(1, 10, 0, 0.5)], [3]),  # refused, and so are both
            ([(3, 0, 2, 0.25)], [4, 2, 1]),
        ],
    )
    def test_candidates_and_their_undone_changes_are_asked_together(
        self, claims: list[tuple[float, ...]], calls: list[int]
    ) -> None:
        asked: list[int] = []

        def counted(rows: pd.DataFrame) -> np.ndarray:
            asked.append(len(rows))
            return decide(rows)

        loan = wrapped(Claims(tuple(claims)), counted)
        asked.clear()
        found = loan.explain(QUERY)[0]
        assert asked == [1, *calls]
        assert found.evaluations == sum(calls)

    def test_a_small_budget_verifies_before_it_polishes(self) -> None:
        loan = wrapped(Claims(((3, 0, 2, 0.25),)))
        for most in range(1, 4):  # too few rows to undo all three changes
            (answer,) = loan.explain(QUERY, max_evaluations=most)[0].counterfactuals
            assert answer.n_changed == 3
        (answer,) = loan.explain(QUERY, max_evaluations=6)[0].counterfactuals
        assert answer.n_changed == 1

    def test_whole_groups_are_undone(self) -> None:
        grouped = {"groups": [["b", "c"]]}
        assert answers((3, 10, 1, 0.5), constraints=grouped) == [{**ROW, "a": 3}]
        assert answers((0, 40, 1, 0.25), constraints=grouped) == [{**ROW, "b": 40, "c": "y"}]

    def test_never_below_a_constraint(self) -> None:
        must = {"ranges": {"b": [10, None]}}
        assert answers((3, 10, 2, 0.5), constraints=must) == [{**ROW, "a": 3, "b": 10}]
        pair = {"rules": ["IF x_cf.a > x.a THEN x_cf.d < x.d"]}
        assert answers((3, 10, 2, 0.25), constraints=pair) == [{**ROW, "a": 3, "d": 0.25}]

    def test_every_answer_of_geco_is_minimal(self) -> None:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.integers(0, 6, size=(80, 6)), columns=list("pqrstu"))
        weights = np.array([3, -2, 1, 2, -1, 1])

        def linear(rows: pd.DataFrame) -> np.ndarray:
            return (rows.to_numpy() @ weights > 16).astype(int)

        loan = assemble(OpenModel("test", (0, 1), linear), frame, None, WrapOptions())
        checker = Checker(linear, frame, [{}], 1)
        rejected = frame[linear(frame) == 0].head(12)
        for query, found in zip(rejected.to_dict("records"), loan.explain(rejected, count=4), strict=True):
            assert found.status == "found"
            for answer in found.counterfactuals:
                assert checker.faults(query, answer.row) == []
                for change in answer.changes:
                    assert answer.n_changed == 1 or checker.faults(query, {**answer.row, change.feature: change.old})


class TestSelection:
    CLAIMS: ClassVar = [
        (3.0, 0.0, 0.0, 0.5),
        (4.0, 0.0, 0.0, 0.5),
        (0.0, 40.0, 0.0, 0.5),
        (3.0, 0.0, 1.0, 0.5),
        (3.0, 0.0, 0.0, 0.5),
        (0.0, 50.0, 0.0, 0.5),
    ]

    def test_distinct_changed_sets_first_then_distance(self) -> None:
        assert answers(*self.CLAIMS, polish=False) == [
            {**ROW, "a": 3},
            {**ROW, "b": 40},
            {**ROW, "a": 3, "c": "y"},
            {**ROW, "a": 4},
            {**ROW, "b": 50},
        ]

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_fewer_are_the_first_of_more(self, count: int) -> None:
        assert answers(*self.CLAIMS, polish=False, count=count) == answers(*self.CLAIMS, polish=False)[:count]

    def test_order_of_the_claims_does_not_matter(self) -> None:
        assert answers(*self.CLAIMS[::-1], polish=False) == answers(*self.CLAIMS, polish=False)


class TestStatuses:
    @pytest.mark.parametrize(
        ("constraints", "parts"),
        [
            (
                {"immutable": list("abcd")},
                ["no feature may change", "4 features of constraints.immutable (a, b, c, d)"],
            ),
            ({"ranges": {"a": [7, None]}}, ["a must change", "constraints.ranges.a"]),
            (
                {"ranges": {"a": [3, None]}, "immutable": ["a"]},
                ["a must change", "constraints.ranges.a", "constraints.immutable.a"],
            ),
            ({"levels": {"c": ["y"]}, "forbidden": {"c": [["x", "y"]]}}, ["c must change", "constraints.levels.c"]),
            (
                {"ranges": {"a": [1, None], "b": [10, None]}, "max_changes": 1},
                ["must change", "max_changes", "constraints.ranges.a", "constraints.ranges.b"],
            ),
            ({"groups": [["a", "b"]], "ranges": {"a": [3, None], "b": [None, 20]}}, ["a and b must change"]),
            ({"rules": ["x.a > 0"]}, ["constraints.rules[0]"]),
        ],
        ids=str,
    )
    def test_infeasible_names_what_blocks(self, constraints: dict[str, Any], parts: list[str]) -> None:
        found = wrapped(constraints=constraints).explain(QUERY)[0]
        assert (found.status, found.counterfactuals, found.evaluations) == ("infeasible", (), 0)
        for part in parts:
            assert part in found.reason

    def test_infeasible_under_the_request(self) -> None:
        found = wrapped(constraints={"immutable": ["a"]}).explain(QUERY, constraints={"immutable": ["b", "c", "d"]})[0]
        assert found.status == "infeasible"

    def test_not_found_is_no_proof(self) -> None:
        found = wrapped(constraints={"immutable": ["a", "b"]}).explain(QUERY)[0]
        assert found.status == "not_found"
        assert found.reason.startswith("no counterfactual among ")

    def test_already(self) -> None:
        found = wrapped(Claims(fail="must not be asked")).explain(QUERY.assign(a=5))[0]
        assert (found.status, found.prediction, found.reason) == ("already", 1, "")

    def test_an_explainer_that_fails(self) -> None:
        found = wrapped(Claims(fail="private details")).explain(QUERY)[0]
        assert (found.status, found.prediction) == ("invalid", 0)
        assert found.reason == "the explanation failed (RuntimeError)"

    def test_an_explainer_that_fails_for_one_row_only(self) -> None:
        @dataclass(frozen=True)
        class Picky:
            name: ClassVar[str] = "picky"
            polish: ClassVar[bool] = True

            def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
                if problem.x0[0] == 1:
                    raise RuntimeError
                return GeCo().search(problem, budget, rng)

        found = wrapped(Picky()).explain(FRAME.iloc[[0, 1, 2]])
        assert [f.status for f in found] == ["found", "invalid", "found"]

    def test_a_model_that_fails_only_when_it_must_prove(self) -> None:
        def moody(rows: pd.DataFrame) -> np.ndarray:
            if (rows["a"] == 3).any() and not (rows["a"] == 5).any():  # the claim, not the background
                raise RuntimeError
            return decide(rows)

        found = wrapped(Claims(((3, 0, 0, 0.5),)), moody).explain(QUERY)[0]
        assert (found.status, found.prediction) == ("invalid", 0)

    def test_an_explainer_for_which_the_request_is_wrong(self) -> None:
        with pytest.raises(InputError, match="count: 40 results need more than 20 survivors"):
            wrapped(limits={"count": 90}).explain(QUERY, count=40, explainer=GeCo(q=20))


class TestManyRows:
    def test_more_rows_than_are_proved_at_once(self) -> None:
        many = pd.concat([FRAME] * 100, ignore_index=True)
        expected = [found.to_dict() for found in wrapped("nearest_row").explain(FRAME)]
        answers = [found.to_dict() for found in wrapped("nearest_row").explain(many)]
        assert answers == expected * 100

    def test_a_late_clock_ends_long_requests(self, clock: Clock) -> None:
        """A search that never ends by itself gets a part of the time, and no call of the model begins after it."""
        many = pd.concat([FRAME] * 500, ignore_index=True)
        began = []

        def slow(rows: pd.DataFrame) -> np.ndarray:
            began.append(clock.now)
            clock.now += 1e-3 + 1e-6 * len(rows)
            return decide(rows)

        endless = wrapped(GeCo(min_generations=10**6, max_generations=10**6), slow)
        started = clock.now
        found = endless.explain(many, time_limit_s=0.3)
        assert max(began) <= started + 0.3
        assert len(found) == 3000
        assert {f.status for f in found} == {"found", "already", "budget"}
        assert [f.prediction for f in found] == decide(many).tolist()
