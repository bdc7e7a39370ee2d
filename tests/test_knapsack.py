"""The order in which changes are put together: that of the fractional knapsack problem, written out a second time."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.explainers.geco.construction import KnapsackItems, by_gain, by_ratio, prefixes, price

GROUPS = 4


def single_of(rows: list[tuple[int, int, float, float]]) -> KnapsackItems:
    group, code, gain, cost = (np.array(column) for column in zip(*rows, strict=True))
    return KnapsackItems(group.astype(np.intp), code.astype(np.intp), gain.astype(float), cost.astype(float))


@st.composite
def singles(draw: st.DrawFn, *, per_group: int = 3) -> KnapsackItems:
    pairs = [(group, code) for group in range(GROUPS) for code in range(1, 1 + draw(st.integers(1, per_group)))]
    return single_of([(*pair, draw(st.integers(-3, 9)), draw(st.integers(1, 9))) for pair in pairs])


def test_the_best_trade_off_comes_first() -> None:
    single = single_of([(0, 1, 2.0, 1.0), (0, 2, 3.0, 3.0), (1, 1, 4.0, 4.0), (2, 1, -1.0, 1.0)])
    steps = by_ratio(single)
    # group 0 brings 2 for 1, group 1 brings 4 for 4, and group 0 then 1 more for 2 more
    assert list(zip(steps.group.tolist(), steps.code.tolist(), strict=True)) == [(0, 1), (1, 1), (0, 2)]
    assert steps.gain.tolist() == [2.0, 4.0, 1.0]
    assert steps.cost.tolist() == [1.0, 4.0, 2.0]
    assert prefixes(steps, np.zeros(3, dtype=np.intp), 6.5).tolist() == [[1, 0, 0], [1, 1, 0], [2, 1, 0]]
    assert price(steps, 6.5) == 2.0
    assert price(steps, 6.0) == 1.0
    assert price(steps, 100.0) == 2.0  # out of reach: the last there is


def test_the_largest_gain_comes_first_where_changes_count() -> None:
    single = single_of([(0, 1, 2.0, 1.0), (0, 2, 3.0, 3.0), (1, 1, 4.0, 9.0), (2, 1, -1.0, 1.0)])
    steps = by_gain(single)
    assert list(zip(steps.group.tolist(), steps.code.tolist(), strict=True)) == [(1, 1), (0, 2)]
    assert prefixes(steps, np.zeros(3, dtype=np.intp), 4.0).tolist() == [[0, 1, 0]]


def test_nothing_brings_anything() -> None:
    steps = by_ratio(single_of([(0, 1, 0.0, 1.0), (1, 1, -2.0, 1.0)]))
    assert len(steps.group) == 0
    assert prefixes(steps, np.zeros(2, dtype=np.intp), 1.0).shape == (0, 2)
    assert price(steps, 1.0) == 1.0


@given(singles(per_group=1), st.floats(0.5, 20))
def test_by_gain_needs_the_fewest_changes(single: KnapsackItems, need: float) -> None:
    found = prefixes(by_gain(single), np.zeros(GROUPS, dtype=np.intp), need)
    gains = dict(zip(single.group.tolist(), single.gain.tolist(), strict=True))
    sizes = [
        size
        for size in range(1, GROUPS + 1)
        for some in combinations(range(GROUPS), size)
        if sum(gains[group] for group in some) >= need
    ]
    if sizes:
        assert (found[-1] != 0).sum() == min(sizes)


@given(singles(), st.floats(0.5, 20))
def test_by_ratio_costs_no_more_than_what_any_choice_costs_and_one_step(single: KnapsackItems, need: float) -> None:
    """Without its last step the order gains less than needed at the least cost there is for that (Dantzig 1957)."""
    steps = by_ratio(single)
    gained, cost = steps.gain.cumsum(), steps.cost.cumsum()
    if not len(gained) or gained[-1] < need:
        return
    last = int(np.searchsorted(gained, need))
    relaxed = cost[last] - steps.cost[last] * (gained[last] - need) / steps.gain[last]
    choices = [[(0.0, 0.0), *zip(single.gain[single.group == g], single.cost[single.group == g], strict=True)]
               for g in range(GROUPS)]  # fmt: skip
    totals = np.array([(0.0, 0.0)])
    for some in choices:
        totals = (totals[:, None] + np.array(some)).reshape(-1, 2)
    enough = totals[totals[:, 0] >= need]
    assert len(enough)
    assert relaxed <= enough[:, 1].min() + 1e-9


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
def test_a_long_order_is_tried_at_some_of_its_prefixes(count: int) -> None:
    single = single_of([(group, 1, 1.0, 1.0) for group in range(count)])
    found = prefixes(by_ratio(single), np.zeros(count, dtype=np.intp), np.inf)
    assert len(found) == min(count, 64)
    assert (found[-1] == 1).all()
    assert (found[0] == 1).sum() == 1
