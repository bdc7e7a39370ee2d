"""Rows as vectors and back, and rows moved to what may be proposed, against slow readings of what they promise."""

import math
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import assume, given
from hypothesis import strategies as st
from worlds import AGES, FEATURES, GRADES, INCOMES, KEYS, ROOMS, background, bind, space_of, table, wide_rows

from mlflow_cf.constraints import Constraints
from mlflow_cf.features import UNIT_MISMATCH, Embedding, FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Group, Problem
from mlflow_cf.search.snapping import Snapping

seeds = st.integers(0, 200)
scales = st.sampled_from(["range", "deviation", "mad"])
weights = st.sampled_from([1.0, UNIT_MISMATCH])
constraint_dicts = st.fixed_dictionaries({}, optional={key: KEYS[key] for key in KEYS if key != "max_changes"})


def known(found: np.ndarray, wanted: np.ndarray) -> bool:
    return np.array_equal(found, wanted, equal_nan=True)


# ----------------------------------------------------------------------------------------------------- embedding


@given(seeds, scales, weights)
def test_a_background_row_comes_back_as_it_was(seed, scale, weight):
    frame = background(seed)
    space = space_of(frame)
    rows = space.encode(frame)
    embedding = Embedding.fit(space, rows, scale, weight)
    back = embedding.rows(embedding.vectors(rows))
    filled = embedding.filled(rows)
    assert known(filled, np.isnan(rows))
    assert known(back[~filled], rows[~filled])
    # what was filled in comes back as the median or the most frequent level; of an ordinal as the rank next to it
    grade = space.index["grade"]
    wanted = np.where(np.arange(len(space)) == grade, np.ceil(embedding.fill - 0.5), embedding.fill)
    assert np.allclose(back[filled], np.broadcast_to(wanted, rows.shape)[filled], rtol=0, atol=1e-12)
    for row in rows:
        assert known(embedding.rows(embedding.vectors(row[None]), like=row)[0], row)


thousandths = st.integers(-(10**9), 10**9).map(lambda number: number / 1000)


@given(st.lists(thousandths, min_size=2, max_size=30).filter(lambda values: len(set(values)) > 1), scales)
def test_any_fractions_come_back_exactly(values, scale):
    frame = pd.DataFrame({"v": values})
    space = FeatureSpace.infer(frame)
    rows = space.encode(frame)
    embedding = Embedding.fit(space, rows, scale)
    V = embedding.vectors(rows)
    assert known(embedding.rows(V), rows)
    if scale == "range":
        assert (V.min(), V.max()) == (0, 1)


@given(seeds, st.lists(wide_rows, min_size=1, max_size=5), scales, weights)
def test_vectors_feature_by_feature(seed, asked, scale, weight):
    frame = background(seed)
    query = table(asked, frame)
    base = space_of(frame)
    rows = base.encode(frame)
    space = base.covering(query)
    embedding = Embedding.fit(base, rows, scale, weight)
    for row, vector in zip(space.encode(query), embedding.vectors(space.encode(query)), strict=True):
        slow = [part for column, code in enumerate(row) for part in slow_part(base, rows, column, code, scale, weight)]
        assert vector.tolist() == slow


def slow_part(
    space: FeatureSpace, rows: np.ndarray, column: int, code: float, scale: str, weight: float
) -> list[float]:
    feature, codes = space.features[column], rows[:, column]
    codes = codes[~np.isnan(codes)]
    if feature.kind in ("category", "boolean"):
        if math.isnan(code):
            code = min(set(codes.tolist()), key=lambda level: (-(codes == level).sum(), level))
        return [code] if feature.kind == "boolean" else [weight * (code == at) for at in range(len(feature.levels))]
    if math.isnan(code) or (feature.levels and code >= len(feature.levels)):
        code = float(np.median(codes))
    centre = {"range": feature.low, "mad": np.median(codes), "deviation": np.mean(codes)}[scale]
    width = {"range": feature.high - feature.low, "mad": feature.mad, "deviation": np.std(codes, ddof=1)}[scale]
    return [(code - centre) / width]


