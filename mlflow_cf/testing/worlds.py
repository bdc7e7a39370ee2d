"""Small generated tables with every kind of column, and constraints of every kind on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.testing.checker import Checker, Condition, Row

GRADES: Final = ("low", "mid", "high", "top")
ORDERS: Final[Mapping[str, tuple[str, ...]]] = {"grade": GRADES}
STEPS: Final = {"income": 0.5, "hours": 1.25}
ROWS: Final = 90


def table(seed: int, rows: int = ROWS, *, plain: bool = False) -> pd.DataFrame:
    """Return random rows of all kinds of features, with missing values in four columns.

    `plain` leaves strings and dates out: levels become pandas categories, which boosting libraries take as they are.
    The level "top" of grade never occurs.
    """
    rng = np.random.default_rng(seed)

    def levels(known: tuple[str, ...], gaps: float, absent: float | None) -> list[str | float | None]:
        return [absent if rng.random() < gaps else known[drawn] for drawn in rng.integers(len(known), size=rows)]

    income = rng.integers(8, 60, size=rows) * STEPS["income"]
    income[rng.random(rows) < 0.1] = np.nan
    grade, job = levels(GRADES[:3], 0.06, None), levels(("a", "b", "c", "d"), 0.08, np.nan)
    rooms = [None if rng.random() < 0.1 else int(drawn) for drawn in rng.integers(1, 6, size=rows)]
    columns: dict[str, Any] = {
        "age": rng.integers(20, 66, size=rows),
        "income": income,
        "hours": (10 + rng.integers(0, 33, size=rows) * STEPS["hours"]).astype(np.float32),
        "grade": pd.Categorical(grade, GRADES, ordered=True) if plain else pd.Series(grade),
        "job": pd.Categorical(job, ["a", "b", "c", "d"]) if plain else pd.Series(job, dtype=object),
        "member": rng.random(rows) < 0.5,
        "rooms": pd.array(rooms, dtype="Int64"),
    }
    if not plain:
        days = rng.integers(0, 900, size=rows) * np.timedelta64(1, "D")
        columns["since"] = pd.Series(np.datetime64("2019-03-01", "s") + days)
    return pd.DataFrame(columns)


def odd_row(like: pd.DataFrame) -> pd.DataFrame:
    """Return one row that no background has: missing values, numbers off the grid and out of range, a new level."""
    odd: dict[str, Any] = {"age": 18, "income": None, "hours": 61.1, "grade": None, "member": False, "rooms": None}
    if "since" in like:  # boosting libraries refuse levels they were not trained on
        odd["job"] = "z"
    columns = {
        name: pd.Series([odd[name]], dtype=like[name].dtype) if name in odd else like[name].iloc[:1]
        for name in like.columns
    }
    return pd.DataFrame(columns)


def overrides(values: str) -> dict[str, dict[str, Any]]:
    """Return what `features=` must say; fractions have a declared step under ``values="grid"`` only."""
    steps: dict[str, dict[str, Any]] = {name: {"step": step} for name, step in STEPS.items()}
    return {"grade": {"kind": "ordinal", "levels": list(GRADES)}, **(steps if values == "grid" else {})}


@dataclass(frozen=True)
class Demands:
    """Constraints as users write them, and what only functions can say of them again.

    Attributes:
        policy, request: the dicts of the model's owner and of a caller.
        dated: keys of the policy that speak of `since`, for tables that have it.
        rules: what the texts under ``rules`` mean.
    """

    policy: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    dated: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Condition, ...] = ()

    def policy_for(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the policy for a table with or without dates."""
        policy = dict(self.policy)
        for key, value in self.dated.items() if "since" in frame else ():
            known = policy.get(key, type(value)())
            policy[key] = {**known, **value} if isinstance(value, Mapping) else [*known, *value]
        return policy

    def checker(self, frame: pd.DataFrame, values: str) -> Checker:
        """Return the checker of these demands on a background."""
        constraints = (self.policy_for(frame), self.request)
        return Checker(frame, constraints, ORDERS, values, grids(frame, values), self.rules)


def grids(frame: pd.DataFrame, values: str) -> dict[str, tuple[float, float, float]]:
    """Return (low, high, step) of the numbers that keep to steps: whole numbers and dates, and declared ones."""
    steps = {"age": 1.0, "rooms": 1.0, **(STEPS if values == "grid" else {})}
    seen = {name: frame[name] for name in steps}
    if "since" in frame:
        seen["since"] = (frame["since"] - pd.Timestamp(0)).dt.days
    return {name: (float(one.min()), float(one.max()), steps.get(name, 1.0)) for name, one in seen.items()}


