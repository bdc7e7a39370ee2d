"""Several explainers on the same rows, and the one that does best by a stated rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of

RULE: Final = (
    "all answers valid and lawful first, then higher coverage, then lower mean distance on the rows that all answered, "
    "then the lower median of seconds"
)


def contestants(explainers: Sequence[ExplainerSource]) -> dict[str, ExplainerSource]:
    """Return explainers by a name of its own for each, numbered where several have the same.

    Raises:
        InputError: there are none, or one is named that does not exist.
    """
    if isinstance(explainers, str) or not len(explainers):
        raise InputError("explainers", f"{explainers!r} is not a list of explainers", "such as ['geco', 'exact']")
    names = [explainer_of(source, f"explainers[{place}]").name for place, source in enumerate(explainers)]
    seen: Counter[str] = Counter()
    found = {}
    for name, source in zip(names, explainers, strict=True):
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name}_{seen[name]}"] = source
    return found


def ranking(paths: dict[str, Path]) -> tuple[str, ...]:
    """Return the names of explainers by the `RULE`, best first, from their lines by name."""
    columns = ["validity", "constraint_satisfaction", "coverage", "mixed", "seconds"]
    tables = {name: lines.read(path, columns) for name, path in paths.items()}
    answered = [table["mixed"].notna().to_numpy() for table in tables.values() if table["mixed"].notna().any()]
    shared = np.logical_and.reduce(answered) if answered else np.zeros(0, dtype=np.bool_)
    return tuple(sorted(tables, key=lambda name: _standing(tables[name], shared)))


def unanswered(paths: Mapping[str, Path]) -> Iterator[str]:
    """Yield why an explainer answered none of the rows that it was asked about: what most of them were told."""
    for name, path in paths.items():
        told = lines.read(path, ["status", "reason"])
        asked = told[~told["status"].isin(["already", "skipped"])]
        if not len(asked) or (asked["status"] == "found").any():
            continue
        (status, reason), count = Counter(zip(asked["status"], asked["reason"], strict=True)).most_common(1)[0]
        yield f"{name} answers no row; {count:,} of {len(asked):,} are {status}: {reason or 'no reason is told'}"


def _standing(
    table: pd.DataFrame, shared: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[bool, float, float, float]:
    """Return how an explainer did, by the rule: compared from left to right, less is better."""
    checked = table[["validity", "constraint_satisfaction"]].dropna()
    unlawful = not bool((checked == 1).all(axis=None))
    coverage, distance = table["coverage"].mean(), table["mixed"][shared].mean() if shared.any() else np.inf
    uncovered = 0.0 if np.isnan(coverage) else 1.0 - float(coverage)
    seconds = float(table["seconds"].fillna(0.0).median())
    return unlawful, uncovered, np.inf if np.isnan(distance) else float(distance), seconds
