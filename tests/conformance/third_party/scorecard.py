"""Scorecards, a kind of model that another package brings."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Scorecard:
    """Points per bin of a number and per level of a category; more of them than a threshold make the second label.

    Attributes:
        bins: feature -> the upper ends of its bins, ascending, and the points of every bin, of numbers beyond the last
            end, and of a missing number.
        levels: feature -> levels and their points; others, and a missing one, have none.
        threshold, labels: what the points decide; without labels they are the answer.
    """

    bins: dict[str, tuple[list[float], list[float]]]
    levels: dict[str, list[tuple[str | bool, float]]]
    threshold: float = 0.0
    labels: tuple[str, ...] = ()

    def points(self, rows: pd.DataFrame) -> np.ndarray:
        total = np.zeros(len(rows))
        for name, (ends, points) in self.bins.items():
            numbers = rows[name].to_numpy(dtype=float, na_value=np.nan)
            total += np.array(points)[np.where(np.isnan(numbers), -1, np.searchsorted(ends, numbers))]
        for name, known in self.levels.items():
            points = dict(known)
            total += [points.get(level, 0.0) for level in rows[name].tolist()]
        return total

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        points = self.points(rows)
        return np.array(self.labels)[(points > self.threshold).astype(int)] if self.labels else points

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> "Scorecard":
        facts = json.loads(file.read_text())
        levels = {name: [(level, points) for level, points in known] for name, known in facts["levels"].items()}
        return cls({**facts["bins"]}, levels, facts["threshold"], tuple(facts["labels"]))


def _load_pyfunc(path: str) -> Scorecard:
    """MLflow calls it: a stored scorecard names this module as its loader."""
    return Scorecard.read(Path(path))
