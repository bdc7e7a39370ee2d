"""What every explainer must do, whatever the model, the target, the constraints and the values."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, ClassVar, Final, cast

import pytest

from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.testing import answers, conduct
from mlflow_cf.testing.models import KINDS
from mlflow_cf.testing.trial import SCENARIOS, Scenario, Trial, first_of_each_kind
from mlflow_cf.testing.watched import HOPELESS, NEVER, RARE

DEAREST: Final = (
    answers.check_own_order,
    answers.check_plans,
    answers.check_rows_told,
    conduct.check_repeats,
    conduct.check_no_trace,
    conduct.check_threads,
    conduct.check_stored,
    conduct.check_faulty_row,
    conduct.check_skipped,
)


class ExplainerSuite:
    """Subclass it under a name that starts with ``Test``, and say which explainer is meant.

    Attributes:
        scenarios: the problems: every two kinds of model, target, constraints and values meet in one of `SCENARIOS`,
            the default; each is in one of `FEW`, a fifth as many.
        kinds: of models on which the dearest tests run: threads, stored models and the like; all by default.
    """

    scenarios: ClassVar[tuple[Scenario, ...]] = SCENARIOS
    kinds: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def explainer(self) -> AnyExplainer:
        """Return the explainer under test, always with the same options."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests of trials for all scenarios; the dearest ones for one per kind in `kinds`."""
        scenarios = self.scenarios
        if metafunc.function in DEAREST:
            scenarios = tuple(first for first in first_of_each_kind(scenarios) if first.kind in self.kinds)
        if "scenario" in metafunc.fixturenames:
            metafunc.parametrize("scenario", scenarios, ids=str)

    @pytest.fixture
    def trial(self, scenario: Scenario) -> Trial:
        """Return the scenario with the explainer's answers, which all tests share."""
        return _trial(cast("Hashable", type(self)), scenario)

    test_the_model_itself_agrees = staticmethod(answers.check_agreement)
    test_all_constraints_hold = staticmethod(answers.check_constraints)
    test_the_account_is_true = staticmethod(answers.check_account)
    test_answers_are_distinct_and_in_order = staticmethod(answers.check_order)
    test_statuses_are_right = staticmethod(answers.check_statuses)
    test_rows_do_not_depend_on_each_other = staticmethod(conduct.check_rows_apart)
    test_its_own_order_is_kept = staticmethod(answers.check_own_order)
    test_plans_reach_the_reply = staticmethod(answers.check_plans)
    test_rows_of_the_background_are_told = staticmethod(answers.check_rows_told)
    test_answers_repeat = staticmethod(conduct.check_repeats)
    test_no_trace_is_left = staticmethod(conduct.check_no_trace)
    test_threads_get_the_same_answers = staticmethod(conduct.check_threads)
    test_stored_models_give_the_same_answers = staticmethod(conduct.check_stored)
    test_a_faulty_row_spoils_no_other = staticmethod(conduct.check_faulty_row)
    test_nothing_is_explained_unasked = staticmethod(conduct.check_skipped)

    def test_no_change_is_needless(self, trial: Trial) -> None:
        if not trial.explainer.polish:
            pytest.skip("this explainer's answers stay as they were found")
        answers.check_needless(trial)

    def test_something_is_found(self) -> None:
        """Without constraints, an explainer finds a counterfactual for one row at least."""
        suite = cast("Hashable", type(self))
        free = [_trial(suite, scenario) for scenario in self.scenarios if scenario.demands == "none"]
        assert any(answer.status == "found" for trial in free for answer in trial.answers)

    @pytest.mark.parametrize("scored", [False, True], ids=["labels", "scores"])
    @pytest.mark.parametrize("most", [1, 10, 100, 1000])
    def test_evaluations_are_limited(self, most: int, scored: bool) -> None:
        conduct.check_evaluations(self.explainer(), most, scored=scored)

    @pytest.mark.parametrize("least", [RARE, NEVER], ids=["rare", "never"])
    def test_the_deadline_is_kept(self, least: float) -> None:
        conduct.check_deadline(self.explainer(), least)

    @pytest.mark.parametrize("name", HOPELESS)
    def test_nothing_exists(self, name: str) -> None:
        conduct.check_hopeless(self.explainer(), name)

    def test_it_learns_once(self) -> None:
        conduct.check_learns_once(self.explainer())

    def test_it_refuses_a_count_before_it_searches(self) -> None:
        conduct.check_count(self.explainer())

    def test_requests_set_declared_options_only(self) -> None:
        conduct.check_options_by_request(self.explainer())

    def test_name_and_options_restore_it(self) -> None:
        conduct.check_options(self.explainer())


@cache
def _trial(suite: Any, scenario: Scenario) -> Trial:
    return Trial.of(scenario, suite().explainer())
