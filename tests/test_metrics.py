"""Metrics: the worked examples, by hand and from the papers."""

import math

import numpy as np
import pandas as pd
import pytest

from mlflow_cf import Distance, InputError
from mlflow_cf import metrics as m
from mlflow_cf.features import Feature, FeatureSpace

NAN = math.nan


def number(name, low=0.0, high=1.0, mad=1.0):
    return Feature(name, "real", "float64", low=low, high=high, mad=mad)


def levels(name, *values, kind="category"):
    return Feature(name, kind, "object", levels=values, high=len(values) - 1.0)


SPACE = FeatureSpace(
    (number("income", 0, 100, 20), number("age", 20, 70, 10), levels("job", "a", "b", "c"), levels("owner", 0, 1))
)
X = np.array([40.0, 30, 0, 1])
Z = np.array([[60.0, 30, 1, 1], [40, 35, 0, 0]])
NONE = np.empty((0, 4))


def each(metric, options=None):
    """The metric of every answer alone."""
    return [metric(SPACE, X, row[np.newaxis], *([options] if options else [])) for row in Z]


class TestByHand:
    def test_distance_family(self):
        assert each(m.gower) == pytest.approx([0.30, 0.275])
        assert each(m.mixed)[0] == pytest.approx(0.40)
        assert each(m.mixed, m.Options(distance=Distance(0, 0, 1)))[0] == 1.0
        assert each(m.l0) == [0.5, 0.5]
        assert each(m.l1) == pytest.approx([0.30, 0.275])
        assert each(m.linf) == [1.0, 1.0]
        assert each(m.n_changed) == [2.0, 2.0]

    def test_weights_and_scale_of_the_problem_reach_the_distance_family_and_leave_gower_alone(self):
        options = m.Options(distance=Distance(0, 1, 0, scale="mad", weights={"income": 3.0}))
        assert each(m.mixed, options)[0] == each(m.l1, options)[0] == pytest.approx((3 * 1 + 1) / 6)
        assert each(m.l0, options)[0] == pytest.approx(4 / 6)
        assert each(m.gower, options) == each(m.gower)

    def test_proximity(self):
        assert each(m.prox_cont) == [0.5, 0.25]
        assert m.prox_cont(SPACE, X, Z) == 0.375
        assert each(m.prox_cat) == [0.5, 0.5]
        assert each(m.sparsity_changed) == each(m.sparsity_unchanged) == [0.5, 0.5]
        assert m.cont_proximity(SPACE, X, Z) == -12.5
        assert m.cat_proximity(SPACE, X, Z) == 0.5

    def test_pairs(self):
        assert m.cont_diversity(SPACE, Z) == 25
        assert m.cat_diversity(SPACE, Z) == m.diversity_cat(SPACE, Z) == 1
        assert m.sparsity_diversity(SPACE, Z) == 1
        assert m.diversity(SPACE, Z) == 0.75
        assert m.norm_diversity(SPACE, X, Z) == 1.0
        assert m.norm_diversity_cat(SPACE, X, Z) == 1.0
        assert m.diversity_ratio(SPACE, X, Z) == 2.0

    def test_a_ratio_to_nothing_is_none(self):
        """Two answers that change levels alone are apart, and no number says how near they are."""
        alone = np.array([X, X])
        alone[:, 2] = 1 - X[2], X[2]
        alone[:, 3] = X[3], 1 - X[3]
        assert m.prox_cont(SPACE, X, alone) == 0
        assert m.diversity_ratio(SPACE, X, alone) is None

    def test_euclidean(self):
        assert each(m.prox_euc) == [20, 5]
        assert each(m.prox_euc, m.Options(prox_euc="mad")) == [1, 0.5]
        assert m.prox_euc(SPACE, X, np.array([[43.0, 34, 0, 1]])) == 5

    def test_jaccard(self):
        a, b = np.array([[1, 0, 1, 1], [1, 0, 0, 1]], dtype=bool)
        assert m.jaccard(a, b) == pytest.approx(2 / 3)
        assert m.jaccard(a, ~a) == 0
        assert m.jaccard(a & ~a, b & ~b) == 1

    def test_jaccard_of_one_bit_counts_no_agreement_of_zeros(self):
        owner = FeatureSpace((SPACE["owner"],))
        assert m.prox_jac(owner, np.array([1.0]), np.array([[1.0]])) == 0
        assert m.prox_jac(owner, np.array([1.0]), np.array([[0.0]])) == 1
        assert m.prox_jac(owner, np.array([0.0]), np.array([[0.0]])) == 0

    def test_jaccard_of_more_levels_is_one_hot(self):
        assert each(m.prox_jac) == pytest.approx([1 - 1 / 3, 1 - 1 / 2])
        bits = FeatureSpace(tuple(levels(name, 0, 1) for name in "pqrs"))
        found = m.prox_jac(bits, np.array([1.0, 0, 1, 1]), np.array([[1.0, 0, 0, 1]]))
        assert found == pytest.approx(1 / 3)

    def test_missing_values(self):
        x = np.array([40.0, NAN, 0, NAN])
        filled, kept = np.array([[40.0, 35, 0, 1]]), np.array([[40.0, NAN, 0, NAN]])
        assert m.prox_cont(SPACE, x, filled) == 0.5
        assert m.prox_cat(SPACE, x, filled) == 0.5
        assert m.gower(SPACE, x, filled) == m.sparsity_changed(SPACE, x, filled) == 0.5
        assert m.prox_jac(SPACE, x, filled) == pytest.approx(1 - 1 / 2)
        assert m.prox_jac(SPACE, x, np.array([[40.0, NAN, 0, 0]])) == pytest.approx(1 - 1 / 2)
        for metric in (m.prox_cont, m.prox_cat, m.gower, m.prox_jac, m.prox_euc, m.n_changed, m.cont_proximity):
            assert metric(SPACE, x, kept) == 0

    def test_filling_in_breaks_the_triangle_inequality_and_norm_diversity_stays_at_one(self):
        x, far = np.array([NAN, 30, 0, 1]), np.array([[0.0, 30, 0, 1], [100.0, 30, 0, 1]])
        assert m.diversity(SPACE, far) == 2.5
        assert m.norm_diversity(SPACE, x, far) == 1.0

    def test_nothing_to_say(self):
        words = FeatureSpace(SPACE.features[2:])
        numbers = FeatureSpace(SPACE.features[:2])
        for metric in (m.prox_cont, m.cont_proximity, m.prox_euc, m.norm_diversity, m.diversity_ratio):
            assert metric(words, X[2:], Z[:, 2:]) is None
        for metric in (m.prox_cat, m.cat_proximity, m.prox_jac, m.norm_diversity_cat):
            assert metric(numbers, X[:2], Z[:, :2]) is None
        assert m.cont_diversity(words, Z[:, 2:]) is m.diversity(words, Z[:, 2:]) is None
        assert m.cat_diversity(numbers, Z[:, :2]) is None

    def test_ordinals_count_in_ranks(self):
        school = FeatureSpace((levels("school", "low", "mid", "high", "top", kind="ordinal"),))
        x, up = np.array([0.0]), np.array([[2.0]])
        assert m.gower(school, x, up) == pytest.approx(2 / 3)
        assert m.cont_proximity(school, x, up) == -2
        assert m.prox_cat(school, x, up) is None

    def test_tolerance_of_changed(self):
        near = X + np.array([3e-8, 0, 0, 0])
        assert m.n_changed(SPACE, X, near[np.newaxis]) == 0  # 1e-9 * 40 is more
        assert m.n_changed(SPACE, X, near[np.newaxis], m.Options(tolerance=0)) == 1
        assert m.n_changed(SPACE, X, Z, m.Options(tolerance=0.6)) == 1.0  # levels know no tolerance
        assert m.sparsity_diversity(SPACE, np.vstack([X, near])) == 0

    def test_zero_mad_is_the_deviation_or_one(self):
        frame = pd.DataFrame({"loss": [0.0, 0, 0, 8], "hours": [1.0, 2, 3, 4]})
        space, x, row = FeatureSpace.infer(frame), np.zeros(2), np.array([[8.0, 0]])
        assert m.prox_cont(space, x, row) == pytest.approx(8 / 4 / 2)  # std (ddof 1) of loss is 4
        assert m.prox_cont(space, x, row, m.Options(zero_mad="one")) == 4
        assert m.prox_cont(space, x, np.array([[0.0, 2]]), m.Options(zero_mad="one")) == 1  # MAD of hours is 1

    def test_no_spread_at_all_counts_changed(self):
        flat = FeatureSpace((number("flat", 3, 3, 0),))
        for metric in (m.gower, m.prox_cont, m.l1, m.diversity_ratio):
            assert metric(flat, np.array([3.0]), np.array([[9.0], [3.0]])) in (0.5, 2.0)
        assert m.prox_cont(flat, np.array([3.0]), np.array([[3 + 1e-10]])) == 0

    def test_relative_difference(self):
        assert m.relative_difference(4, 5) == pytest.approx(0.2)
        assert m.relative_difference(5, 4) == pytest.approx(-0.2)
        assert m.relative_difference(0, 0) == 0

    @pytest.mark.parametrize(
        ("efforts", "discounts", "cost"),
        [
            ((15, 10, 5), (1, 0.75, 1), 27.5),
            ((5, 15, 10), (0.5, 1, 0.5), 22.5),
            ((15, 10, 5), (), 30),
        ],
    )
    def test_costs_of_plans(self, efforts, discounts, cost):
        steps = m.Steps(efforts, discounts)
        assert m.discounted_cost(steps) == cost
        assert m.sequence_cost(steps) == 30
        assert m.sequence_length(steps) == 3

    @pytest.mark.parametrize("steps", [((-1,), ()), ((math.inf,), ()), ((NAN,), ()), ((1, 2), (1,)), ((1,), (1.5,))])
    def test_impossible_plans(self, steps):
        with pytest.raises(InputError):
            m.Steps(*steps)


