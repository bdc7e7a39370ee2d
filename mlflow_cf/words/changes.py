"""What changes between two rows, step by step, and in which values it may: the parts of a counterfactual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlflow_cf.features import Level


@dataclass(frozen=True)
class Change:
    """One feature that differs between the query row and the counterfactual.

    Attributes:
        feature: its name.
        old: its value in the query row; None: missing.
        new: its value in the counterfactual; never missing where the query row has a value.
    """

    feature: str
    old: Level | None
    new: Level | None

    def to_dict(self) -> dict[str, str | None]:
        """Return the record of a reply."""
        return {"feature": self.feature, "from": written(self.old), "to": written(self.new)}


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        step: its number, from 1.
        action: what is done.
        effort: what that costs before the discount.
        discount: in [0, 1], the share of the effort that is left after what earlier steps have made easier.
        row: every feature's value after the step.
        probability: of the wanted label after the step; None if the model gives none, or was not asked.
        changes: what the step changes, in column order.
    """

    step: int
    action: str
    effort: float
    discount: float
    row: Mapping[str, Level | None]
    probability: float | None = None
    changes: tuple[Change, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        return {
            "step": self.step,
            "action": self.action,
            "changes": [change.to_dict() for change in self.changes],
            "effort": self.effort,
            "discount": self.discount,
            "probability": self.probability,
            "row": dict(self.row),
        }


@dataclass(frozen=True)
class RegionSide:
    """The values that one feature may have in a region, in which every admissible row is a counterfactual.

    Attributes:
        feature: its name.
        low, high: the least and the greatest of numbers and dates; None for a feature with levels.
        levels: of a feature with levels; else empty.
        maximal: whether it is known that no further admissible value could be added.
    """

    feature: str
    low: Level | None
    high: Level | None
    levels: tuple[Level, ...]
    maximal: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply, with values as text, as changes have them."""
        return {
            "feature": self.feature,
            "low": written(self.low),
            "high": written(self.high),
            "levels": [written(level) for level in self.levels],
            "maximal": self.maximal,
        }


def changes_between(old: Mapping[str, Level | None], new: Mapping[str, Level | None]) -> tuple[Change, ...]:
    """Return what differs between two rows, in the order of the second; missing in both is no difference."""
    return tuple(
        Change(name, old[name], value) for name, value in new.items() if old[name] is not value and old[name] != value
    )


def written(value: Any) -> str | None:
    """Return a value as the text of a reply: 41000, 0.5, true, rent; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
