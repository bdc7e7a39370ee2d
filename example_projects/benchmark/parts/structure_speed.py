"""The opened model beside the model's own pipeline: the time of scores and of sweeps, and the same decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from cases.data_sets import Case
from parts.gates import FORESTS, Gate
from parts.measures import aligned

from mlflow_cf import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.structures import Structure, score_encoded, score_rows
from mlflow_cf.structures.capabilities import SupportsPairs
from mlflow_cf.structures.kernels.blocks import SingleEffects
from mlflow_cf.structures.pair_tables import no_threshold

SIZES = (1, 50, 1_000)
REPEATS = 31
PAIRS_REPEATS = 5
CHANGED = (1, 2, 3)  # features changed together
SAME_CHANGES = 100  # candidates that change the same features
SETS = 10  # of changed features, drawn at random
COMPARED = 100_000  # rows whose decisions are compared
# Time of the pipeline / time of the structure, at least; promised on Adult for the models named.
FASTER: Mapping[int, float] = {50: 40.0, 1_000: 4.0}
FASTER_MODELS = ("xgboost", "histgb", "forest", "mlp", "logistic")
SINGLES_MS, PAIRS_MS = 0.3, 15.0  # all single changes of a row of Adult, all pairs of changes; 100 trees


@dataclass(frozen=True, eq=False)
class Speed:
    """How fast a structure is; times are median CPU milliseconds.

    Attributes:
        score: batch size -> time of scoring a batch of encoded rows, as a search does.
        rows, pipeline: batch size -> time of scoring the same batch from its codes, and through the pipeline.
        differ: rows out of COMPARED on which the decisions differ.
        singles, pairs: how many rows one change, two changes make of a row.
        singles_sweep, singles_score: time of scoring all single changes by a sweep, and row by row.
        pairs_score: time of scoring all pairs of changes.
        partial: features changed -> time of SAME_CHANGES candidates by the whole structure / by a restricted one, which
            is made for them: GeCo's partial evaluation.
    """

    score: Mapping[int, float]
    rows: Mapping[int, float]
    pipeline: Mapping[int, float]
    differ: int
    singles: int
    pairs: int
    singles_sweep: float
    singles_score: float
    pairs_score: float
    partial: Mapping[int, float]

    def gates(self, data: str, model: str) -> list[Gate]:
        """Return what was promised about it."""
        found = [Gate(f"decisions that differ, of {COMPARED:,}", float(self.differ), 0.0, most=True)]
        if data == "adult" and model in FASTER_MODELS:
            found += [
                Gate(f"score of {size:,} rows, pipeline / structure", self.pipeline[size] / self.rows[size], least)
                for size, least in FASTER.items()
            ]
        if data == "adult" and model in FORESTS:
            found.append(Gate("ms of all single changes", self.singles_sweep, SINGLES_MS, most=True))
            found.append(Gate("ms of all pairs of changes", self.pairs_score, PAIRS_MS, most=True))
        return found

    def figures(self) -> dict[str, float]:
        """Return everything as figures with names."""
        times = {f"score_ms_{size}": spent for size, spent in self.score.items()}
        times |= {f"rows_ms_{size}": spent for size, spent in self.rows.items()}
        times |= {f"pipeline_ms_{size}": spent for size, spent in self.pipeline.items()}
        sweeps = {"singles_sweep_ms": self.singles_sweep, "pairs_score_ms": self.pairs_score}
        partial = {f"partial_gain_{count}": gain for count, gain in self.partial.items()}
        return {"decisions_differ": float(self.differ), **times, **sweeps, **partial}


def measure(case: Case, explained: ExplainedModel, seed: int) -> Speed | None:
    """Time both on rows of the background; None: the model could not be opened."""
    structure = explained.opened.structure
    if structure is None:
        return None
    rng = np.random.default_rng(seed)
    score, rows, pipeline = {}, {}, {}
    for size in SIZES:
        Z = _drawn(explained, size, rng)
        ways = _token_scorer(structure, Z), _scorer(structure, Z), _asker(case, explained, Z)
        score[size], rows[size], pipeline[size] = _in_turns(*ways)
    differ = _differ(case, explained, structure, rng)
    partial = {count: _partial(explained, structure, count, rng) for count in CHANGED}
    return Speed(score, rows, pipeline, differ, *_sweeps(explained, structure), partial)


def tables(measured: Mapping[str, Speed | None]) -> str:
    """Return two aligned tables of milliseconds: scores, a line per pair and batch, and sweeps, a line per pair."""
    scores = [["ms", "rows", "score", "from codes", "pipeline", "pipeline / score", "pipeline / from codes"]]
    heads = ["single changes", "by sweep", "row by row", "ratio", "pairs of changes", "all of them"]
    gains = [f"partial gain, {count} changed" for count in CHANGED]
    sweeps = [["ms", *heads, *gains, f"differ of {COMPARED:,}"]]
    for name, speed in measured.items():
        if speed is not None:
            scores += [[name, f"{size:,}", *_scores(speed, size)] for size in SIZES]
            sweeps.append([name, *_changes(speed), str(speed.differ)])
    return f"{aligned(scores)}\n\n{aligned(sweeps)}"


def _scores(speed: Speed, size: int) -> list[str]:
    encoded, rows, other = speed.score[size], speed.rows[size], speed.pipeline[size]
    return [f"{encoded:.3f}", f"{rows:.3f}", f"{other:.2f}", f"{other / encoded:.1f}", f"{other / rows:.1f}"]


def _changes(speed: Speed) -> list[str]:
    times = [speed.singles_sweep, speed.singles_score]
    cells = [f"{speed.singles:,}", *(f"{spent:.3f}" for spent in times), f"{times[1] / times[0]:.1f}"]
    gains = [f"{gain:.1f}" for gain in speed.partial.values()]
    return [*cells, f"{speed.pairs:,}", f"{speed.pairs_score:.2f}", *gains]


def _token_scorer(structure: Structure, Z: Floats) -> Callable[[], object]:
    encoded = [structure.encode(column, Z[:, column]) for column in range(Z.shape[1])]
    return lambda: score_encoded(structure, encoded)


def _scorer(structure: Structure, Z: Floats) -> Callable[[], object]:
    return lambda: score_rows(structure, Z)


def _asker(case: Case, explained: ExplainedModel, Z: Floats) -> Callable[[], object]:
    table = explained.space.decode(Z)
    return lambda: case.model.predict_proba(table)


def _in_turns(*ways: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Return the median CPU milliseconds of every way, which take turns."""
    spent: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats):
        for seconds, way in zip(spent, ways, strict=True):
            way()  # the processor's caches hold what this way needs, not what the one before it did
            start = time.process_time()
            way()
            seconds.append(time.process_time() - start)
    return [1_000 * float(np.median(seconds)) for seconds in spent]