class TestWishes:
    """Five features, so that shares differ from halves."""

    space = FeatureSpace((number("a", 0, 10), number("b", 0, 10), levels("c", "u", "v", "w"), number("d"), number("e")))
    x = np.array([2.0, 2, 0, 0, 0])
    wishes = m.Wishes({"a": (2.0, 5.0), "b": None, "c": frozenset({"u", "v"})})

    def found(self, *row):
        rows = np.array([row], dtype=float)
        share = m.actionability(self.space, self.x, rows, self.wishes)
        return share, bool(m.actionable(self.space, self.x, rows, self.wishes)[0])

    def test_shares(self):
        assert self.found(5, 2, 0, 0, 0) == (1, True)  # limits are included
        assert self.found(6, 2, 0, 0, 0) == (0, False)
        assert self.found(5, 9, 2, 0, 0) == (pytest.approx(2 / 3), False)  # c leaves its limits
        assert self.found(5, 2, 0, 1, 1) == (pytest.approx(1 / 3), True)
        assert self.found(2, 2, 0, 1, 1) == (0, False)
        assert self.found(2, 2, 0, 0, 0) == (0, False)  # nothing changed

    def test_count_and_threshold(self):
        rows = np.array([[5.0, 9, 0, 1, 1], [3, 2, 0, 0, 0]])
        assert m.actionability(self.space, self.x, rows, self.wishes, m.Options(actionability="count")) == 1.5
        assert m.actionability(self.space, self.x, rows, self.wishes) == 0.75
        assert m.actionable(self.space, self.x, rows, self.wishes, m.Options(actionable_from=0.6)).tolist() == [0, 1]

    def test_a_row_beyond_its_limits_has_left_nothing_until_it_moves(self):
        wishes = m.Wishes({"a": (5.0, 9.0), "b": None})
        assert m.actionable(self.space, self.x, np.array([[2.0, 3, 0, 0, 0]]), wishes).tolist() == [True]

    def test_feasibility_asks_the_nearest_answer(self):
        yes, mixed = np.array([True, True]), np.array([False, True])
        assert m.feasibility(np.array([0.2, 0.1]), yes, mixed, yes) == 1
        assert m.feasibility(np.array([0.1, 0.2]), yes, mixed, yes) == 0
        assert m.feasibility(np.empty(0), *[np.empty(0, bool)] * 3) == 0

    @pytest.mark.parametrize(
        "limits", [{"A": None}, {"a": frozenset({"u"})}, {"c": (0.0, 1.0)}, {"c": frozenset({"z"})}]
    )
    def test_wishes_that_do_not_fit(self, limits):
        with pytest.raises(InputError, match=next(iter(limits))):
            m.actionability(self.space, self.x, self.x[np.newaxis], m.Wishes(limits))


