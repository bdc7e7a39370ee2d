"""Some of several models must accept an answer: exact search finds what trying every row finds, and bounds hold."""

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import bounding, dear
from scipy.stats import beta
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from worlds import problem_of

import mlflow_cf
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.listed import Listed
from mlflow_cf.engine.nodes import whole_box
from mlflow_cf.goal import BoundTarget, Scorer, Votes
from mlflow_cf.goal.scorer import lower_bound, may_meet, upper_bound
from mlflow_cf.goal.targets import lacking, rate_sums
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.policy import Target
from mlflow_cf.policy.survival import confidence_of, models_for, needed_of, share_held
from mlflow_cf.problem import Budget
from mlflow_cf.problem.actions import Within
from mlflow_cf.structures import score_rows
from mlflow_cf.survival.stored import from_arrays, to_arrays

ESTIMATORS: dict[str, Any] = {
    "tree": lambda seed: DecisionTreeClassifier(max_depth=3, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(3, max_depth=3, random_state=seed),
    "linear": lambda seed: LogisticRegression(C=1.0 + seed % 3),
    "boosting": lambda seed: GradientBoostingClassifier(
        n_estimators=3, learning_rate=0.8, max_depth=2, random_state=seed
    ),
}


class Drawn(NamedTuple):
    """Data, a model and others like it that are fitted to parts of the data, and how many of these must agree."""

    seed: int
    model: str
    models: int
    misses: int
    classes: int

    @property
    def frame(self) -> pd.DataFrame:
        rng = np.random.default_rng(self.seed)
        return pd.DataFrame(rng.integers(0, [4, 4, 5], (50, 3)) / [1, 2, 4], columns=["a", "b", "c"])

    @property
    def needed(self) -> int:
        return max(1, self.models - self.misses)

    @property
    def fitted(self) -> list[Any]:
        rng, frame, models = np.random.default_rng(self.seed + 1), self.frame, []
        total = frame.sum(axis=1) + rng.normal(0, 0.7, len(frame))
        wanted = (total > 3.0).astype(int) + (total > 4.5).astype(int) * (self.classes > 2)
        for at in range(1 + self.models):
            some = rng.choice(len(frame), 35, replace=False)
            assume(wanted.iloc[some].nunique() == self.classes)
            models.append(ESTIMATORS[self.model](at).fit(frame.iloc[some], wanted.iloc[some]))
        return models


worlds = st.builds(
    Drawn,
    st.integers(0, 2**16),
    st.sampled_from(list(ESTIMATORS)),
    st.integers(2, 6),
    st.integers(0, 3),
    st.sampled_from([2, 2, 3]),
)


@pytest.fixture(autouse=True)
def _one_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small worlds have few models, of which one bounds the others here."""
    monkeypatch.setattr(thresholds, "HARDEST", 1)
    monkeypatch.setattr(thresholds, "ASKED_AT_ONCE", 2)


def wrapped(world: Drawn, models: list[Any], margin: float = 0.0, **options: Any) -> Any:
    sure = confidence_of(world.needed, world.models, 0.5) - 1e-9
    asked = {"holds": 0.5, "confidence": sure, "compared": 1, "models": models[1:], "margin": margin}
    explained = mlflow_cf.wrap(models[0], world.frame, target=1, survival=asked, **options)
    assert explained.policy.survival.needed == world.needed
    return explained


def accepted(world: Drawn, models: list[Any], rows: pd.DataFrame, margin: float = 0.0) -> np.ndarray:
    met = [model.predict(rows) == 1 for model in models[1:]]
    if margin:
        likely = [model.predict_proba(rows)[:, 1] >= 0.5 + margin for model in models[1:]]
        met = [one & enough for one, enough in zip(met, likely, strict=True)]
    agreeing = np.sum(met, axis=0)
    return np.asarray((models[0].predict(rows) == 1) & (agreeing >= world.needed))


@dear(1)
@given(worlds, st.sampled_from([0.0, 0.0, 0.1037]))  # shares of trees are round: none is next to 0.6037
def test_the_nearest_that_enough_models_accept_is_found(world: Drawn, margin: float) -> None:
    models, frame = world.fitted, world.frame
    explained = wrapped(world, models, margin)
    assume(explained.context.required.structure is not None)
    missed = np.flatnonzero(models[0].predict(frame) != 1)
    assume(len(missed))
    row = frame.iloc[missed[:1]]
    (found,) = explained.explain(row, certify=True)
    every = pd.DataFrame(list(product(*(sorted(frame[name].unique()) for name in frame))), columns=frame.columns)
    every = every[(every != row.iloc[0]).any(axis=1)].reset_index(drop=True)
    good = every[accepted(world, models, every, margin)]
    if good.empty:
        assert (found.status, found.counterfactuals) == ("infeasible", ())
        return
    (answer,) = found.counterfactuals
    space, metric = explained.space, explained.bound_policy.bound_distance
    nearest = metric.distance(((0,), (1,), (2,)), space.encode(good), space.encode(row)[0]).min()
    assert (found.status, answer.proof) == ("found", "optimal")
    assert answer.distance == pytest.approx(nearest, abs=1e-12)
    assert (good == pd.Series(answer.row)).all(axis=1).any()
    agreeing = sum(int(model.predict(pd.DataFrame([answer.row]))[0] == 1) for model in models[1:])
    assert answer.survival is not None
    assert answer.survival.models == world.models
    assert answer.survival.agreeing == agreeing or (margin and world.needed <= answer.survival.agreeing <= agreeing)


def five_columns(
    seed: int, name: str, count: int, least: float, more: float = np.inf
) -> tuple[list[Any], pd.DataFrame]:
    """Return a model and so many others like it, and their data, of which often several columns must change.

    The sum of a row must be `least` or more for class 1, and so much `more` for class 2.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 3, (80, 5)) / [1, 2, 1, 4, 1], columns=list("abcde"))
    total = frame.sum(axis=1) + rng.normal(0, 0.4, 80) - least
    labels = (total > 0).astype(int) + (total > more)
    models = [ESTIMATORS[name](at) for at in range(count + 1)]
    for model in models:
        some = rng.choice(80, 60, replace=False)
        assume(labels.iloc[some].nunique() == 2 + (more < np.inf))
        model.fit(frame.iloc[some], labels.iloc[some])
    return models, frame