def _sweeps(explained: ExplainedModel, structure: Structure) -> tuple[int, int, float, float, float]:
    """Return how many single changes and pairs a row has, and the times of sweep, scores, and scores of pairs."""
    x0 = explained.bound_policy.background[0]
    known = [np.unique(column) for column in explained.bound_policy.background.T]
    values = [structure.encode(column, codes) for column, codes in enumerate(known)]
    own = [structure.encode(column, x0[[column]]) for column in range(len(x0))]
    singles = _singles(x0, known)
    spent = _in_turns(lambda: structure.sweep(own, values), _scorer(structure, singles))
    counts = [len(codes) for codes in known]
    pairs = (sum(counts) ** 2 - sum(count**2 for count in counts)) // 2
    (both,) = _in_turns(lambda: _score_pairs(structure, own, values), repeats=PAIRS_REPEATS)
    return len(singles), pairs, *spent, both


def _partial(explained: ExplainedModel, structure: Structure, count: int, rng: np.random.Generator) -> float:
    """Return the median gain of scoring candidates of a row by the structure restricted to what they change."""
    gains = []
    for x0 in _drawn(explained, SETS, rng):
        Z = np.tile(x0, (SAME_CHANGES, 1))
        changed = sorted(rng.permutation(len(x0))[:count].tolist())
        Z[:, changed] = _drawn(explained, SAME_CHANGES, rng)[:, changed]
        encoded = [structure.encode(column, codes) for column, codes in enumerate(Z.T)]
        own = [structure.encode(column, codes)[0] for column, codes in enumerate(x0[:, None])]
        whole, restricted = _in_turns(*_ways(structure, encoded, own, changed), repeats=11)
        gains.append(whole / restricted)
    return float(np.median(gains))


def _ways(
    structure: Structure, encoded: Sequence[Any], own: Sequence[Any], changed: Sequence[int]
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the scoring of candidates by the whole structure, and by the one restricted to `changed` columns."""
    some = [encoded[column] for column in changed]
    return lambda: score_encoded(structure, encoded), lambda: score_encoded(structure.restrict(own, changed), some)


def _singles(x0: Floats, known: Sequence[Floats]) -> Floats:
    """Return the rows (m, d) that differ from x0 (d,) by one known value at most."""
    rows = np.tile(x0, (sum(map(len, known)), 1))
    start = 0
    for column, codes in enumerate(known):
        rows[start : start + len(codes), column] = codes
        start += len(codes)
    return rows


def _score_pairs(structure: Structure, own: Sequence[Floats], values: Sequence[Floats]) -> None:
    """Score every pair of changes once, as a search does: by what two of them add to each other, else by sweeps."""
    if not isinstance(structure, SupportsPairs):
        _sweep_pairs(structure, own, values)
        return
    swept = [sums[0] for sums in structure.sweep(own, values) if sums is not None]
    nothing = np.zeros(sum(map(len, values)))  # no change is too far
    alone = SingleEffects(np.concatenate(swept), structure.sums(own)[0], nothing, nothing, 0.0, np.inf)
    first, second = np.triu_indices(len(values), k=1)
    tables, all_of_them = structure.pairs(own).tables(values, first, second, 2**26), no_threshold(structure.outputs)
    if tables is None:
        raise RuntimeError("the pairs of changes take too much memory")
    tables.near(alone, all_of_them, tables.blocks(alone, all_of_them).at)


def _sweep_pairs(structure: Structure, own: Sequence[Floats], values: Sequence[Floats]) -> None:
    """Score every pair of changes once: a grid for every two features, which all others are fixed for."""
    row = [part[0] for part in own]
    for first, second in combinations(range(len(values)), 2):
        rows = [values[first], np.repeat(own[second], len(values[first]), axis=0)]
        structure.restrict(row, [first, second]).sweep(rows, [None, values[second]])


def _differ(case: Case, explained: ExplainedModel, structure: Structure, rng: np.random.Generator) -> int:
    """Count the rows on which both decide otherwise: half as they are, half with their columns shuffled."""
    Z = _drawn(explained, COMPARED, rng)
    for column in Z.T:
        column[COMPARED // 2 :] = rng.permutation(column[COMPARED // 2 :])
    said = np.asarray(case.model.predict(explained.space.decode(Z)))
    classes = np.asarray(explained.model.classes)
    return int((classes[score_rows(structure, Z).argmax(axis=1)] != said).sum())


def _drawn(explained: ExplainedModel, size: int, rng: np.random.Generator) -> Floats:
    background = explained.bound_policy.background
    return background[rng.integers(0, len(background), size)]
