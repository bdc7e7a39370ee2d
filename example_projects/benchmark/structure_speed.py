"""Scoring through the opened model beside the model's own pipeline: times, and the same decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from data_sets import Case
from gates import Gate
from measures import aligned

from mlflow_cf import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.structures import Structure, score_rows

SIZES = (50, 1_000)
REPEATS = 31
COMPARED = 100_000  # rows whose decisions are compared
# Time of the pipeline / time of the structure, at least, for batches of SIZES.
FASTER: Mapping[int, float] = {50: 40.0, 1_000: 4.0}
PROMISED = ("xgboost", "histgb", "forest", "mlp", "logistic")  # on Adult


@dataclass(frozen=True, eq=False)
class Scored:
    """How fast a structure is.

    Attributes:
        structure, pipeline: batch size -> median CPU seconds of scoring a batch.
        differ: rows out of COMPARED on which the decisions differ.
    """

    structure: Mapping[int, float]
    pipeline: Mapping[int, float]
    differ: int

    def gates(self, data: str, model: str) -> list[Gate]:
        """Return what was promised about it."""
        found = [Gate(f"decisions that differ, of {COMPARED:,}", float(self.differ), 0.0, most=True)]
        if data == "adult" and model in PROMISED:
            found += [
                Gate(f"score of {size:,} rows, pipeline / structure", self.pipeline[size] / self.structure[size], least)
                for size, least in FASTER.items()
            ]
        return found

    def figures(self) -> dict[str, float]:
        """Return everything as figures with names."""
        ratios = {f"score_ratio_{size}": self.pipeline[size] / self.structure[size] for size in SIZES}
        return {"decisions_differ": float(self.differ), **ratios}


def measure(case: Case, explained: ExplainedModel, seed: int) -> Scored | None:
    """Time both on rows of the background; None: the model could not be opened."""
    structure = explained.opened.structure
    if structure is None:
        return None
    rng = np.random.default_rng(seed)
    times = {size: _in_turns(case, explained, structure, _drawn(explained, size, rng)) for size in SIZES}
    return Scored(
        {size: pair[0] for size, pair in times.items()},
        {size: pair[1] for size, pair in times.items()},
        _differ(case, explained, structure, rng),
    )


def table(measured: Mapping[str, Scored | None]) -> str:
    """Return an aligned table: a line per data set and model."""
    heads = [f"{what} {size:,} rows" for size in SIZES for what in ("structure ms,", "pipeline ms,", "ratio,")]
    lines = [["", *heads, f"differ of {COMPARED:,}"]]
    for name, scored in measured.items():
        cells = ["-"] * (len(heads) + 1) if scored is None else [*_cells(scored), str(scored.differ)]
        lines.append([name, *cells])
    return aligned(lines)


def _cells(scored: Scored) -> list[str]:
    cells: list[str] = []
    for size in SIZES:
        own, other = scored.structure[size], scored.pipeline[size]
        cells += [f"{1_000 * own:.3f}", f"{1_000 * other:.2f}", f"{other / own:.1f}"]
    return cells


def _in_turns(case: Case, explained: ExplainedModel, structure: Structure, Z: Floats) -> tuple[float, float]:
    """Return the median CPU seconds of the structure and of the pipeline for the coded rows Z (m, d)."""
    table = explained.space.decode(Z)
    ways: Sequence[Callable[[], object]] = (
        lambda: score_rows(structure, Z),
        lambda: case.model.predict_proba(table),
    )
    spent: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        for seconds, way in zip(spent, ways, strict=True):
            seconds.append(_seconds(way))
    own, other = (float(np.median(seconds[1:])) for seconds in spent)  # what happens once is no price
    return own, other


def _seconds(way: Callable[[], object]) -> float:
    start = time.process_time()
    way()
    return time.process_time() - start


def _differ(case: Case, explained: ExplainedModel, structure: Structure, rng: np.random.Generator) -> int:
    """Count the rows on which both decide otherwise: half as they are, half with their columns shuffled."""
    Z = _drawn(explained, COMPARED, rng)
    for column in Z.T:
        column[COMPARED // 2 :] = rng.permutation(column[COMPARED // 2 :])
    said: pd.Series[int] = pd.Series(case.model.predict(explained.space.decode(Z)))
    classes = np.asarray(explained.model.classes)
    return int((classes[score_rows(structure, Z).argmax(axis=1)] != said.to_numpy()).sum())


def _drawn(explained: ExplainedModel, size: int, rng: np.random.Generator) -> Floats:
    background = explained.setting.background
    return background[rng.integers(0, len(background), size)]
