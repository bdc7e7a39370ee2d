"""What every explainer must do, whatever the model, the target, the constraints and the values."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.testing import answers, conduct, handed_over
from mlflow_cf.testing.models import KINDS
from mlflow_cf.testing.scenarios import SCENARIOS, Scenario, first_of_each_kind
from mlflow_cf.testing.trial import Trial
from mlflow_cf.testing.watched import HOPELESS, NEVER, RARE


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
        """Run a test that takes a `scenario` for all; one that takes `scenario_of_kind` for one per kind in `kinds`."""
        firsts = first_of_each_kind(self.scenarios)
        for argument, scenarios in {
            "scenario": self.scenarios,
            "scenario_of_kind": tuple(first for first in firsts if first.kind in self.kinds),
        }.items():
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, scenarios, ids=str)

    def trial(self, scenario: Scenario) -> Trial:
        """Return the scenario with the explainer's answers, which all tests share."""
        return _trial(cast("Hashable", type(self)), scenario)

    def test_the_model_itself_agrees(self, scenario: Scenario) -> None:
        answers.check_agreement(self.trial(scenario))

    def test_all_constraints_hold(self, scenario: Scenario) -> None:
        answers.check_constraints(self.trial(scenario))

    def test_the_account_is_true(self, scenario: Scenario) -> None:
        answers.check_account(self.trial(scenario))

    def test_answers_are_distinct_and_in_order(self, scenario: Scenario) -> None:
        answers.check_order(self.trial(scenario))

    def test_no_change_is_needless(self, scenario: Scenario) -> None:
        trial = self.trial(scenario)
        if not trial.explainer.polish:
            pytest.skip("this explainer's answers stay as they were found")
        answers.check_needless(trial)

    def test_statuses_are_right(self, scenario: Scenario) -> None:
        answers.check_statuses(self.trial(scenario))

    def test_rows_do_not_depend_on_each_other(self, scenario: Scenario) -> None:
        conduct.check_rows_apart(self.trial(scenario))

    def test_its_own_order_is_kept(self, scenario_of_kind: Scenario) -> None:
        handed_over.check_own_order(self.trial(scenario_of_kind))

    def test_plans_reach_the_reply(self, scenario_of_kind: Scenario) -> None:
        handed_over.check_plans(self.trial(scenario_of_kind))

    def test_rows_of_the_background_are_told(self, scenario_of_kind: Scenario) -> None:
        handed_over.check_rows_told(self.trial(scenario_of_kind))

    def test_answers_repeat(self, scenario_of_kind: Scenario) -> None:
        conduct.check_repeats(self.trial(scenario_of_kind))

    def test_no_trace_is_left(self, scenario_of_kind: Scenario) -> None:
        conduct.check_no_trace(self.trial(scenario_of_kind))

    def test_threads_get_the_same_answers(self, scenario_of_kind: Scenario) -> None:
        conduct.check_threads(self.trial(scenario_of_kind))

    def test_stored_models_give_the_same_answers(self, scenario_of_kind: Scenario, tmp_path: Path) -> None:
        conduct.check_stored(self.trial(scenario_of_kind), tmp_path)

    def test_a_faulty_row_spoils_no_other(self, scenario_of_kind: Scenario) -> None:
        conduct.check_faulty_row(self.trial(scenario_of_kind))

    def test_nothing_is_explained_unasked(self, scenario_of_kind: Scenario) -> None:
        conduct.check_skipped(self.trial(scenario_of_kind))

    def test_something_is_found(self) -> None:
        """Without constraints, an explainer finds a counterfactual for one row at least."""
        free = [self.trial(scenario) for scenario in self.scenarios if scenario.demands == "none"]
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