def all_accepting(models: list[Any], frame: pd.DataFrame, c: float, **options: Any) -> Any:
    """Return explanations that all of some models must accept; `c` is the weight of the largest change."""
    sure = confidence_of(len(models) - 1, len(models) - 1, 0.5) - 1e-9
    asked = {"holds": 0.5, "confidence": sure, "compared": 1, "models": models[1:]}
    distance = mlflow_cf.Distance(l0=0.3, l1=0.7 - c, linf=c)
    return mlflow_cf.wrap(models[0], frame, target=1, survival=asked, distance=distance, **options)


@dear(2)
@given(
    st.integers(0, 2**16),
    st.sampled_from(["tree", "forest"]),
    st.integers(2, 6),
    st.sampled_from([3.5, 4.8, 5.6]),
    st.sampled_from([0.0, 0.5]),
    st.integers(20, 2_000),
)
def test_several_changes_that_all_models_accept_are_the_nearest_there_are(
    seed: int, name: str, count: int, least: float, c: float, evaluations: int
) -> None:
    models, frame = five_columns(seed, name, count, least)
    explained = all_accepting(models, frame, c)
    every = pd.DataFrame(list(product(*(sorted(frame[column].unique()) for column in frame))), columns=frame.columns)
    good = every[np.logical_and.reduce([model.predict(every) == 1 for model in models])]
    refused = frame[models[0].predict(frame) == 0]
    assume(len(refused))
    row = refused.loc[[refused.sum(axis=1).idxmin()]]  # it needs most changes
    (found,) = explained.explain(row, certify=True)
    if good.empty:
        assert (found.status, found.counterfactuals) == ("infeasible", ())
        return
    space, metric = explained.space, explained.bound_policy.bound_distance
    nearest = metric.distance(tuple((at,) for at in range(5)), space.encode(good), space.encode(row)[0]).min()
    (answer,) = found.counterfactuals
    assert answer.proof == "optimal"
    assert answer.distance == pytest.approx(nearest, abs=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "BOUNDS_PER_ROW", 4)
        (hasty,) = explained.explain(row, certify=True, max_evaluations=evaluations)
    assert hasty.status != "infeasible"
    for near in hasty.counterfactuals:
        assert near.distance >= nearest - 1e-12
        assert near.bound is None or near.bound <= nearest + 1e-9
        assert near.proof != "optimal" or near.distance == pytest.approx(nearest, abs=1e-12)
    assert all(model.predict(pd.DataFrame([answer.row]))[0] == 1 for model in models)


