"""The suite of flavors: what a flavor module must offer, and what its models must do once they are opened."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final

import pytest

from mlflow_cf.model import Flavor
from mlflow_cf.model.flavors import flavor_named
from mlflow_cf.testing import opened
from mlflow_cf.testing.goals import GOALS
from mlflow_cf.testing.models import Kind
from mlflow_cf.testing.opened import Opening


class ModelSuite:
    """Subclass it under a name that starts with ``Test``, and say how models of the kind are fitted.

    ```python
    class TestMine(ModelSuite):
        kind = Kind(fit, n_labels=(2,), opened=True)
    ```

    Attributes:
        kind: the kind of model, ours or yours; see `Kind`.
    """

    kind: ClassVar[Kind]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test for all kinds of targets that this kind of model can have."""
        goals = [name for name, goal in GOALS.items() if self.kind.takes(goal)]
        if metafunc.function is opened.check_stored:  # one with labels, as many as there can be, and one with values
            labels = "multiclass" if "multiclass" in goals else "binary"
            goals = [goal for goal in goals if goal in (labels, "regression")]
        if "goal" in metafunc.fixturenames:
            metafunc.parametrize("goal", goals)

    @pytest.fixture
    def opening(self, goal: str) -> Opening:
        """Return an opened model, which all tests share."""
        return _opening(self.kind, goal)

    def test_the_flavor_is_whole(self, opening: Opening) -> None:
        check_flavor(flavor_named(opening.model.flavor))

    test_the_decision_is_the_models_own = staticmethod(opened.check_own_decision)
    test_shapes_and_types = staticmethod(opened.check_shapes)
    test_both_are_what_each_is = staticmethod(opened.check_both)
    test_the_largest_score_decides = staticmethod(opened.check_scores_decide)
    test_rows_do_not_depend_on_each_other = staticmethod(opened.check_rows_apart)
    test_decoded_rows_are_answered_alike = staticmethod(opened.check_decoded)
    test_threads_get_the_same_answers = staticmethod(opened.check_threads)
    test_no_trace_is_left = staticmethod(opened.check_no_trace)
    test_certified_answers_are_the_nearest = staticmethod(opened.check_certified)
    test_contributions_are_those_of_all_sets = staticmethod(opened.check_contributions)
    test_stored_models_answer_alike = staticmethod(opened.check_stored)


@cache
def _opening(kind: Kind, goal: str) -> Opening:
    return Opening.of(kind, goal)


# parameters that a flavor may have beside those of the protocol
OPTIONAL: Final = frozenset({("save", "code_paths"), ("save", "background")})
FUNCTIONS: Final = tuple(name for name, method in vars(Flavor).items() if inspect.isfunction(method) and name[0] != "_")


def check_flavor(module: object) -> None:
    """Check that a module has the name and every function of the protocol `Flavor`, with the same parameters."""
    assert isinstance(getattr(module, "MLFLOW_FLAVOR", None), str), "no MLFLOW_FLAVOR"
    for name in FUNCTIONS:
        function = getattr(module, name, None)
        assert callable(function), f"no function {name}"
        expected = parameters(getattr(Flavor, name))[1:]  # a module has no self
        found = [parameter for parameter in parameters(function) if (name, parameter[0]) not in OPTIONAL]
        assert found == expected, f"{name} has other parameters"


def parameters(function: Callable[..., Any]) -> list[tuple[str, str, object]]:
    """Return the name, the kind and the default of every parameter; how types are spelled is left to its author."""
    known = inspect.signature(function).parameters.values()
    return [(one.name, one.kind.description, one.default) for one in known]
