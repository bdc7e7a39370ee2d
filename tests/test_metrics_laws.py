"""Metrics: laws that hold for any rows, the local outlier factor, and means over queries."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import LocalOutlierFactor

from mlflow_cf import Distance, InputError
from mlflow_cf import metrics as m
from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.metrics.changes import pair_changes
from mlflow_cf.metrics.nearest import Columns, neighbours
from mlflow_cf.metrics.outliers import _points

NAN = math.nan
WORDS = ("a", "b", "c", "d")
KINDS = st.sampled_from(["real", "integer", "ordinal", "category", "binary"])


@st.composite
def feature(draw, number):
    kind, mad = draw(KINDS), float(draw(st.integers(0, 3)))
    if kind in ("real", "integer"):
        return Feature(f"f{number}", kind, "float64", low=0, high=4, mad=mad)
    known = WORDS[:2] if kind == "binary" else WORDS
    unseen = ("unseen",) if draw(st.booleans()) else ()
    kind = "category" if kind == "binary" else kind
    return Feature(f"f{number}", kind, "object", known, unseen, high=len(known) - 1.0, mad=mad)


@st.composite
def cases(draw, least=0, most=4, widest=4):
    """Any space, a row x and rows Z (k, d) inside the background's range; any of them may miss parts."""
    features = tuple(draw(feature(number)) for number in range(draw(st.integers(1, widest))))
    codes = [range(len(f.known) if f.levels else 5) for f in features]
    row = st.tuples(*(st.sampled_from([NAN, *map(float, own)]) for own in codes))
    Z = draw(st.lists(row, min_size=least, max_size=most))
    return FeatureSpace(features), np.array(draw(row)), np.array(Z, dtype=float).reshape(-1, len(features))


def every(space, x, Z, **known):
    return m.measure(m.Answers(space, x, Z, valid=np.ones(len(Z), bool), requested=4, **known))


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert value == (None if wanted[name] is None else pytest.approx(wanted[name], abs=1e-12)), name


@given(cases())
def test_ranges(case):
    space, x, Z = case
    found = every(space, x, Z)
    shares = ["l0", "l1", "linf", "mixed", "gower", "prox_cat", "sparsity_changed", "sparsity_unchanged", "prox_jac"]
    shares += ["cat_proximity", "cat_diversity", "sparsity_diversity", "norm_diversity", "norm_diversity_cat"]
    assert all(found[name] is None or 0 <= found[name] <= 1 for name in shares)
    assert all(found[name] is None or found[name] >= 0 for name in ("prox_cont", "prox_euc", "diversity_ratio"))
    assert found["cont_proximity"] is None or found["cont_proximity"] <= 0
    assert found["n_changed"] is None or 0 <= found["n_changed"] <= len(space)
    answered = {"l0", "l1", "linf", "mixed", "n_changed", "gower", "sparsity_changed", "sparsity_unchanged"}
    assert {name for name in answered if found[name] is None} == (set() if len(Z) else answered)
    assert (found["sparsity_diversity"] is None) == (len(Z) < 2)


@given(cases(), st.randoms())
def test_the_order_of_answers_and_of_columns_does_not_matter(case, random):
    space, x, Z = case
    rows, columns = list(range(len(Z))), list(range(len(space)))
    random.shuffle(rows)
    random.shuffle(columns)
    found = every(space, x, Z)
    same(every(space, x, Z[rows]), found)
    same(every(FeatureSpace(tuple(space.features[c] for c in columns)), x[columns], Z[:, columns]), found)


@given(cases(least=2, most=2))
def test_diversity_is_symmetric_and_asks_the_same_distance_as_proximity(case):
    space, _, Z = case
    a, b = Z
    for scale in ("range", "mad", "none"):
        assert pair_changes(space, Z, scale).tolist() == pair_changes(space, Z[::-1], scale).tolist()
    near, apart = every(space, a, b[np.newaxis]), every(space, a, Z)
    assert apart["diversity"] == near["prox_cont"]
    assert apart["cat_diversity"] == apart["diversity_cat"] == near["prox_cat"]
    assert apart["sparsity_diversity"] == near["sparsity_changed"]
    assert (apart["cont_diversity"] or 0) == -(near["cont_proximity"] or 0)


