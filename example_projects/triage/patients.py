"""The 442 diabetes patients of scikit-learn, the lists that we put them on, and what may change within a year.

The measurements are real: Efron, Hastie, Johnstone and Tibshirani, "Least Angle Regression", Annals of Statistics 32
(2004), pages 407-499. The lists are ours. The paper has a number that says how far the disease has progressed a year
later; up to 100 of it we call routine, up to 200 soon, and what exceeds 200 urgent.
"""

from __future__ import annotations

import pandas as pd
from sklearn.datasets import load_diabetes

LISTS = ("routine", "soon", "urgent")
COLUMNS = {  # the paper's names -> ours; its s4 is left out, for it is cholesterol divided by HDL
    "age": "age",
    "sex": "sex",  # 1 or 2; which is which, the data do not say
    "bmi": "bmi",
    "bp": "blood_pressure",
    "s1": "cholesterol",
    "s2": "ldl",
    "s3": "hdl",
    "s5": "log_triglycerides",
    "s6": "blood_sugar",
}
FEATURES = {
    "age": {"unit": "years"},
    "bmi": {"label": "BMI", "decimals": 1},
    "blood_pressure": {"unit": "mm Hg"},
    "ldl": {"label": "LDL"},
    "hdl": {"label": "HDL"},
    "log_triglycerides": {"decimals": 2},
}
CONSTRAINTS = {
    "immutable": ["age", "sex"],
    "relative": {  # how far a measurement may move from where it is, and only to the better
        "bmi": {"up": 0, "down_percent": 15},
        "blood_pressure": {"up": 0, "down": 20},
        "cholesterol": {"up": 0, "down": 60},
        "ldl": {"up": 0, "down": 50},
        "hdl": {"up": 15, "down": 0},
        "log_triglycerides": {"up": 0, "down": 0.7},
        "blood_sugar": {"up": 0, "down": 20},
    },
    "rules": ["x_cf.ldl + x_cf.hdl <= x_cf.cholesterol - 5"],  # both are parts of it, as in every row of the data
    "max_changes": 4,
}


def patients() -> tuple[pd.DataFrame, pd.Series]:
    """Return the measurements (442, 9) and the list of each patient."""
    table = load_diabetes(as_frame=True, scaled=False).frame
    lists = pd.cut(table["target"], [0, 100, 200, 400], labels=list(LISTS)).astype(str).rename("list")
    rows = table[list(COLUMNS)].rename(columns=COLUMNS)
    return rows.assign(sex=rows["sex"].astype(int).astype(str)), lists
