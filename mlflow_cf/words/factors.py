"""The reasons of a decision, as replies and notebooks show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd

from mlflow_cf.features import Level

ReasonStatus = Literal["", "stated", "alarm", "already", "none"]
Method = Literal["", "exact", "sampled"]


@dataclass(frozen=True)
class Factor:
    """What one feature group contributes to the shortfall of a row.

    Attributes:
        features: of the group.
        values: the row's own, in words of a reply; None for a missing one.
        contribution: Shapley value, in units of the score; positive speaks against the row, negative for it.
        error: its standard error where orders of the groups were drawn; None: it is exact.
        code, text: the owner's own for this reason; "" where the owner has none.
        protected: whether the owner names one of the features as protected.
    """

    features: tuple[str, ...]
    values: tuple[str | None, ...]
    contribution: float
    error: float | None = None
    code: str = ""
    text: str = ""
    protected: bool = False

    @property
    def name(self) -> str:
        """The features in words: ``income``, or ``job and years employed``."""
        return " and ".join(name.replace("_", " ") for name in self.features)

    @property
    def told(self) -> str:
        """What a letter says: the owner's text, else the features with the row's values."""
        if self.text:
            return self.text
        values = ("missing" if value is None else value for value in self.values)
        return ", ".join(
            f"{name.replace('_', ' ')}: {value}" for name, value in zip(self.features, values, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        values = [{"feature": name, "value": value} for name, value in zip(self.features, self.values, strict=True)]
        return {**vars(self), "features": list(self.features), "values": values}


@dataclass(frozen=True)
class Reasons:
    """The principal factors behind an unfavourable decision, whatever a person can change about them.

    Attributes:
        status: ``stated``; ``alarm``: stated, and a protected feature carries weight; ``already``: the row is decided
            as wanted; ``none``: there are none, and `reason` says why; "": not asked for.
        scale: of the score: ``log-odds``, ``probability``, ``margin``, ``score``, ``value`` of a regression, or
            ``decision`` (1 if as wanted, else 0).
        against: the label that the wanted one is compared with, where there are more than two.
        score: of the row; reference_score: mean of those of the reference rows.
        shortfall: by how much the row's score falls short of the reference's; all contributions add up to it.
        reference: what the row is compared with, in words.
        method: how contributions were computed; "": they were not.
        factors: the largest contributions against the row, in order.
        others: all further contributions that are not 0, by size.
        reason: why there are none.
    """

    status: ReasonStatus = ""
    scale: str = ""
    against: str = ""
    score: float | None = None
    reference_score: float | None = None
    shortfall: float | None = None
    reference: str = ""
    method: Method = ""
    factors: tuple[Factor, ...] = ()
    others: tuple[Factor, ...] = ()
    reason: str = ""

    @property
    def alarm(self) -> tuple[Factor, ...]:
        """The factors with protected features, whether they are principal or not."""
        return tuple(factor for factor in (*self.factors, *self.others) if factor.protected)

    @property
    def rest(self) -> float:
        """What all other factors contribute together; with the principal ones, it makes the shortfall."""
        return float(sum(factor.contribution for factor in self.others))

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        plain = {key: value for key, value in vars(self).items() if key not in ("factors", "others", "reason")}
        return {
            **plain,
            "factors": [factor.to_dict() for factor in self.factors],
            "rest": self.rest,
            "alarm": [name for factor in self.alarm for name in factor.features],
            "reason": self.reason,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return a line per factor, principal ones first: features, contribution, error, principal, code, text."""
        lines = [
            (" + ".join(one.features), one.contribution, one.error, at < len(self.factors), one.code, one.text)
            for at, one in enumerate((*self.factors, *self.others))
        ]
        columns = ["features", "contribution", "error", "principal", "code", "text"]
        return pd.DataFrame(lines, columns=columns).astype({"contribution": "float64", "error": "float64"})

    def __str__(self) -> str:
        if not self.method:
            return f"{self.status}: {self.reason}" if self.reason else self.status or "not asked for"
        head = f"{self.status}: {self.shortfall:.4g} below {self.reference} ({self.scale}, {self.method})"
        parts = [f"{_amount(one)}  {one.code + ' ' if one.code else ''}{one.told}" for one in self.factors]
        alarm = [f"protected and of weight: {', '.join(name for one in self.alarm for name in one.features)}"]
        return "\n  ".join([head, *parts, *(alarm if self.alarm else [])])

    def _repr_html_(self) -> str:
        """Return a list for notebooks."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        head, *lines = str(self).split("\n")
        return cards.page(cards.told(head), cards.items(line.strip() for line in lines))


UNASKED: Final = Reasons()
Values = Mapping[str, Level | None]


def _amount(factor: Factor) -> str:
    """Return a contribution with its standard error: 0.512 +- 0.003."""
    return f"{factor.contribution:.3g}" + ("" if factor.error is None else f" +- {factor.error:.1g}")
