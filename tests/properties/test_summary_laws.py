"""Summaries turn as many rows as the best choice among all, every row for sure, and say what none can exceed."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import Condition, absent, same
from exact_worlds import layers_of
from forest_worlds import RULES, forest_model
from hypothesis import given
from hypothesis import strategies as st
from laws import dear, many
from summary_worlds import Aim, most_covered, turned_by, turned_into
from worlds import GRADES, KEYS, background, checker_of, explained, row_dicts, space_of, table, wide_rows

from mlflow_cf.evaluation.measure.cohorts import Cohorts, cohorts
from mlflow_cf.evaluation.summary import asking
from mlflow_cf.evaluation.summary.bits import counts, flags_of, packed, weights_of
from mlflow_cf.evaluation.summary.clock import Clock
from mlflow_cf.evaluation.summary.cover import _Search, best_cover, covered_by, greedy_cover
from mlflow_cf.evaluation.summary.family import WholeFamily, every_move
from mlflow_cf.evaluation.summary.lawful import LawfulMoves
from mlflow_cf.evaluation.summary.refused import RefusedRows
from mlflow_cf.evaluation.summary.table import asked, by_scores, by_structure, decided_by_one
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.structures import score_rows

seeds = st.integers(0, 40)
constraint_dicts = st.fixed_dictionaries(
    {}, optional={**KEYS, "rules": st.lists(st.sampled_from(RULES), min_size=1, max_size=2, unique=True)}
)
some_rows = st.lists(wide_rows, min_size=1, max_size=12)


def rank(grade: Any) -> float:
    """Return the rank of a grade; NaN, which compares with nothing, where it has none."""
    return float(GRADES.index(grade)) if grade in GRADES else np.nan


def number(value: Any) -> float:
    return np.nan if absent(value) else float(value)


def at_least(one: Any, other: Any) -> bool:
    return same(one, other) or number(one) >= number(other)


# What `RULES` say, written out a second time: the row to explain, and the changed one.
CONDITIONS: dict[str, Condition] = dict(
    zip(
        RULES,
        (
            lambda x, z: not rank(z["grade"]) > rank(x["grade"]) or z["age"] >= x["age"] + 1,
            lambda x, z: not number(z["income"]) > number(x["income"]) or at_least(z["rooms"], x["rooms"]),
            lambda _, z: z["job"] != "a" or z["member"],
            lambda _, z: z["age"] + number(z["rooms"]) <= 26,
            lambda _, z: not (z["member"] and z["age"] < 23) or number(z["income"]) <= 1,
            lambda x, z: z["age"] <= x["age"] or not same(z["income"], x["income"]),
        ),
        strict=True,
    )
)


def layer_model(seed: int, frame: pd.DataFrame, hidden: int) -> OpenModel:
    """Return a random linear model, or a network with one hidden layer."""
    space = space_of(frame)
    layers = layers_of(space, np.random.default_rng(seed), "two", np.array([-0.3]), hidden)

    def score(rows: pd.DataFrame) -> np.ndarray:
        return score_rows(layers, space.covering(rows).encode(rows))

    def decide(rows: pd.DataFrame) -> np.ndarray:
        return np.array(["no", "yes"])[score(rows).argmax(axis=1)]

    return OpenModel("test", ("no", "yes"), decide, score, "probability", compile=lambda _space, _rows: layers)


def model_of(kind: str, seed: int, frame: pd.DataFrame) -> OpenModel:
    if kind in ("linear", "network"):
        return layer_model(seed, frame, 3 if kind == "network" else 0)
    if kind == "classes":
        return forest_model(seed, frame, ("no", "yes", "perhaps"))
    model = forest_model(seed, frame)
    return replace(model, compile=None) if kind == "closed" else model


def aims_of(found: Cohorts) -> list[tuple[Aim, ...]]:
    """Return the changes of a summary as they are written here."""
    moved = [[next((n, v) for n, v in one.items() if n != "feature") for one in item.changes] for item in found.items]
    names = [[str(one["feature"]) for one in item.changes] for item in found.items]
    return [
        tuple((name, *bound) for name, bound in zip(some, bounds, strict=True))
        for some, bounds in zip(names, moved, strict=True)
    ]


@dear(2)
@given(
    st.sampled_from(["trees", "trees", "linear", "network", "classes", "closed"]),
    seeds, constraint_dicts, some_rows, st.integers(1, 3),
)  # fmt: skip
def test_a_summary_is_the_best_choice_of_all(
    kind: str, seed: int, constraints: dict[str, Any], rows: list[dict[str, Any]], most: int
) -> None:
    frame = background(seed)
    model = model_of(kind, seed, frame)
    wrapped, raw = explained(model, frame, constraints), table(rows, frame)
    refused = [row for row, label in zip(row_dicts(raw), model.decide(raw), strict=True) if label != "yes"]
    conditions = tuple(CONDITIONS[rule] for rule in constraints.get("rules", ()))
    turned = turned_by(frame, refused, model, replace(checker_of(model, frame, constraints), rules=conditions))
    found = cohorts(wrapped, raw, most=most)
    assert found.rows == len(refused)
    best, total = most_covered(list(turned.values()), most), max(found.rows, 1)
    assert found.proof == "optimal"
    assert (found.covered * total, found.bound * total) == (pytest.approx(best), pytest.approx(best))
    assert found.greedy <= found.covered
    left = 2 ** len(refused) - 1
    for item, change in zip(found.items, aims_of(found), strict=True):  # and each row that is counted is turned
        assert (turned[change] & left).bit_count() == item.turned
        left &= ~turned[change]


@given(st.sampled_from(["trees", "linear", "network", "network"]), seeds, constraint_dicts, some_rows)
def test_a_table_has_what_the_model_says_of_every_candidate(
    kind: str, seed: int, constraints: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    """Moves and pairs are told from inside of the model; then each by itself is told by the model."""
    frame = background(seed)
    wrapped, raw = explained(model_of(kind, seed, frame), frame, constraints), table(rows, frame)
    refused = RefusedRows.of(wrapped, raw, None)
    structure = decided_by_one(refused)
    if structure is None or not len(refused):
        assert kind == "network" or not len(refused)  # its units are not rectified
        return
    lawful = LawfulMoves(refused.bound_policy, refused.space, refused.X, ())
    family = WholeFamily.of(replace(lawful, moves=every_move(lawful)), structure, 10**6)
    found = by_structure(refused, family, structure, Clock())
    expected = by_scores(refused, family, np.arange(len(refused)), asked(refused), Clock())
    assert (found.unscored == refused.unread).all()
    read = packed(~refused.unread)
    assert (found.bits & read == expected.bits & read).all()
    assert not expected.unscored.any()


@dear(4)
@given(seeds, constraint_dicts, some_rows, st.sampled_from([1, 40, 400]))
def test_a_bound_on_a_grid_holds_for_the_grid(
    seed: int, constraints: dict[str, Any], rows: list[dict[str, Any]], bits: int
) -> None:
    frame = background(seed)
    model = forest_model(seed, frame)
    wrapped, raw = explained(model, frame, constraints), table(rows, frame)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asking, "MOST_BITS", bits * max(len(rows), 1))
        found = cohorts(wrapped, raw, most=2)
    whole = cohorts(wrapped, raw, most=2)
    assert found.covered <= found.bound <= whole.bound
    assert ("grid" in found.family) or found.bound == whole.bound


def covers(seed: int) -> tuple[np.ndarray, int]:
    """Return random sets of rows, as flags (c, n), and how many may be chosen."""
    rng = np.random.default_rng(seed)
    flags = rng.random((int(rng.integers(1, 14)), int(rng.integers(1, 150)))) < rng.choice([0.05, 0.15, 0.3, 0.5])
    return flags, int(rng.integers(1, 5))


def first(ties: np.ndarray, left: np.ndarray) -> int:
    del left
    return int(ties[0])


@pytest.mark.parametrize("seed", range(many(100, 1_000)))
def test_the_best_cover_is_that_of_enumeration(seed: int) -> None:
    flags, most = covers(seed)
    bits, rows = packed(flags), flags.shape[1]
    best = max(
        int(flags[list(some)].any(axis=0).sum()) for some in combinations(range(len(flags)), min(most, len(flags)))
    )
    found = best_cover(bits, rows, most, first, Clock())
    assert (found.covered, found.bound, found.optimal) == (best, best, True)
    assert covered_by(bits, found.chosen) == best
    assert len(found.chosen) <= most
    assert found.greedy <= best


@pytest.mark.parametrize("seed", range(many(100, 1_000)))
def test_no_bound_is_below_the_optimum(seed: int) -> None:
    flags, most = covers(seed)
    bits, rows = packed(flags), flags.shape[1]
    best = best_cover(bits, rows, most, first, Clock()).covered
    greedy = greedy_cover(bits, rows, most, first)
    assert greedy.covered <= best <= greedy.bound
    assert greedy.covered >= (1 - np.exp(-1)) * best
    search = _Search(bits, rows, most, greedy)
    search.relax(Clock())
    assert search.covered <= best <= search.bound <= greedy.bound
    late = best_cover(bits, rows, most, first, Clock(0.0))
    assert (late.covered, late.bound) == (greedy.covered, greedy.bound)


@given(st.integers(0, 200), st.integers(1, 6), st.integers(0, 300))
def test_sets_of_bits_are_sets(seed: int, sets: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    flags, mask, weights = rng.random((sets, rows)) < 0.5, rng.random(rows) < 0.5, rng.random(rows)
    assert (flags_of(packed(flags), rows) == flags).all()
    assert (counts(packed(flags), packed(mask)) == (flags & mask).sum(axis=1)).all()
    np.testing.assert_allclose(weights_of(packed(flags), weights), flags @ weights, atol=1e-12)


def test_turning_twice_is_turning_once() -> None:
    row = {"age": 20, "income": None, "grade": "odd", "job": "a", "member": False, "rooms": 2}
    change: tuple[Aim, ...] = (("age", "at_least", 23), ("grade", "equal", "mid"))
    once = turned_into(row, change)
    assert turned_into(once, change) == once == {**row, "age": 23, "grade": "mid"}