@dear(1)
@given(
    st.tuples(
        st.integers(0, 2**16),
        st.sampled_from(["tree", "forest", "boosting"]),
        st.sampled_from([2.5, 3.5]),
        st.sampled_from([0.0, 0.5]),
        st.sampled_from([np.inf, 2.0]),
    ),
    st.tuples(st.integers(2, 4), st.integers(2, 3)),
    st.sampled_from([[], ["IF x_cf.c > 0 THEN x_cf.a > 0"]]),
    st.integers(20, 2_000),
)
def test_several_answers_that_all_models_accept_are_the_nearest_of_their_sets(
    world: tuple[int, str, float, float, float], many: tuple[int, int], rules: list[str], evaluations: int
) -> None:
    (seed, name, least, c, more), (count, wanted) = world, many
    models, frame = five_columns(seed, name, count, least, more)
    refused = frame[models[0].predict(frame) == 0]
    refused = refused[(refused["c"] == 0) | (refused["a"] > 0)]
    assume(len(refused))
    explained = all_accepting(models, frame, c, constraints=mlflow_cf.Constraints(rules=rules))
    row = refused.iloc[:1]
    (found,) = explained.explain(row, count=wanted, certify=True, max_evaluations=400_000)
    assert not any(one.proof == "bounded" for one in found.counterfactuals)
    nearest = nearest_of_sets(explained, models, frame, row)[:wanted]
    distances = [one.distance for one in found.counterfactuals]
    assert distances[: len(nearest)] == pytest.approx(nearest, abs=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "BOUNDS_PER_ROW", 4)
        (hasty,) = explained.explain(row, count=wanted, certify=True, max_evaluations=evaluations)
    assert not nearest or hasty.status != "infeasible"
    for one, far in zip(hasty.counterfactuals, nearest, strict=False):
        assert one.distance >= far - 1e-12
        assert one.bound is None or one.bound <= far + 1e-9
        assert one.proof != "optimal" or one.distance == pytest.approx(far, abs=1e-12)


def nearest_of_sets(explained: Any, models: list[Any], frame: pd.DataFrame, row: pd.DataFrame) -> list[float]:
    """Return how far the nearest row is of every set of changes that all models accept with, and need all of."""
    every = pd.DataFrame(list(product(*(sorted(frame[column].unique()) for column in frame))), columns=frame.columns)
    good = np.logical_and.reduce([model.predict(every) == 1 for model in models])
    if explained.policy.constraints.rules:
        good &= (every["c"] <= 0) | (every["a"] > 0)
    space, metric = explained.space, explained.bound_policy.bound_distance
    far = metric.distance(tuple((at,) for at in range(5)), space.encode(every), space.encode(row)[0])
    place, found = {tuple(one): at for at, one in enumerate(every.to_numpy().tolist())}, dict[tuple[bool, ...], float]()
    own = row.iloc[0].to_numpy()
    for at in np.flatnonzero(good)[np.argsort(far[good], kind="stable")].tolist():
        values = every.iloc[at].to_numpy()
        changed = values != own
        undone = [np.where(np.arange(5) == column, own, values) for column in np.flatnonzero(changed)]
        if not any(good[place[tuple(one.tolist())]] for one in undone):
            found.setdefault(tuple(changed.tolist()), float(far[at]))
    return list(found.values())