@given(seeds, st.sampled_from(["job", "member"]), scales)
def test_one_mismatch_is_a_distance_of_one(seed, name, scale):
    frame = background(seed)
    space = space_of(frame)
    rows = space.encode(frame)
    embedding = Embedding.fit(space, rows, scale, UNIT_MISMATCH)
    rows = rows[~np.isnan(rows).any(axis=1)]
    other = rows.copy()
    column = space.index[name]
    other[:, column] = (rows[:, column] + 1) % len(space[name].levels)
    assert np.allclose(np.linalg.norm(embedding.vectors(rows) - embedding.vectors(other), axis=1), 1, rtol=1e-12)


# ------------------------------------------------------------------------------------------------------ snapping


@st.composite
def problems(draw, values=("observed", "grid", "continuous")) -> Problem:
    """One row bound to a small problem without rules over several groups."""
    frame = background(draw(seeds))
    kind = draw(st.sampled_from(values))
    steps: dict[str, Any] = {"income": {"step": 0.5}} if kind == "grid" else {}
    space = FeatureSpace.infer(frame, {**FEATURES, **steps})
    constraints = Constraints.read(draw(constraint_dicts))
    bound_policy = BoundPolicy.build(space, space.encode(frame), constraints, Distance(), kind)
    return bind(bound_policy, table([draw(wide_rows)], frame))


number = st.integers(-8, 240).map(lambda eighths: eighths / 8)


@st.composite
def wanted_rows(draw, problem: Problem) -> np.ndarray:
    """Rows of numbers anywhere, any level, and values of the row to explain."""
    parts = []
    for feature, own in zip(problem.space.features, problem.x0.tolist(), strict=True):
        codes = st.sampled_from(range(len(feature.levels))).map(float) if feature.levels else number
        parts.append(codes | st.just(own) | st.just(math.nan))
    return np.array(draw(st.lists(st.tuples(*parts), min_size=1, max_size=6)))


@st.composite
def boxes(draw) -> np.ndarray | None:
    if draw(st.booleans()):
        return None
    ends = {"age": AGES, "income": INCOMES, "grade": range(len(GRADES)), "rooms": ROOMS}
    pairs = [sorted(draw(st.tuples(*[st.sampled_from(values)] * 2))) for values in ends.values()]
    age, income, grade, rooms = [[low, high if draw(st.booleans()) else math.nan] for low, high in pairs]
    return np.array([age, income, grade, [math.nan] * 2, [math.nan] * 2, rooms]).T


cases = problems().flatmap(lambda problem: st.tuples(st.just(problem), wanted_rows(problem), boxes()))


@given(cases)
def test_every_group_goes_to_the_nearest_of_its_tuples(case):
    problem, Z, box = case
    found = Snapping(problem, box).codes(Z)
    for row, codes in zip(np.where(np.isnan(Z), problem.x0, Z), found, strict=True):
        for group, code in zip(problem.groups, codes.tolist(), strict=True):
            assert code == slow_code(problem, group, row, box), (group.columns, row)


def slow_code(problem: Problem, group: Group, row: np.ndarray, box: np.ndarray | None) -> int:
    offered = [code for code in range(len(group.actions)) if code != group.own or group.own_allowed]
    if not offered:
        return group.own
    if len(group.columns) > 1:
        return min(offered, key=lambda code: slow_distance(problem, group, row, group.actions[code]))
    (column,) = group.columns
    feature, wanted = problem.space.features[column], row[column]
    own, values = problem.x0[column], {code: group.actions[code, 0] for code in offered}
    if feature.has_order:
        low, high = (
            (-math.inf, math.inf) if box is None else np.where(np.isnan(box[:, column]), math.inf, box[:, column])
        )
        ranked = [code for code in offered if values[code] < feature.unknown_from]
        inside = [code for code in ranked if low <= values[code] <= high or code == group.own]
        left = inside or ([] if group.own_allowed else ranked)
        if left and wanted < feature.unknown_from:
            toward = {code: 0 if math.isnan(abs(values[code] - own)) else abs(values[code] - own) for code in left}
            return min(left, key=lambda code: (abs(values[code] - wanted), toward[code], values[code]))
        offered = left or offered
    else:
        found = [code for code in offered if values[code] == wanted]
        offered = found or offered
        if found:
            return found[0]
    return group.own if group.own_allowed else offered[0]


