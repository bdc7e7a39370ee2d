"""Careers made by a seeded generator: no real people, but every dependence between columns is known.

Columns, in order:

===============  =========  =======================================  ==============================================
column           kind       values                                   made from
===============  =========  =======================================  ==============================================
age              integer    20 to 62 years                           (nothing)
education        integer    9 to 20 years at school and university   age
experience       integer    0 to 45 years in paid work               age, education
region           nominal    country, town, capital                   (nothing)
job              nominal    assistant, clerk, specialist, manager    education, experience, region
hours_per_week   integer    10 to 60                                 job
savings          integer    0 to 120,000, steps of 500               age, job
well_paid        0 or 1     the target                               the rule `points` below
===============  =========  =======================================  ==============================================
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TARGET = "well_paid"
JOBS = ("assistant", "clerk", "specialist", "manager")
REGIONS = ("country", "town", "capital")
_WORTH = {"assistant": 0.0, "clerk": 0.8, "specialist": 2.2, "manager": 3.2}


def careers(rows: int = 3_000, seed: int = 0) -> pd.DataFrame:
    """Return `rows` careers with the columns of the table above; the same seed gives the same rows."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 63, rows)
    education = np.clip(np.round(rng.normal(13, 2.6, rows)), 9, np.minimum(20, age - 7))
    experience = np.clip(np.round((age - education - 6) * rng.beta(5, 1.5, rows)), 0, 45)
    region = rng.choice(REGIONS, rows, p=[0.35, 0.4, 0.25])
    rank = 0.35 * (education - 13) + 0.05 * experience + 0.4 * (region == "capital") + rng.normal(0, 0.8, rows)
    job = np.array(JOBS)[np.searchsorted([-0.2, 0.9, 2.1], rank)]
    hours = np.clip(np.round(rng.normal(36, 7, rows) + 4 * (job == "manager")), 10, 60)
    saved = (age - 18) * 550 * rng.lognormal(0, 0.8, rows) * np.where(np.isin(job, JOBS[2:]), 1.6, 1.0)
    table = pd.DataFrame(
        {
            "age": age,
            "education": education.astype(np.int64),
            "experience": experience.astype(np.int64),
            "region": region,
            "job": job,
            "hours_per_week": hours.astype(np.int64),
            "savings": (np.clip(saved, 0, 120_000) // 500 * 500).astype(np.int64),
        }
    )
    table[TARGET] = (points(table) + rng.logistic(0, 0.35, rows) > 0).astype(np.int64)
    return table


def points(table: pd.DataFrame) -> NDArray[np.float64]:
    """Return (n,) how well careers are paid; above 0 they are well paid but for noise."""
    total = (
        -4.4
        + table["job"].map(_WORTH)
        + 0.12 * (table["education"] - 12)
        + 0.05 * np.minimum(table["experience"], 20)
        + 0.05 * (table["hours_per_week"] - 30)
        + 0.8 * (table["region"] == "capital")
        + 0.3 * (table["region"] == "town")
    )
    return total.to_numpy(np.float64)