@dear(2)
@given(
    st.integers(0, 2**16),
    st.sampled_from(["tree", "forest"]),
    st.integers(2, 6),
    st.sampled_from([3.5, 4.8]),
    st.sampled_from([0.0, 0.5]),
    st.tuples(st.floats(1.3, 4.0), st.lists(st.integers(1, 100), max_size=3)),
)
def test_what_all_models_accept_is_listed_up_to_the_nearest(
    seed: int, name: str, count: int, least: float, c: float, asked: tuple[float, list[int]]
) -> None:
    limit, before = asked
    models, frame = five_columns(seed, name, count, least)
    explained = all_accepting(models, frame, c, constraints=mlflow_cf.Constraints(max_changes=4))
    refused = np.flatnonzero(models[0].predict(frame) == 0)
    assume(len(refused))
    required = explained.context.required
    scorer = required.scorer(required.targets(required.bound(Target(label=1), 0)))
    assume(scorer is not None)
    row = frame.iloc[refused[:1]]
    problem = replace(problem_of(explained, row), rate=scorer.rate, scorer=scorer)
    agreed = Engine(problem).agreed
    assert agreed is not None
    codes = np.array(list(product(*(range(len(group.actions)) for group in problem.groups))))
    codes = codes[np.isin((codes != problem.own).sum(axis=1), range(1, 5))]
    every = explained.space.decode(problem.rows(codes))
    share, far = np.min([model.predict_proba(every)[:, 1] for model in models], axis=0), problem.distance(codes)
    first = far[share > 0.5 + 1e-3].min(initial=np.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "BOUNDS_PER_ROW", 4)
        for evaluations in before:
            some = agreed.nearest(np.inf, 1e-5, budget := Budget(evaluations), 1.0)
            assert budget.used <= evaluations
            listed = {tuple(code) for code in some.codes.tolist()}
            near = (share > 0.5 + 1e-3) & (far <= min(some.low, first) - 1e-9)
            assert {tuple(code) for code in codes[near].tolist()} <= listed
            assert not some.whole or first == np.inf or np.isclose(problem.distance(some.codes), first, atol=1e-9).any()
    found = agreed.nearest(limit, 1e-6, Budget(10**7), 1.0)
    assert found.whole
    listed = {tuple(code) for code in found.codes.tolist()}
    assert listed <= {tuple(code) for code in codes[share > 0.5 - 1e-3].tolist()}
    assert {tuple(code) for code in codes[(share > 0.5 + 1e-3) & (far <= min(first, limit) - 1e-9)].tolist()} <= listed
    assert (problem.distance(found.codes) <= min(first, limit) + 1e-9).all()
    if first <= limit - 1e-9:
        assert np.isclose(problem.distance(found.codes), first, atol=1e-9).any()


@dear(4)
@given(worlds, st.integers(0, 2**16))
def test_the_hardest_models_bound_what_all_of_them_say(world: Drawn, seed: int) -> None:
    models, rng = world.fitted, np.random.default_rng(seed)
    explained = wrapped(world, models)
    space, requirements = explained.space, explained.context.required
    scorer = requirements.scorer(requirements.targets(requirements.bound(Target(label=1), 0)))
    assume(scorer is not None)
    encoded = scorer.encoded(range(3), space.encode(world.frame))
    hardest = scorer.hardest(scorer.structure.sums(encoded)[:1], 1)
    if 2 * (1 + world.models - world.needed) > world.models or world.model == "linear":
        assert hardest is None
        return
    few = hardest.scorer
    assert few.structure.sums(encoded).tolist() == scorer.structure.sums(encoded)[:, hardest.columns].tolist()
    votes = few.targets[1].votes
    assert votes == (1, 1 + world.models - world.needed)
    sums = few.structure.sums(encoded)
    favourable, met = scorer.rate_encoded(encoded).favourable, few.rate_sums(sums).favourable
    assert met[favourable].all()
    for _ in range(5):
        box = [column[rng.integers(0, 50, rng.integers(1, 5))] for column in encoded]
        all_low, all_high = scorer.structure.bounds(box)
        low, high = few.structure.bounds(box)
        whole = scorer.upper_bound(all_low[None], all_high[None], 1e-9)
        assert few.upper_bound(low[None], high[None], 1e-9) >= whole - 1e-9


