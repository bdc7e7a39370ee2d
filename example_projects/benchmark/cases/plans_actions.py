"""The actions of plans_adult.yaml and plans_german.yaml once more, in plain numpy, without mlflow_cf.

A state is a dict of columns: numbers as arrays that broadcast against each other, or alone; levels as strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

State = dict[str, Any]
Formula = Callable[[State, State], Any]  # of the states before and after a step
LEAST = 0.1  # change of a number that counts as one


def _always(x: State, y: State) -> Any:
    del x, y
    return True


@dataclass(frozen=True)
class Doing:
    """One action.

    Attributes:
        feature: what it is about; outcome: what that becomes, None where a value is added to it.
        effort: before any discount; allowed: whether the step may be done.
        effects: other features, and what they become.
        up: whether its feature may only grow.
    """

    feature: str
    effort: Formula
    allowed: Formula = _always
    outcome: str | None = None
    effects: tuple[tuple[str, Formula], ...] = ()
    up: bool = False


@dataclass(frozen=True)
class Stepped:
    """States after a step, its effort rounded to 4 decimals, its discount, and whether it can be done."""

    state: State
    effort: Any
    discount: Any
    valid: Any

    @property
    def cost(self) -> Any:
        """What the step costs."""
        return self.effort * self.discount


@dataclass(frozen=True, eq=False)
class Model:
    """What can be done, by name, what makes it cheaper, and (low, high) of numbers in the background.

    Attributes:
        doings: the actions.
        helps: feature -> the shares of the effort that others leave, by the state before a step.
        bounds: whole numbers count from the lower one; a plan must end between both.
    """

    doings: Mapping[str, Doing]
    helps: Mapping[str, tuple[Callable[[State], Any], ...]]
    bounds: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, name: str, background: pd.DataFrame, *, discounts: bool) -> Model:
        """Return that of a data set."""
        numbers = background.select_dtypes("number")
        bounds = {column: (float(numbers[column].min()), float(numbers[column].max())) for column in numbers}
        return cls(DOINGS[name], HELPS[name] if discounts else {}, bounds)

    def step(self, name: str, x: State, value: Any) -> Stepped:
        """Do one action, with a value that is added where its outcome is open."""
        doing = self.doings[name]
        y = {**x, doing.feature: doing.outcome or self._whole(doing.feature, x[doing.feature] + value)}
        with np.errstate(all="ignore"):
            for feature, effect in doing.effects:
                y[feature] = self._whole(feature, effect(x, y))
            effort = doing.effort(x, y)
            valid = np.asarray(doing.allowed(x, y)) & np.isfinite(effort) & (effort >= 0)
        moved: Any = False
        for feature in (doing.feature, *(feature for feature, _ in doing.effects)):
            valid = valid & (True if doing.outcome else np.isfinite(y[feature]))
            moved = moved | _changed(x, y, feature)
        return Stepped(y, np.round(effort, 4), self._discount(x, y), valid & moved)

    def within(self, x0: State, state: State) -> Any:
        """Tell whether the numbers of a plan's end are those of the row, or in the background's range."""
        good: Any = True
        for feature, (low, high) in self.bounds.items():
            value = state[feature]
            good = good & ((value == x0[feature]) | ((value >= low) & (value <= high)))
        return good

    def _whole(self, feature: str, value: Any) -> Any:
        low = self.bounds[feature][0]
        return low + np.round(value - low)

    def _discount(self, x: State, y: State) -> Any:
        total: Any = 0.0
        count: Any = 0
        for feature, helps in self.helps.items():
            changed = _changed(x, y, feature)
            total = total + np.where(changed, sum(help_(x) for help_ in helps) / len(helps), 0.0)
            count = count + changed
        return np.where(count > 0, total / np.maximum(count, 1), 1.0)


def _changed(x: State, y: State, feature: str) -> Any:
    if isinstance(x[feature], str):
        return x[feature] != y[feature]
    return np.abs(y[feature] - x[feature]) >= LEAST


def _shift(feature: str, unit: float) -> Formula:
    return lambda x, y: np.abs(y[feature] - x[feature]) / unit


def _relative(feature: str) -> Formula:
    return lambda x, y: ((y[feature] - x[feature]) / x[feature]) ** 2


def _fixed(x: State, y: State) -> Any:
    del x, y
    return 5.0


def _amount(x: State, y: State) -> Any:
    del x
    return (y["credit_amount"] > 0) & (y["credit_amount"] < 100_000)


def _period(x: State, y: State) -> Any:
    del x
    return (y["duration"] > 0) & (y["duration"] < 120)


def _education_helps(x: State) -> Any:
    return 1 - 0.5 * np.floor(x["education_num"]) / 16


def _hours_help_gain(x: State) -> Any:
    return np.clip(1 - (np.exp(x["hours_per_week"]) - 1) / (np.exp(80.0) - 1), 0, 1)


def _hours_help_study(x: State) -> Any:
    hours = x["hours_per_week"]
    return np.select([hours < 20, hours < 30, hours <= 40], [0.5, 0.6, 0.7], 1.0)


ADULT: Mapping[str, Doing] = {
    "add education": Doing(
        "education_num",
        _shift("education_num", 1),
        lambda x, y: (y["education_num"] > x["education_num"]) & (y["education_num"] < 16.5) & (y["age"] < 120),
        effects=(("age", lambda x, y: x["age"] + 2 * (y["education_num"] - x["education_num"])),),
        up=True,
    ),
    "change working hours": Doing(
        "hours_per_week",
        _shift("hours_per_week", 10),
        lambda _, y: (y["hours_per_week"] > 0) & (y["hours_per_week"] < 90),
    ),
    "change capital gain": Doing(
        "capital_gain",
        _shift("capital_gain", 10_000),
        lambda x, y: (x["capital_loss"] < 1) & (y["capital_gain"] > 0) & (y["capital_gain"] < 100_000),
    ),
    "change capital loss": Doing(
        "capital_loss",
        _shift("capital_loss", 1_000),
        lambda x, y: (x["capital_gain"] < 1) & (y["capital_loss"] > 1) & (y["capital_loss"] < 5_000),
    ),
    "enlist": Doing("occupation", _fixed, lambda x, _: x["occupation"] != "Armed-Forces", "Armed-Forces"),
    "wait": Doing("age", _shift("age", 1), lambda x, y: (y["age"] > x["age"]) & (y["age"] < 120), up=True),
}
GERMAN: Mapping[str, Doing] = {
    "wait": ADULT["wait"],
    "naturalize": Doing("foreign_worker", _fixed, lambda x, _: x["foreign_worker"] != "no", "no"),
    "change credit amount": Doing(
        "credit_amount", _relative("credit_amount"), lambda x, y: (x["age"] > 15) & _amount(x, y)
    ),
    "change loan period": Doing("duration", _relative("duration"), _period),
    "adjust loan period": Doing(
        "credit_amount",
        _relative("credit_amount"),
        lambda x, y: (x["credit_amount"] > 1_000) & _amount(x, y) & _period(x, y),
        effects=(("duration", lambda x, y: x["duration"] * y["credit_amount"] / x["credit_amount"]),),
    ),
    "get guarantor": Doing("other_parties", _fixed, lambda x, _: x["other_parties"] != "guarantor", "guarantor"),
    "get unskilled job": Doing("job", _fixed, lambda x, _: x["job"] == "unemp/unskilled non res", "unskilled resident"),
}
DOINGS = {"adult": ADULT, "german": GERMAN}
HELPS: Mapping[str, Mapping[str, tuple[Callable[[State], Any], ...]]] = {
    "adult": {
        "capital_gain": (_education_helps, _hours_help_gain),
        "occupation": (_education_helps,),
        "workclass": (_education_helps,),
        "education_num": (_hours_help_study,),
    },
    "german": {},
}
