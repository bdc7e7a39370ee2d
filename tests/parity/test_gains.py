"""Gains: what putting a column back changes in all rows of a box is never less than what is said of it."""

from itertools import pairwise

import numpy as np
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from worlds import background, space_of

from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.goal.targets import SumTarget, rate_sums
from mlflow_cf.structures.structure import linked


@given(seed=st.integers(0, 2**16), outputs=st.sampled_from([1, 2, 3]), depth=st.integers(1, 6))
def test_what_a_column_gains_at_least(seed, outputs, depth):
    rng = np.random.default_rng(seed)
    space = space_of(background(seed))
    structure = random_trees(seed, space, outputs, trees=int(rng.integers(1, 7)), depth=depth)
    values = [rng.permutation(np.append(feature.values, np.nan)) for feature in space.features]
    encoded = [structure.encode(column, some) for column, some in enumerate(values)]
    start = np.cumsum([0, *map(len, encoded)])
    boxes = structure.boxes(encoded)
    mask = rng.random(start[-1]) < rng.choice([0.1, 0.3, 0.9])
    mask[[rng.integers(low, high) for low, high in pairwise(start)]] = True
    own = np.array([rng.integers(low, high) for low, high in pairwise(start)])
    asked = rng.random(len(own)) < 0.8
    weights = rng.normal(size=outputs)
    gains = boxes.gains(mask, np.where(asked, own, -1), weights)
    allowed = [np.flatnonzero(mask[low:high]) for low, high in pairwise(start)]
    rows = np.array([rng.choice(some, 300) for some in allowed]).T

    def sums(places):
        return structure.sums([some[at] for some, at in zip(encoded, places.T, strict=True)]) @ weights

    before = sums(rows)
    for column in np.flatnonzero(asked).tolist():
        back = rows.copy()
        back[:, column] = own[column] - start[column]
        gained, said = sums(back) - before, gains[start[column] + rows[:, column]]
        assert (gained >= np.where(np.isinf(said), -1e-6, said)).all()


@given(
    st.sampled_from(["softmax", "sigmoid", "identity", "value"]), st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.4, 0.7, 0.99]), st.sampled_from(["label", "other"]), st.integers(0, 1),
    st.sampled_from([1e-3, 1e-6]),
)  # fmt: skip
def test_a_step_takes_what_may_meet_a_target_to_what_certainly_does(link, seed, least, kind, column, doubt):
    rng = np.random.default_rng(seed)
    sums = 1 if link in ("sigmoid", "value") else 2
    if link == "value":
        end = rng.choice([0.3, -40.0])
        low, high = (end, np.inf) if column else (-np.inf, end)
        target = SumTarget("identity", 0, 1, 1, "interval", -1, 0.0, low, high, 1.0, False)
    else:
        target = SumTarget(link, 0, sums, 2, kind, column, least, -np.inf, np.inf, 1.0, False)
    lead = DecisionScore.of([target], doubt)
    if lead is None:
        assert (link, least > 0) == ("identity", True)
        return
    assert lead.step > 0
    made = rng.normal(0, 3, (200, sums))
    middle = rng.choice([np.log(0.7 / 0.3), np.log(0.99 / 0.01), 0.0, 0.3, -40.0], 200)
    made[:, -1] = (made[:, 0] if sums > 1 else 0.0) + rng.choice([-1, 1], 200) * middle + rng.normal(0, 2 * doubt, 200)
    if link == "identity":
        made = linked(made, "softmax")
    favourable, _, margin = rate_sums(made, [target])
    may = favourable | (margin < doubt)
    if link != "value":
        may &= linked(made, link)[:, target.columns[0]] > least - doubt
    if not np.isfinite(lead.step):
        return
    taken = made + lead.weights / (lead.weights @ lead.weights) * lead.step
    favourable, _, margin = rate_sums(taken, [target])
    assert (favourable & (margin >= doubt))[may].all()
