"""Made-up loan applications whose applicants, and whose outcomes, drift from year to year.

Incomes rise by 3 % a year. Debts grow faster, and from year to year it matters more how much of the income they take
and how many payments were late. Women work fewer hours, which lowers their income; nothing else depends on the sex.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

FIRST_YEAR = 2023
REPAID = "repaid"
CONSTRAINTS = {
    "immutable": ["sex", "age", "late_payments"],
    "increasing": ["years_employed"],
    "relative": {"income": {"up_percent": 40}, "hours": {"up": 15}},
}


def loans(rows: int, year: int, seed: int) -> pd.DataFrame:
    """Return `rows` applications of a year, and whether they were repaid; the same seed gives the same rows."""
    rng = np.random.default_rng([seed, year])
    drift = year - FIRST_YEAR
    sex = rng.choice(["F", "M"], rows)
    age = np.clip(rng.normal(42, 12, rows), 18, 75).round()
    hours = np.clip(rng.normal(np.where(sex == "F", 34, 39), 6, rows), 8, 60).round()
    employed = np.clip((age - 20) * rng.beta(2, 2, rows), 0, 45).round()
    income = (hours * (700 + 9 * employed) * rng.lognormal(0, 0.25, rows) * 1.03**drift).round(-2)
    debts = (income * rng.gamma(2, 0.12 + 0.005 * drift, rows)).round(-2)
    late = rng.poisson(0.4 + 0.2 * (debts > 0.4 * income), rows)
    amount = (rng.gamma(3, 4_000, rows) + 1_000).round(-2)
    table = pd.DataFrame(
        {
            "sex": sex,
            "age": age.astype(np.int64),
            "years_employed": employed.astype(np.int64),
            "hours": hours.astype(np.int64),
            "income": income,
            "debts": debts,
            "late_payments": late.astype(np.int64),
            "amount": amount,
        }
    )
    table[REPAID] = (points(table, year) + rng.logistic(0, 0.5, rows) > 0).astype(np.int64)
    return table


def points(table: pd.DataFrame, year: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return (n,) how well applicants of a year can repay; above 0 they do but for noise."""
    drift = year - FIRST_YEAR
    total = (
        1.4
        - (3.0 + 0.15 * drift) * table["debts"] / table["income"]
        - (0.7 + 0.05 * drift) * table["late_payments"]
        - 2.0 * table["amount"] / table["income"]
        + 0.03 * table["years_employed"]
        + 0.02 * (table["income"] / 1_000 - 28)
    )
    return total.to_numpy(np.float64)
