"""Loan applications drawn at random: a data set that is there wherever the benchmark runs."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS = 6_000
CONSTRAINTS = {
    "immutable": ["region"],
    "increasing": ["age", "years_employed"],
    "rules": ["IF x_cf.years_employed > x.years_employed THEN x_cf.age > x.age"],
}


def applications(seed: int) -> pd.DataFrame:
    """Return ROWS applications: nine columns of numbers and levels, the last column `granted` (1 is favourable)."""
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
    return rows.assign(granted=(strength + rng.logistic(0, 0.5, ROWS) > 0).astype(int))
