"""Made-up applicants whose world changes a little from year to year; they describe nobody."""

from __future__ import annotations

import numpy as np
import pandas as pd

FIRST_YEAR = 2025
REPAID = "repaid"
CONSTRAINTS = {
    "immutable": ["sex", "age"],
    "relative": {"income": {"up_percent": 60}, "savings": {"up": 15}, "years_employed": {"up": 3, "down": 0}},
}


def applicants(rows: int, year: int, seed: int) -> pd.DataFrame:
    """Return `rows` applicants of a year, and whether they repaid; the same seed gives the same rows."""
    rng = np.random.default_rng([seed, year])
    sex, age = rng.choice(["F", "M"], rows), np.clip(rng.normal(42, 12, rows), 18, 75).round()
    employed = np.minimum(rng.exponential(6, rows), age - 18).round(1)
    income = np.round(rng.lognormal(3.5, 0.35, rows) * 1.02 ** (year - FIRST_YEAR) - 3 * (sex == "F"), 1)
    savings = rng.exponential(8, rows).round(1)
    debts = rng.exponential(10, rows).round(1)
    points = 0.09 * income + 0.1 * savings + 0.12 * employed - (0.12 + 0.01 * (year - FIRST_YEAR)) * debts - 3.6
    table = {"sex": sex, "age": age, "years_employed": employed, "income": income, "savings": savings, "debts": debts}
    return pd.DataFrame({**table, REPAID: (rng.random(rows) < 1 / (1 + np.exp(-points))).astype(int)})


def later(table: pd.DataFrame, year: int) -> pd.DataFrame:
    """Return applicants of a harder year: more debts, as the monitor is to notice."""
    rng = np.random.default_rng([len(table), year])
    return table.assign(debts=(table["debts"] + rng.exponential(12, len(table))).round(1))
