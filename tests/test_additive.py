"""The nearest two changes that gain enough, if what each does adds up: against all pairs."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.engine.few_changes import nearest_two

gains = st.sampled_from([-np.inf, -0.5, 0.0, 0.1, 0.25, 0.5, 1.0])
costs = st.sampled_from([0.1, 0.2, 0.3, 0.5])
changes = st.lists(st.tuples(gains, costs, costs, st.integers(0, 3)), max_size=12)


@given(changes, st.sampled_from([-0.5, 0.0, 0.35, 0.6, 1.0, 2.5]), st.sampled_from([0.0, 0.5]))
def test_the_nearest_two_are_those_of_all_pairs(drawn: list, need: float, c: float) -> None:
    gain, cost, peak, group = (np.array([change[at] for change in drawn]) for at in range(4))
    expected = min(
        (
            one[1] + two[1] + c * max(one[2], two[2])
            for one, two in combinations(drawn, 2)
            if one[3] != two[3] and one[0] + two[0] >= need
        ),
        default=np.inf,
    )
    found = nearest_two(gain.astype(float), cost.astype(float), peak.astype(float), group.astype(np.intp), need, c)
    if c:  # the nearest partner is told by its cost alone
        assert expected <= found + 1e-12
        assert np.isinf(found) == np.isinf(expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
