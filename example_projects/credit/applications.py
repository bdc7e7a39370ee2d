"""Loan applications made by a seeded generator: no real people, but every dependence between columns is known.

Columns, in order (money in whole units of one currency, income and savings as the applicant states them):

=================  ==========  ==============================================  =======================================
column             kind        values                                          made from
=================  ==========  ==============================================  =======================================
age                integer     19 to 75 years                                  (nothing)
education          ordinal     compulsory < secondary < vocational < bachelor   age: younger people studied longer
years_employed     real        0 to 50 years in paid work, steps of 0.5        age, education: work starts after school
employment         nominal     permanent, fixed-term, self-employed, retired,  age, years_employed
                               unemployed
income             integer     9,000 to 160,000 a year, steps of 500           education, years_employed, employment
savings            real        0 to 90,000, steps of 100; 6 % not stated       income, age
housing            nominal     rent, mortgage, owner, with family              age, income
dependants         integer     0 to 5                                          age
existing_credits   integer     0 to 6 running credits                          age, housing
utilisation        integer     0 to 100 % of the agreed credit lines in use    savings, existing_credits
late_payments      integer     0 to 8 in the last two years                    utilisation
purpose            nominal     car, home improvement, debt consolidation,      housing, existing_credits
                               furniture, education, medical
loan_amount        integer     1,000 to 50,000, steps of 500                   purpose, income
duration           integer     6 to 84 months, steps of 6                      loan_amount
instalment         integer     a month, steps of 5                             loan_amount, duration: an annuity
guarantor          boolean     somebody else answers for the loan              age
approved           0 or 1      1: the bank granted the loan (the target)       the rule below
=================  ==========  ==============================================  =======================================

The instalment is exact, at 7.2 % a year. The bank grants a loan when `points(applications) + noise > 0`, the noise
logistic with scale 0.6; about 62 % are granted. Nobody can foresee the noise: the rule itself is right about 84 % of
the time, and no model can do better.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TARGET = "approved"
EDUCATION = ("compulsory", "secondary", "vocational", "bachelor", "master")
PURPOSES = ("car", "home improvement", "debt consolidation", "furniture", "education", "medical")
YEARLY_INTEREST = 0.072

CAUSES: dict[str, tuple[str, ...]] = {
    "education": ("age",),
    "years_employed": ("age", "education"),
    "employment": ("age", "years_employed"),
    "income": ("education", "years_employed", "employment"),
    "savings": ("income", "age"),
    "housing": ("age", "income"),
    "dependants": ("age",),
    "existing_credits": ("age", "housing"),
    "utilisation": ("savings", "existing_credits"),
    "late_payments": ("utilisation",),
    "purpose": ("housing", "existing_credits"),
    "loan_amount": ("purpose", "income"),
    "duration": ("loan_amount",),
    "instalment": ("loan_amount", "duration"),
    "guarantor": ("age",),
}

_FIRST_JOB_AGE = np.array([16.0, 17.0, 19.0, 22.0, 24.5])
_INCOME_FACTOR = {"permanent": 1.0, "fixed-term": 0.85, "self-employed": 1.1, "retired": 0.65, "unemployed": 0.4}
_USUAL_AMOUNT = {
    "car": 15_000.0,
    "home improvement": 18_000.0,
    "debt consolidation": 14_000.0,
    "furniture": 5_000.0,
    "education": 9_000.0,
    "medical": 6_000.0,
}


def applications(rows: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """Return `rows` applications with the columns of the table above; the same seed gives the same rows."""
    rng = np.random.default_rng(seed)
    table = _person(rng, rows)
    _money(rng, table)
    _history(rng, table)
    _loan(rng, table)
    table[TARGET] = (points(table) + rng.logistic(0.0, 0.6, rows) > 0).astype(np.int64)
    table.loc[rng.random(rows) < 0.06, "savings"] = np.nan  # the applicant left the field empty
    return table


def points(table: pd.DataFrame) -> Floats:
    """Return the bank's points for each application, (n,); above 0 the loan is granted but for noise.

    The instalments' share of the income weighs most, then late payments, then what the applicant has and owes.
    Savings that were not stated count as 1,500.
    """
    monthly_income = table["income"].to_numpy(np.float64) / 12
    owed = table["instalment"] + 140 * table["existing_credits"] + 90 * table["dependants"]
    employment = table["employment"].map(
        {"permanent": 0.6, "fixed-term": -0.5, "self-employed": 0.0, "retired": 0.3, "unemployed": -1.8}
    )
    housing = table["housing"].map({"rent": -0.2, "mortgage": 0.2, "owner": 0.6, "with family": 0.0})
    total = (
        1.6
        - 8.0 * owed.to_numpy(np.float64) / monthly_income
        + 0.5 * np.log(monthly_income / 2_800)
        + 0.5 * np.sqrt(table["savings"].fillna(1_500).to_numpy(np.float64) / 10_000)
        - 0.9 * table["late_payments"].to_numpy(np.float64)
        - 0.02 * table["utilisation"].to_numpy(np.float64)
        + 0.04 * np.minimum(table["years_employed"].to_numpy(np.float64), 15)
        + 0.9 * table["guarantor"].to_numpy(np.float64)
        + employment.to_numpy(np.float64)
        + housing.to_numpy(np.float64)
    )
    return np.asarray(total, dtype=np.float64)


def instalment(loan_amount: Floats, duration: Floats) -> Floats:
    """Return the monthly payments of an annuity loan, rounded to 5; amounts and months are (n,)."""
    monthly = YEARLY_INTEREST / 12
    return _steps(loan_amount * monthly / (1 - (1 + monthly) ** -duration), 5)


def _person(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Age, education, years in paid work and the kind of employment."""
    age = np.clip(np.round(19 + rng.gamma(3.2, 7.2, rows)), 19, 75)
    studied = rng.normal(0, 1, rows) - 0.012 * (age - 41)
    rank = np.searchsorted([-1.25, -0.25, 0.5, 1.3], studied)
    rank = np.minimum(rank, np.searchsorted([19, 21, 24], age, side="left") + 1)  # a master's degree takes its time
    possible = np.clip(np.minimum(age, 66) - _FIRST_JOB_AGE[rank], 0, 50)
    years = _steps(possible * rng.beta(5, 1.4, rows), 0.5)
    kinds = _choose(
        rng,
        {
            "permanent": 1.2 + 0.06 * np.minimum(years, 20),
            "fixed-term": np.where(age < 30, 0.9, 0.3),
            "self-employed": np.where(age < 25, 0.05, 0.3),
            "retired": np.where(age >= 63, 12.0, 0.0),
            "unemployed": np.where(years < 2, 0.25, 0.1),
        },
    )
    return pd.DataFrame(
        {
            "age": age.astype(np.int64),
            "education": pd.Categorical.from_codes(rank, list(EDUCATION), ordered=True),
            "years_employed": years,
            "employment": kinds,
        }
    )


