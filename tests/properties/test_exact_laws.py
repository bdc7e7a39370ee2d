"""Exact search against enumeration: nearest answers, honest proofs, whatever it is started with."""

import numpy as np
import pytest
from exact_worlds import Enumerated, drawn
from hypothesis import given


def same_rows(found, expected):
    np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module", autouse=True)
def small_limits():
    """Boxes are parted and rules left untabulated in small problems, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.search.best_first.MOST_LISTED", 6)
        patch.setattr("mlflow_cf.search.cascade.MOST_COMBINATIONS", 15)
        yield


def opened(models=("forest", "forest", "linear", "network")):
    return drawn(models).filter(lambda world: world.open)


@given(opened())
def test_answers_are_those_of_enumeration(world):
    expected = Enumerated(world)
    answers = expected.answers(world.count)
    found = world.certified(world.case())
    same_rows(found.rows, expected.rows[answers])
    assert found.proofs == ("optimal",) * len(answers)
    assert list(found.bounds) == expected.distance[answers].tolist()
    assert found.exhausted
    assert not found.note