@given(cases(most=12, widest=14), st.lists(st.integers(0, 12), max_size=4), st.randoms(), st.booleans())
def test_many_queries_at_once_get_what_each_gets(case, cuts, random, judged):
    space, x, Z = case
    ends = [0, *sorted(min(cut, len(Z)) for cut in cuts), len(Z)]
    inliers = m.Inliers.fit(space, np.nan_to_num(np.vstack([Z, x, x]))) if judged else None
    distance = m.Options(Distance(0.5, 0.3, 0.2, scale=random.choice(["range", "mad"])))
    queries = []
    for start, end in pairwise(ends):
        own = random.sample(list(Z), 1)[0] if len(Z) else x
        valid = np.array([random.random() < 0.7 for _ in range(end - start)], dtype=bool)
        queries.append(m.Answers(space, own, Z[start:end], valid, satisfied=valid, inliers=inliers))
    assert m.measure_all(queries, distance) == [m.measure(one, distance) for one in queries]
    for one in queries:  # what is a mean over single answers is named by its function, too
        told = m.measure(one, distance)
        for name in ("l0", "l1", "linf", "mixed", "n_changed", "gower", "prox_cont", "prox_cat", "sparsity_changed",
                     "sparsity_unchanged", "cat_proximity", "cont_proximity", "prox_euc"):  # fmt: skip
            assert told[name] == getattr(m, name)(space, one.x, one.Z, distance), name
        assert told["prox_jac"] == m.prox_jac(space, one.x, one.Z)


def test_no_queries_are_none():
    assert m.measure_all([]) == []


@given(cases())
def test_no_change_is_no_distance(case):
    space, x, _ = case
    found = every(space, x, np.vstack([x, x]))
    down = {name for name, metric in m.METRICS.items() if metric.better != "up"} | {"cont_proximity"}
    assert {found[name] for name in down} <= {0, None}
    assert {found[name] for name in ("sparsity_unchanged", "cat_proximity")} <= {1, None}


@given(cases())
def test_slow_reading_of_the_formulas(case):
    space, x, Z = case

    def apart(feature, own, value, scale):
        if math.isnan(own) or math.isnan(value):
            return float(math.isnan(own) != math.isnan(value))
        if not feature.has_order or scale == 0 or own >= feature.unknown_from or value >= feature.unknown_from:
            return float(own != value)
        return abs(own - value) / scale

    def slow(kept, scale, *, total=False):
        picked = [c for c, f in enumerate(space.features) if kept(f)]
        sums = [sum(apart(space.features[c], x[c], z[c], scale(space.features[c])) for c in picked) for z in Z]
        return sum(sums) / len(Z) / (1 if total else len(picked)) if sums and picked else None

    found = every(space, x, Z)
    wanted = {
        "gower": slow(lambda _: True, lambda f: f.high - f.low),
        "l1": slow(lambda _: True, lambda f: f.high - f.low),
        "prox_cont": slow(lambda f: f.has_order, lambda f: f.mad),
        "prox_cat": slow(lambda f: not f.has_order, lambda _: 0),
        "sparsity_changed": slow(lambda _: True, lambda _: 0),
        "n_changed": slow(lambda _: True, lambda _: 0, total=True),
        "mixed": None if found["l0"] is None else (found["l0"] + found["l1"]) / 2,
    }
    same({name: found[name] for name in wanted}, wanted)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1))
def test_zero_mad_is_recognised_from_the_active_domain(values):
    space = FeatureSpace.infer(pd.DataFrame({"v": np.array(values, dtype=float)}))
    mad = np.median(np.abs(values - np.median(values)))
    x, row = np.array([0.0]), np.array([[6.0]])
    assert m.prox_cont(space, x, row, m.Options(zero_mad="one")) == pytest.approx(6 / (mad or 1))
    assert m.prox_cont(space, x, row) == pytest.approx(6 / (mad or np.std(values, ddof=1)))