def _money(rng: np.random.Generator, table: pd.DataFrame) -> None:
    """Add income, savings, housing and dependants."""
    rows, age = len(table), table["age"].to_numpy(np.float64)
    rank = table["education"].cat.codes.to_numpy(np.float64)
    work = np.minimum(table["years_employed"].to_numpy(np.float64), 30)
    factor = table["employment"].map(_INCOME_FACTOR).to_numpy(np.float64)
    income = (21_000 + 6_500 * rank + 550 * work) * factor * rng.lognormal(0, 0.22, rows)
    table["income"] = np.clip(_steps(income, 500), 9_000, 160_000).astype(np.int64)
    saved = income * 0.009 * (age - 15) * rng.lognormal(-0.35, 0.9, rows)
    table["savings"] = np.clip(_steps(saved, 100), 0, 90_000)
    table["housing"] = _choose(
        rng,
        {
            "rent": np.full(rows, 1.3),
            "mortgage": np.clip((income - 22_000) / 25_000, 0.02, 1.6) * (age < 68),
            "owner": np.clip((age - 30) / 30, 0.01, 1.4),
            "with family": np.where(age < 27, 1.2, 0.08),
        },
    )
    table["dependants"] = np.minimum(rng.poisson(np.where((age > 26) & (age < 58), 1.1, 0.25)), 5).astype(np.int64)


def _history(rng: np.random.Generator, table: pd.DataFrame) -> None:
    """Add running credits, the use of credit lines and late payments."""
    rows, age = len(table), table["age"].to_numpy(np.float64)
    mean = 0.45 + 0.5 * ((age > 28) & (age < 62)) + 0.35 * (table["housing"] == "rent").to_numpy(np.float64)
    credits = np.minimum(rng.poisson(mean), 6)
    table["existing_credits"] = credits.astype(np.int64)
    tight = -0.7 - 0.5 * np.log1p(table["savings"].to_numpy(np.float64) / 8_000) + 0.45 * credits
    used = 100 / (1 + np.exp(-(tight + rng.normal(0, 1.0, rows))))
    table["utilisation"] = np.clip(np.round(used), 0, 100).astype(np.int64)
    table["late_payments"] = np.minimum(rng.poisson(np.exp(-2.4 + 0.028 * used)), 8).astype(np.int64)


def _loan(rng: np.random.Generator, table: pd.DataFrame) -> None:
    """Add what is asked for: purpose, amount, duration, the instalment that follows, and a guarantor."""
    rows, age = len(table), table["age"].to_numpy(np.float64)
    owns = table["housing"].isin(["mortgage", "owner"]).to_numpy(np.float64)
    credits = table["existing_credits"].to_numpy(np.float64)
    weights = (np.full(rows, 2.0), 0.4 + 1.8 * owns, 0.5 * credits, np.full(rows, 1.1), 0.5 + 0 * age, 0.5 + 0 * age)
    table["purpose"] = _choose(rng, dict(zip(PURPOSES, weights, strict=True)))
    usual = table["purpose"].map(_USUAL_AMOUNT).to_numpy(np.float64)
    wanted = usual * (table["income"].to_numpy(np.float64) / 40_000) ** 0.6 * rng.lognormal(-0.1, 0.45, rows)
    amount = np.clip(_steps(wanted, 500), 1_000, 50_000)
    months = np.clip(_steps(14 + amount / 480 + rng.normal(0, 11, rows), 6), 6, 84)
    table["loan_amount"] = amount.astype(np.int64)
    table["duration"] = months.astype(np.int64)
    table["instalment"] = instalment(amount, months).astype(np.int64)
    table["guarantor"] = rng.random(rows) < np.where(age < 28, 0.25, 0.07)


def _choose(rng: np.random.Generator, weights: dict[str, Floats]) -> pd.Series:
    """Draw one name per row with the given weights, each (n,)."""
    total = np.cumsum(np.column_stack(list(weights.values())), axis=1)
    drawn = (rng.random(len(total))[:, None] * total[:, -1:] >= total).sum(axis=1)
    return pd.Series(np.array(list(weights), dtype=object)[drawn], dtype="str")


def _steps(values: Floats, step: float) -> Floats:
    return np.asarray(np.round(values / step) * step, dtype=np.float64)