def slow_distance(problem: Problem, group: Group, row: np.ndarray, offered: np.ndarray) -> float:
    total = 0.0
    for column, value in zip(group.columns, offered.tolist(), strict=True):
        feature, wanted = problem.space.features[column], float(row[column])
        if math.isnan(wanted) or math.isnan(value):
            total += math.isnan(wanted) != math.isnan(value)
        elif feature.has_order and wanted < feature.unknown_from and value < feature.unknown_from:
            total += abs(value - wanted) / (feature.high - feature.low)
        else:
            total += value != wanted
    return total


@given(cases)
def test_a_snapped_row_may_be_proposed_and_stays(case):
    problem, Z, box = case
    snapping = Snapping(problem, box)
    rows = snapping.rows(Z)
    assert known(snapping.rows(rows), rows)
    assert not (np.isnan(rows) & ~np.isnan(problem.x0)).any()
    if not problem.never and all(group.own_allowed or group.proposals for group in problem.groups):
        assert (problem.check(rows) == problem.changed(rows).any(axis=1)).all()
    if all(group.interval is None for group in problem.groups):
        assert known(rows, problem.rows(snapping.codes(Z)))


@given(problems(("continuous",)).flatmap(lambda p: st.tuples(st.just(p), wanted_rows(p), boxes())))
def test_a_continuous_number_moves_no_farther_than_it_must(case):
    problem, Z, box = case
    snapping = Snapping(problem, box)
    rows, tuples = snapping.rows(Z), problem.rows(snapping.codes(Z))
    column = problem.space.index["income"]
    group = next(group for group in problem.groups if column in group.columns)
    assume(group.interval is not None)
    low, high = group.interval
    if box is not None:
        low, high = np.fmax(low, box[0, column]), np.fmin(high, box[1, column])
    wishes = np.where(np.isnan(Z[:, column]), problem.x0[column], Z[:, column])
    for wanted, found, listed in zip(wishes, rows[:, column], tuples[:, column], strict=True):
        assert not abs(found - wanted) > abs(listed - wanted)
        row = problem.x0.copy()
        row[column] = wanted
        if math.isnan(wanted):
            assert known(found, listed)
        elif low <= wanted <= high and all(rule.holds(row[None], problem.x0)[0] for rule in group.rules):
            assert found == wanted


@given(problems(), scales, st.data())
def test_vectors_of_what_may_be_proposed_are_read_as_they_were(problem, scale, data):
    embedding = Embedding.fit(problem.space, problem.background, scale)
    x0 = problem.x0[None]
    assume(not (embedding.filled(x0) | embedding.unseen(x0)).any())
    snapping = Snapping(problem)
    rows = snapping.rows(data.draw(wanted_rows(problem)))
    read = snapping.rows(snapping.read(embedding, embedding.vectors(rows)))
    exact = np.array([problem.space.features[c].name != "income" for c in range(len(problem.space))])
    assert known(read[:, exact], rows[:, exact])
    assert np.allclose(read, rows, rtol=1e-14, atol=1e-14)


@given(problems(), st.data())
def test_of_a_block_the_best_admissible_level(problem, data):
    embedding = Embedding.fit(problem.space, problem.background)
    places = st.sampled_from([0, 0.2, 0.5, 0.7, 1])
    V = np.array(data.draw(st.lists(st.tuples(*[places] * embedding.width), min_size=1, max_size=6)))
    snapping, job = Snapping(problem), problem.space.index["job"]
    codes = snapping.rows(snapping.read(embedding, V))[:, job]
    group = problem.groups[problem.owner[job]]
    assume(len(group.columns) == 1)
    kept = group.actions[:, 0][(np.arange(len(group.actions)) != group.own) | group.own_allowed]
    admissible = [level for level in range(3) if level in kept.tolist()]
    own = embedding.vectors(problem.x0[None])[0, embedding.blocks[job]]
    for vector, code in zip(V[:, embedding.blocks[job]], codes, strict=True):
        if known(vector, own) and group.own_allowed:
            assert known(code, problem.x0[job])
        elif admissible and not known(vector, own):
            assert code == min(admissible, key=lambda level: (-vector[level], level))
        else:
            assert known(code, problem.x0[job]) or code in admissible


@given(problems())
def test_the_vector_of_the_row_to_explain_is_that_row(problem):
    embedding = Embedding.fit(problem.space, problem.background)
    read = Snapping(problem).read(embedding, embedding.vectors(problem.x0[None]))
    assert known(read, problem.x0[None])