@dear(4)
@given(worlds, st.integers(0, 49))
def test_what_a_few_models_refuse_is_not_asked_of_all(world: Drawn, at: int) -> None:
    explained = wrapped(world, world.fitted)
    requirements = explained.context.required
    scorer = requirements.scorer(requirements.targets(requirements.bound(Target(label=1), 0)))
    assume(scorer is not None)
    problem = replace(problem_of(explained, world.frame.iloc[[at]]), rate=scorer.rate, scorer=scorer)
    engine = Engine(problem)
    few = engine.hardest(None)
    assume(few is not None)
    actions, nothing = engine.within(np.inf), np.zeros(len(problem.groups), dtype=np.bool_)
    listed, within = Listed.of(actions, whole_box(actions)[0], nothing), Within(0.0, np.inf, 3)
    alone = listed.rated_alone(within, scorer, 1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "SET_UP", 0)
        patch.setattr(thresholds, "LISTED_PER_ROW", 1)
        asked = listed.rated(within, scorer, 1e-6, few)
        assert asked is not None
    assert asked.codes.tolist() == alone.codes.tolist()
    assert asked.certain.tolist() == alone.certain.tolist()
    assert not asked.checked.any()


@dear(4)
@given(worlds)
def test_several_answers_and_given_ones_are_accepted_by_enough_models(world: Drawn) -> None:
    models, frame = world.fitted, world.frame
    explained = wrapped(world, models)
    found = explained.explain(frame.iloc[:8], count=3)
    for one in found:
        for answer in one.counterfactuals:
            assert accepted(world, models, pd.DataFrame([answer.row]))[0]
    said = explained.verify(frame.iloc[[0]], frame, minimality=False)
    agreeing = np.sum([model.predict(frame) == 1 for model in models[1:]], axis=0)
    assert [one.requirements["survival"] for one in said] == (agreeing >= world.needed).tolist()


KINDS = [
    ("sigmoid", 1, 2),
    ("share", 1, 2),
    ("softmax", 3, 3),
    ("identity", 3, 3),
    ("sigmoid", 3, 3),
    ("identity", 1, 0),
]


@bounding()
@given(
    st.integers(0, 2**20),
    st.sampled_from(KINDS),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(["label", "other"]),
)
def test_votes_are_counted_and_bounded(
    seed: int, kind: tuple[Any, int, int], of: int, needed: int, wanted: str
) -> None:
    link, width, classes = kind
    rng, needed = np.random.default_rng(seed), min(needed, of)
    model = OpenModel("test", tuple(range(classes)), lambda rows: rows, score_kind="probability")
    target = Target.other() if wanted == "other" and classes else Target(label=1) if classes else Target(low=0.2)
    many = BoundTarget(target, model, 0, votes=Votes(needed, of)).of_sums(link, 0, width * of)
    alone = [BoundTarget(target, model, 0).of_sums(link, at * width, width) for at in range(of)]
    scale = 0.5 if link == "share" else 2.0
    low = rng.normal(0.5 if link == "share" else 0.0, scale, (20, width * of)).round(1)
    high = low + rng.exponential(scale / 4, low.shape)
    sums = low + rng.random(low.shape) * (high - low)
    met = np.stack([rate_sums(sums, [one])[0] for one in alone], axis=1)
    favourable, _, margin = rate_sums(sums, [many])
    assert favourable.tolist() == (met.sum(axis=1) >= needed).tolist()
    lacks = lacking(sums, [many])
    assert (favourable[lacks < -1e-9]).all()
    assert (~favourable[lacks > 1e-9]).all()
    nothing: Any = None
    may, sure = Scorer(nothing, nothing, (many,)).decisions(sums, 1e-9)
    assert may[favourable].all()
    assert favourable[sure].all()
    assert may.tolist() == sure.tolist() == favourable.tolist() or (margin <= 1e-6).any()
    most, least = upper_bound(low, high, [many], 1e-9), lower_bound(low, high, [many], 1e-9)
    assert (most[favourable & (margin > 1e-6)] >= 0).all()
    assert favourable[least > 0].all()
    assert may_meet(low, high, [many], 1e-9)[favourable].all()
    assert not may_meet(sums, sums, [many], 1e-9)[~favourable & (margin > 1e-6)].any()
    each = np.stack([upper_bound(low, high, [one], 1e-9) for one in alone], axis=1)
    assert most.tolist() == np.sort(each, axis=1)[:, of - needed].tolist()