def _grows(old: Row, new: Row, name: str) -> bool:
    if name == "grade":
        known = old[name] in GRADES and new[name] in GRADES
        return known and GRADES.index(new[name]) > GRADES.index(old[name])
    return old[name] is not None and new[name] is not None and new[name] > old[name]


_RULES: Final[tuple[tuple[str, Condition], ...]] = (
    (
        "IF x_cf.grade > x.grade THEN x_cf.age >= x.age + 2",
        lambda old, new: not _grows(old, new, "grade") or new["age"] >= old["age"] + 2,
    ),
    (
        "IF x_cf.job == 'a' and x_cf.rooms < 3 THEN x_cf.member == true",
        lambda _, new: not (new["job"] == "a" and new["rooms"] is not None and new["rooms"] < 3) or new["member"],
    ),
    (
        "IF x_cf.income > x.income THEN x_cf.hours >= x.hours",
        lambda old, new: not _grows(old, new, "income") or new["hours"] >= old["hours"],
    ),
    ("x_cf.hours / 2 + x_cf.age <= 85", lambda _, new: new["hours"] / 2 + new["age"] <= 85),
)


def _rooms_follow(old: Row, new: Row) -> bool:
    """Whether the rooms, which the background has from 1 to 5, are the nearest to 0.1 per year and 1 of a member."""
    if old["rooms"] is None or (old["age"], old["member"]) == (new["age"], new["member"]):
        return bool(old["rooms"] == new["rooms"])
    wanted = old["rooms"] + 0.1 * (new["age"] - old["age"]) + (int(new["member"]) - int(old["member"]))
    return new["rooms"] is not None and bool(abs(new["rooms"] - wanted) <= 0.5 + 1e-9)


DEMANDS: Final[Mapping[str, Demands]] = {
    "none": Demands(),
    "immutable": Demands({"immutable": ["age", "job"]}, {"immutable": ["age", "job", "member"]}),
    "monotone": Demands(
        {"increasing": ["age", "grade"]}, {"decreasing": ["hours", "rooms"]}, {"increasing": ["since"]}
    ),
    "ranges": Demands(
        {"ranges": {"age": [22, 60], "income": [None, 27], "grade": ["low", "high"]}},
        {"ranges": {"age": [30, 55], "hours": [12.5, 45.0]}},
        {"ranges": {"since": ["2019-06-01", "2021-01-31"]}},
    ),
    "relative": Demands(
        {"relative": {"age": {"up": 12, "down": 0}, "income": {"up_percent": 60, "down_percent": 25}}},
        {"relative": {"rooms": {"up": 2, "down": 2}, "hours": {"up": 10.0}}},
    ),
    "levels": Demands(
        {"levels": {"job": ["a", "b", "c"], "rooms": [1, 2, 3, 4]}}, {"levels": {"member": [True], "job": ["a", "c"]}}
    ),
    "forbidden": Demands(
        {"forbidden": {"job": [["a", "b"], ["b", "c"], ["d", "a"]], "grade": [["high", "low"]]}},
        {"forbidden": {"member": [[True, False]], "job": [["c", "a"]]}},
    ),
    "groups": Demands({"groups": [["job", "rooms"], ["income", "hours"]]}),
    "max_changes": Demands({"max_changes": 3, "groups": [["job", "grade"]]}, {"max_changes": 2}),
    "rules": Demands(
        {"rules": [text for text, _ in _RULES[:3]]}, {"rules": [_RULES[3][0]]}, rules=tuple(r for _, r in _RULES)
    ),
    "causal": Demands(
        {"causal": [{"child": "rooms", "parents": ["age", "member"], "coefficients": {"age": 0.1, "member": 1}}]},
        {"max_changes": 4},
        rules=(_rooms_follow,),
    ),
    "all": Demands(
        {
            "immutable": ["member"],
            "ranges": {"hours": [15.0, None]},
            "groups": [["job", "rooms"]],
            "rules": [_RULES[0][0], _RULES[2][0]],
        },
        {"increasing": ["age"], "max_changes": 3, "forbidden": {"grade": [["low", "high"]]}},
        {"increasing": ["since"]},
        (_RULES[0][1], _RULES[2][1]),
    ),
}