class TestInliers:
    def test_far_outlier_is_rejected_and_the_mean_accepted(self):
        cloud = np.random.default_rng(0).normal(size=(200, 2))
        background = np.vstack([cloud, [[20.0, 20.0]]])
        inliers = m.Inliers.fit(FeatureSpace.infer(pd.DataFrame(background, columns=["a", "b"])), background)
        assert inliers.accept(np.vstack([background[-1], cloud.mean(axis=0)])).tolist() == [False, True]
        assert m.plausibility(inliers.accept(background)) > 0.9
        assert m.plausibility(inliers.accept(background[:0])) is None

    def test_points(self):
        frame = pd.DataFrame(
            {
                "v": [0.0, 2, 4, NAN],
                "job": ["a", "b", "c", "a"],
                "size": pd.Categorical(list("sslm"), list("sml"), ordered=True),
            }
        )
        space = FeatureSpace.infer(frame)
        embedding = m.Inliers.fit(space, space.encode(frame)).embedding
        rows = np.array([[0.0, 0, 0], [2, 0, 0], [NAN, NAN, 0], [2, 3, 0], [2, 1, 0], [2, 1, 3]])
        start, two, missing, unseen, other, unranked = _points(embedding, rows)
        assert np.linalg.norm(two - start) == pytest.approx(1)  # standard deviation of v is 2
        assert np.linalg.norm(missing - two) == 0  # median, most frequent level
        apart = [np.linalg.norm(a - b) for a, b in [(unseen, two), (unseen, other), (two, other)]]
        assert apart == pytest.approx([1, 1, 1])
        rank = (0.5 - space.encode(frame)[:, 2].mean()) / space.encode(frame)[:, 2].std(ddof=1)
        assert unranked[embedding.blocks[2]] == pytest.approx(rank)

    def test_a_constant_column_counts_only_as_different(self):
        space = FeatureSpace.infer(pd.DataFrame({"v": [0.1, 0.1, 0.1]}), {"v": {"low": 0, "high": 9}})
        embedding = m.Inliers.fit(space, np.full((3, 1), 0.1)).embedding
        assert embedding.vectors(np.array([[0.1], [9.0], [NAN]])).tolist() == [[0], [1], [0]]

    def test_many_rows_and_too_few(self):
        space = FeatureSpace((Feature("v", "real", "float64", high=1),))
        rows = np.linspace(0, 1, 11_000)[:, np.newaxis]
        inliers = m.Inliers.fit(space, rows)
        assert (len(inliers.points), inliers.neighbours) == (10_000, 100)
        assert inliers.accept(np.array([[0.5], [9.0]])).tolist() == [True, False]
        assert m.Inliers.fit(space, rows[:3]).neighbours == 2
        with pytest.raises(InputError, match="at least two"):
            m.Inliers.fit(space, rows[:1])

    @pytest.mark.parametrize(("rows", "columns"), [(30, 2), (300, 3), (300, 20)])
    def test_the_factor_of_scikit_learn(self, rows, columns):
        space, background, Z = self.cloud(rows, columns)
        inliers = m.Inliers.fit(space, background)
        # what it takes by itself for wide rows and few rows rounds distances
        wide = {"algorithm": "kd_tree"} if columns == 20 or rows == 30 else {}
        factor = LocalOutlierFactor(n_neighbors=min(100, rows - 1), novelty=True, **wide)
        factor.fit(_points(inliers.embedding, background))
        expected = -factor.score_samples(_points(inliers.embedding, Z))
        assert inliers.scores(Z) == pytest.approx(expected, rel=1e-12)
        assert inliers.accept(Z).tolist() == (factor.predict(_points(inliers.embedding, Z)) == 1).tolist()
        assert 0 < inliers.accept(Z).sum() < len(Z)

    def test_of_neighbours_equally_far_away_the_first_count(self):
        points = Columns(np.array([[1.0, -1, 0, 1, -1, 5]]), np.zeros(1))
        ((distance, nearest),) = neighbours(points, Columns(np.array([[0.0]]), np.zeros(1)), 3)
        assert (distance.tolist(), nearest.tolist()) == ([[1, 1, 0]], [[0, 1, 2]])
        ((distance, nearest),) = neighbours(points, points, 2, itself=True)
        assert nearest.tolist() == [[2, 3], [2, 4], [0, 1], [0, 2], [1, 2], [0, 3]]
        assert distance.tolist() == [[1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [4, 4]]

    def test_rows_equal_to_all_their_neighbours(self):
        background = np.vstack([np.zeros((150, 1)), np.arange(1.0, 51)[:, None]])
        inliers = m.Inliers.fit(FeatureSpace.infer(pd.DataFrame({"v": background[:, 0]})), background)
        assert inliers.accept(np.array([[0.0], [0.5]])).tolist() == [True, False]

    def test_from_arrays_the_same_answers(self, tmp_path):
        space, background, Z = self.cloud(300, 20)
        inliers = m.Inliers.fit(space, background)
        np.savez(tmp_path / "inliers.npz", **inliers.to_arrays())
        with np.load(tmp_path / "inliers.npz", allow_pickle=False) as arrays:
            again = m.Inliers.from_arrays(space, arrays)
        assert again.scores(Z).tobytes() == inliers.scores(Z).tobytes()
        assert again.neighbours == inliers.neighbours == 100

    def test_a_row_is_answered_alone_as_among_others(self):
        space, background, Z = self.cloud(300, 20)
        inliers = m.Inliers.fit(space, background)
        assert inliers.scores(Z).tolist() == [inliers.scores(row[None])[0] for row in Z]

    @staticmethod
    def cloud(rows, columns):
        """Return a space, its background, and rows in and around it: numbers without ties, and levels, one unseen."""
        rng = np.random.default_rng(columns)
        numbers = rng.normal(size=(rows + 40, columns))
        numbers[rows:] *= np.linspace(0, 8, 40)[:, None]
        frame = pd.DataFrame(numbers, columns=[f"v{column}" for column in range(columns)])
        frame["job"] = rng.choice(list("abc"), len(frame))
        space = FeatureSpace.infer(frame[:rows])
        asked = frame[rows:].assign(job=["z", *frame["job"][rows + 1 :]])
        return space, space.encode(frame[:rows]), space.covering(asked).encode(asked)


class TestOverQueries:
    space = FeatureSpace((Feature("v", "real", "float64", high=10, mad=1),))
    x = np.array([0.0])

    def answers(self, *values, status="found", **known):
        Z = np.array(values, dtype=float).reshape(-1, 1)
        return m.Answers(self.space, self.x, Z, known.pop("valid", np.ones(len(Z), bool)), status, 2, **known)

    def test_answers_first_then_queries(self):
        summary = m.summarize([self.answers(2, 4), self.answers(9), self.answers(status="not_found")])
        found = summary.metrics["prox_cont"]
        assert (found.mean, found.queries) == (6, 2)
        assert found.standard_error == pytest.approx(np.std([3, 9], ddof=1) / np.sqrt(2))
        assert summary.metrics["diversity"] == m.Aggregate(2, None, 1)
        assert "coverage" not in summary.metrics

    def test_coverage_counts_what_was_asked_for(self):
        cases = [
            self.answers(2, 4),
            self.answers(2, 4, 5, valid=np.array([True, False, False])),
            self.answers(status="infeasible"),
            self.answers(status="budget"),
            self.answers(status="already"),
            self.answers(status="skipped"),
        ]
        summary = m.summarize(cases, ids=["validity"])
        assert (summary.coverage.mean, summary.coverage.queries) == (1.5 / 4, 4)
        assert summary.infeasible == 0.25
        assert summary.metrics["validity"].mean == pytest.approx((1 + 1 / 3) / 2)
        assert m.coverage(np.ones(5, bool), 2, "found") == 1
        with pytest.raises(InputError):
            m.coverage(np.ones(1, bool), 0, "found")

    def test_nothing_at_all(self):
        summary = m.summarize([])
        assert summary.coverage == summary.metrics["gower"] == m.Aggregate(None, None, 0)
        assert summary.infeasible is None

    def test_what_is_known_beside_the_rows(self):
        background = np.linspace(0, 10, 60)[:, np.newaxis]
        known = {"inliers": m.Inliers.fit(self.space, background), "wishes": m.Wishes({"v": (0, 5)})}
        near, far = self.answers(50, 4, **known), self.answers(50, **known)
        nothing, already = self.answers(status="not_found", **known), self.answers(status="already", **known)
        found = m.summarize([near, far, nothing, already], ids=["plausibility", "actionability", "feasibility"]).metrics
        assert (found["feasibility"].mean, found["feasibility"].queries) == (pytest.approx(1 / 3), 3)
        assert (found["plausibility"].mean, found["plausibility"].queries) == (0.25, 2)
        assert (found["actionability"].mean, found["actionability"].queries) == (0.25, 2)
        plans = (m.Steps((1, 2), (1, 0.5)), m.Steps((4,)))
        told = m.measure(self.answers(1, 2, plans=plans, satisfied=np.array([True, False]), spent={"seconds": 0.2}))
        assert [told[f"{name}"] for name in ("sequence_cost", "discounted_cost", "sequence_length")] == [3.5, 3, 1.5]
        assert (told["constraint_satisfaction"], told["seconds"], told["model_calls"]) == (0.5, 0.2, None)

    def test_misuse(self):
        with pytest.raises(InputError, match="gower"):
            m.measure(self.answers(1), ids=["gowers"])
        with pytest.raises(InputError, match="valid"):
            self.answers(1, valid=np.ones(2, bool))

    def test_the_catalog_is_closed_and_says_which_way_is_better(self):
        assert {metric.better for metric in m.METRICS.values()} == {"up", "down", "relative"}
        assert all(name == metric.id for name, metric in m.METRICS.items())
        with pytest.raises(TypeError):
            m.METRICS["mine"] = None