@dear(4)
@given(
    st.integers(0, 2**16), st.sampled_from(["linear", "forest", "scaled"]), st.integers(1, 4), st.sampled_from([2, 3])
)
def test_models_of_a_kind_are_one_structure_that_arrays_give_back(
    seed: int, name: str, count: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.normal(size=60), "b": rng.integers(0, 4, 60) * 1.0, "c": rng.choice(list("xyz"), 60)}
    )
    frame.loc[rng.random(60) < 0.2, "b"] = np.nan
    labels = np.digitize(frame.a + frame.b.fillna(1) + (frame.c == "x"), [1.0, 2.5][: classes - 1])
    numbers = SimpleImputer() if name == "forest" else make_pipeline(SimpleImputer(), StandardScaler())
    coded = make_column_transformer((numbers, ["a", "b"]), (OneHotEncoder(handle_unknown="ignore"), ["c"]))
    models = []
    for at in range(count + 1):
        last = RandomForestClassifier(3, random_state=at) if name == "forest" else LogisticRegression()
        some = rng.integers(60, size=60)
        assume(len(np.unique(labels[some])) == classes and frame.c.iloc[some].nunique() == 3)
        models.append(make_pipeline(coded, last).fit(frame.iloc[some], labels[some]))
    explained = mlflow_cf.wrap(
        models[0], frame, target=1, survival={"holds": 0.5, "confidence": 0.1, "compared": 1, "models": models[1:]}
    )
    future, space = explained.extra_models.future, explained.space
    rows = frame.assign(a=rng.permutation(frame.a) * 2, b=rng.permutation(frame.b), c=rng.permutation(frame.c))
    expected = np.concatenate([model.predict_proba(rows) for model in models[1:]], axis=1)
    said = future.requirement.judge.outcome(rows).scores
    np.testing.assert_allclose(said, expected, atol=1e-9)
    again = from_arrays(*to_arrays(future.structure, space), space, count)
    codes = space.encode(rows)
    assert score_rows(again, codes).tobytes() == score_rows(future.structure, codes).tobytes()


@given(st.integers(1, 80), st.integers(0, 80), st.floats(0.05, 0.99), st.floats(0.05, 0.99))
def test_the_numbers_are_those_of_the_beta_distribution(
    of: int, agreeing: int, holds: float, confidence: float
) -> None:
    agreeing = min(agreeing, of)
    posterior = beta(1 + agreeing, 1 + of - agreeing)
    assert confidence_of(agreeing, of, holds) == pytest.approx(posterior.sf(holds), abs=1e-12)
    assert share_held(agreeing, of) == pytest.approx(posterior.mean())
    needed = needed_of(of, holds, confidence)
    shown = [confidence_of(k, of, holds) >= confidence for k in range(of + 1)]
    assert needed == (shown.index(True) if any(shown) else None)


def test_how_many_models_a_promise_takes() -> None:
    assert [models_for(0.95, 0.9, misses) for misses in range(3)] == [44, 76, 104]
    assert models_for(0.9, 0.9) == 21


@pytest.mark.parametrize("kind", ["a value per class in every leaf", "trees of each class"])
def test_some_raw_scores_of_trees_are_those_of_all(kind: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    labels = np.digitize(frame.a + frame.b, [-0.5, 0.5])
    estimator = RandomForestClassifier if kind.startswith("a value") else HistGradientBoostingClassifier
    options = {"n_estimators": 5} if kind.startswith("a value") else {"max_iter": 5}
    explained = mlflow_cf.wrap(estimator(random_state=0, **options).fit(frame, labels), frame, target=1)
    structure = explained.context.required.structure
    codes, some = explained.space.encode(frame), np.array([2, 0])
    encoded = [structure.encode(column, codes[:, column]) for column in range(3)]
    assert structure.outputs == 3
    assert structure.only(some).sums(encoded).tolist() == structure.sums(encoded)[:, some].tolist()
    low, high = structure.bounds([column[:3] for column in encoded])
    for found, whole in zip(structure.only(some).bounds([column[:3] for column in encoded]), (low, high), strict=True):
        np.testing.assert_allclose(found, whole[some], atol=1e-12)
