"""Causal equations: what holds by the words alone is what rules accept, and what is proved under them is so."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from causal_worlds import causal_lists, follows
from exact_worlds import Enumerated, drawn
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from worlds import WIDE, background, row_dicts, setting_of, table, wide_rows

from mlflow_cf.problem import Budget
from mlflow_cf.proof.certify import at_once


def obeying(models=("forest", "linear", "network")):
    """Return drawn problems whose policy has causal equations, and often nothing else."""
    others = st.sampled_from([{}, {}, None])
    held = st.builds(
        lambda world, causal, other: replace(
            world, constraints={**(world.constraints if other is None else other), "causal": causal}
        ),
        drawn(models),
        causal_lists(),
        others,
    )
    return held.filter(lambda world: world.open)


@given(st.integers(0, 99), causal_lists(learned=False), wide_rows, st.lists(wide_rows, min_size=1, max_size=30))
def test_what_is_accepted_follows(seed, causal, query, found):
    """Where a row is like the query but for a child and its parents, and anywhere else."""
    frame = background(seed)
    near = [
        {**query, **dict(zip((equation["child"], *equation["parents"]), values, strict=True))}
        for equation in causal
        for values in product(*(WIDE[name] for name in (equation["child"], *equation["parents"])))
    ]
    rows = [*found, *near[:200]]
    bound_policy = setting_of(frame, {"causal": causal})
    space = bound_policy.space.covering(table([query, *rows], frame))
    x0, *Z = space.encode(table([query, *rows], frame))
    plain = row_dicts(table([query, *rows], frame))
    for number, rule in enumerate(bound_policy.rules):
        expected = [follows(causal[number], frame, plain[0], row) for row in plain[1:]]
        assert [bool(rule.holds(z[None], x0)[0]) for z in Z] == expected
        assert rule.defines == space.index[causal[number]["child"]]


@dear(2)
@given(obeying())
def test_answers_are_those_of_enumeration(world):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.engine.thresholds.MOST_LISTED", 6)
        patch.setattr("mlflow_cf.engine.thresholds.MOST_ALONE", 6)
        patch.setattr("mlflow_cf.engine.thresholds.SET_UP", 0)
        patch.setattr("mlflow_cf.problem.actions.MOST_COMBINATIONS", 15)
        expected = Enumerated(world)
        answers = expected.answers(world.count)
        found = world.certified(world.row_task())
    np.testing.assert_array_equal(found.rows, expected.rows[answers])
    assert found.proofs == ("optimal",) * len(answers)
    assert found.exhausted


@dear(2)
@given(obeying(("forest", "linear")), st.integers(0, 5))
def test_nothing_wrong_is_settled_at_once(world, place):
    """An answer that is not the nearest is never told to be, by what one and two changes do alone."""
    world = replace(world, count=1)
    expected = Enumerated(world)
    if place < len(expected.rows):
        task = world.row_task()
        known = world.proved(task, expected.rows[[place]], polish=True)
        settled, _ = world.told(at_once(replace(task, budget=Budget(10**7)), known, 1e-6))
        assert not settled.proofs or settled.bounds[0] == expected.distance[0]
