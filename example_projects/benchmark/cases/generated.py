"""Data sets drawn at random: they are there wherever the benchmark runs, and as wide as one likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ROWS = 6_000
LEVELS = (*[19] * 28, 16)  # of 29 features; 548 one-hot columns
NUMBERS = 310


def loans(seed: int) -> pd.DataFrame:
    """Return applications: nine columns of numbers and levels, the last column `granted` (1 is favourable)."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 75, ROWS)
    rows = pd.DataFrame(
        {
            "age": age,
            "income": (rng.lognormal(10.4, 0.5, ROWS) / 100).round() * 100,
            "debt": (rng.lognormal(8.6, 1.0, ROWS) / 100).round() * 100,
            "years_employed": (rng.random(ROWS) * (age - 17) * 0.7).astype(int),
            "dependents": rng.poisson(0.8, ROWS),
            "missed_payments": rng.poisson(0.6, ROWS),
            "job": rng.choice(["craft", "office", "sales", "care", "own business"], ROWS),
            "housing": rng.choice(["rents", "owns", "with family"], ROWS, p=[0.5, 0.35, 0.15]),
            "region": rng.choice([f"region {letter}" for letter in "ABCDEFGH"], ROWS),
        }
    )
    strength = (
        1.6 * np.log(rows["income"] / 33_000)
        - 0.9 * np.log((rows["debt"] + 500) / 5_000)
        + 0.05 * rows["years_employed"]
        - 0.25 * rows["dependents"]
        - 0.9 * rows["missed_payments"]
        + 0.5 * (rows["housing"] == "owns")
        + rows["job"].map({"craft": 0.0, "office": 0.3, "sales": -0.1, "care": 0.1, "own business": -0.4})
    )
    return rows.assign(granted=_decided(strength.to_numpy(), rng))


def many_levels(seed: int) -> pd.DataFrame:
    """Return 29 columns of levels, 548 levels in all, and the last column `label`."""
    rng = np.random.default_rng(seed)
    strength = np.zeros(ROWS)
    columns = {}
    for number, count in enumerate(LEVELS):
        level = rng.integers(0, count, ROWS)
        strength += rng.normal(0, 0.4, count)[level]
        columns[f"feature {number}"] = np.array([f"level {code}" for code in range(count)])[level]
    return pd.DataFrame(columns).assign(label=_decided(strength, rng))


def many_numbers(seed: int) -> pd.DataFrame:
    """Return 310 columns of numbers and the last column `label`; few columns matter much, many a little."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 1, (ROWS, NUMBERS)).round(2)
    strength = X @ (1.5 / np.arange(1, NUMBERS + 1))
    rows = pd.DataFrame(X, columns=[f"feature {number}" for number in range(NUMBERS)])
    return rows.assign(label=_decided(strength, rng))


def _decided(strength: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return 1 where a row is strong, with some noise, else 0."""
    return (strength + rng.logistic(0, 0.5, ROWS) > 0).astype(np.int64)


GENERATORS: Mapping[str, Callable[[int], pd.DataFrame]] = {
    "loans": loans,
    "many_levels": many_levels,
    "many_numbers": many_numbers,
}
CONSTRAINTS: Mapping[str, Mapping[str, list[str]]] = {
    "loans": {
        "immutable": ["region"],
        "increasing": ["age", "years_employed"],
        "rules": ["IF x_cf.years_employed > x.years_employed THEN x_cf.age > x.age"],
    },
    "many_levels": {"immutable": ["feature 0"]},
    "many_numbers": {"immutable": ["feature 0"], "increasing": ["feature 1"]},
}