NUMBERS = ("duration", "amount", "rate", "residence", "age", "credits", "dependents")
WORDS = ("checking", "history", "purpose", "savings", "employment", "status", "debtors", "property", "plans")
LEVELS = (*WORDS, "housing", "job", "telephone", "foreign")
GERMAN = FeatureSpace((*map(number, NUMBERS), *(levels(name, *"abcd") for name in LEVELS)))
FACTUAL = {**dict.fromkeys(GERMAN.names, 0.0), "duration": 24, "amount": 1371.26, "rate": 4, "age": 25}
E_WORDS = ({"checking": 1, "employment": 1, "property": 1},)
B = {"duration": 7.12}
RATE_AGE = {"rate": 1.96, "age": 26.63}
PAPER = {
    "A": [{"duration": 15.02, "amount": -333.52, "rate": 3.86, "age": 27.04}],
    "B": [B],
    "C": [B, {"amount": -2873.47, "age": 30.06}, RATE_AGE],
    "D": [B, RATE_AGE, {"age": 75.52}],
    "E": [
        {"duration": 22, "amount": 1283.52, **E_WORDS[0]},
        {"duration": 10, "amount": 1363.43, "rate": 2, "age": 64}
        | {"checking": 1, "housing": 1, "telephone": 1, "property": 2, "savings": 1},
        {"duration": 12, "amount": 1893.04, "age": 29}
        | {"housing": 1, "debtors": 1, "telephone": 1, "property": 1, "savings": 1},
    ],
    "F": [
        E_WORDS[0],
        {"duration": 22, "amount": 990.51} | E_WORDS[0],
        {"duration": 26.83, "amount": 1910.28} | E_WORDS[0],
    ],
}


@pytest.mark.parametrize(
    ("part", "near", "apart"),
    [
        ("A", (1.00, -1715.94, 0.80), (None, None, None)),
        ("B", (1.00, -16.88, 0.95), (None, None, None)),
        ("C", (1.00, -1423.45, 0.92), (0.00, 2845.81, 0.15)),
        ("D", (1.00, -23.69, 0.93), (0.00, 46.29, 0.12)),
        ("E", (0.67, -230.12, 0.63), (0.36, 441.68, 0.42)),
        ("F", (0.77, -308.20, 0.78), (0.00, 616.40, 0.10)),
    ],
)
def test_published_figures_of_ceocl(part, near, apart):
    x, *rows = (np.array([{**FACTUAL, **change}[name] for name in GERMAN.names]) for change in [{}, *PAPER[part]])
    Z = np.array(rows)
    found = [metric(GERMAN, x, Z) for metric in (m.cat_proximity, m.cont_proximity, m.sparsity_unchanged)]
    assert found == pytest.approx(near, abs=0.0051)
    pairs = [metric(GERMAN, Z) for metric in (m.cat_diversity, m.cont_diversity, m.sparsity_diversity)]
    assert pairs == (list(apart) if None in apart else pytest.approx(apart, abs=0.0051))
