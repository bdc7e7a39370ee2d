"""What is found out about a given counterfactual, as objects and as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from mlflow_cf.features import Level
from mlflow_cf.words.changes import Change
from mlflow_cf.words.sentences import counted


@dataclass(frozen=True)
class ConstraintCheck:
    """One constraint.

    Attributes:
        path: where it was declared, such as ``constraints.ranges.age``.
        holds: whether the pair meets it.
        values: what breaks it: the features it is about, with their values in both rows.
    """

    path: str
    holds: bool
    values: tuple[Change, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"path": self.path, "holds": self.holds, "values": [value.to_dict() for value in self.values]}


@dataclass(frozen=True)
class Verification:
    """A given row, verified as a counterfactual of another.

    Attributes:
        fault: why nothing can be said about the pair: a row that cannot be coded, or not be predicted; else "".
        unanswered: whether that is because another server could not be asked, so that it may hold or not.
        prediction: the model's own prediction for the counterfactual.
        probability: probability of the wanted label; None if the model gives none.
        valid: whether the prediction meets the target.
        constraints: every constraint.
        requirements: path of every further requirement -> whether it is met: ``margin``, ``robust_to.v2``,
            ``plausible``, ``survival``.
        admissible: feature -> whether its value may be proposed; an unchanged one always may.
        distance: distance between the rows; n_changed: number of changed features.
        needless: changes, by their features, that can be undone one by one while the row stays a counterfactual; None:
            not asked, or not answered.
    """

    fault: str = ""
    unanswered: bool = False
    prediction: Level | None = None
    probability: float | None = None
    valid: bool = False
    constraints: tuple[ConstraintCheck, ...] = ()
    requirements: Mapping[str, bool] = field(default_factory=dict)
    admissible: Mapping[str, bool] = field(default_factory=dict)
    distance: float | None = None
    n_changed: int = 0
    needless: tuple[tuple[str, ...], ...] | None = None

    @property
    def broken(self) -> tuple[str, ...]:
        """The paths of the constraints that do not hold."""
        return tuple(check.path for check in self.constraints if not check.holds)

    @property
    def unmet(self) -> tuple[str, ...]:
        """The paths of the further requirements that are not met."""
        return tuple(path for path, met in self.requirements.items() if not met)

    @property
    def inadmissible(self) -> tuple[str, ...]:
        """The features whose values may not be proposed."""
        return tuple(name for name, may in self.admissible.items() if not may)

    @property
    def ok(self) -> bool:
        """Whether it is a counterfactual: something changes, the target is met, and everything holds."""
        faultless = not (self.fault or self.broken or self.unmet or self.inadmissible)
        return self.valid and self.n_changed > 0 and faultless

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "ok": self.ok,
            "fault": self.fault,
            "prediction": self.prediction,
            "probability": self.probability,
            "valid": self.valid,
            "constraints": [check.to_dict() for check in self.constraints],
            "requirements": dict(self.requirements),
            "admissible": dict(self.admissible),
            "distance": self.distance,
            "n_changed": self.n_changed,
            "needless": None if self.needless is None else [list(names) for names in self.needless],
        }

    def _repr_html_(self) -> str:
        """Return what holds and what does not as a table for notebooks."""
        return Verifications((self,))._repr_html_()


class Verifications(tuple[Verification, ...]):
    """Verifications of several pairs, in order."""

    __slots__ = ()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair, with the paths of what is broken or unmet, and the inadmissible features."""
        dtypes: dict[str, Any] = {"ok": bool, "fault": object, "prediction": object, "probability": float}
        dtypes |= {"valid": bool, "distance": float, "n_changed": "int64", "broken": object, "unmet": object}
        dtypes |= {"inadmissible": object, "needless": object}
        columns = {name: [getattr(one, name) for one in self] for name in dtypes}
        columns |= {name: list(map(list, columns[name])) for name in ("broken", "unmet", "inadmissible")}
        return pd.DataFrame({name: pd.Series(columns[name], dtype=dtype) for name, dtype in dtypes.items()})

    @property
    def summary(self) -> str:
        """How many of them are counterfactuals: ``3 of 4 rows hold as counterfactuals``."""
        return f"{sum(one.ok for one in self):,} of {counted(len(self), 'row')} hold as counterfactuals"

    def _repr_html_(self) -> str:
        """Return a line per pair for notebooks: what is predicted, and what stands in the way, if something."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        lines = [
            (
                "yes" if one.ok else "no",
                *map(_plain, (one.prediction, one.probability, one.distance)),
                one.n_changed,
                _faults(one),
            )
            for one in self
        ]
        columns = ["counterfactual", "prediction", "probability", "distance", "changes", "what is wrong"]
        return cards.page(cards.told(self.summary), cards.table(pd.DataFrame(lines, columns=columns)))


def _plain(value: Level | None) -> Level:
    return "" if value is None else value


def _faults(one: Verification) -> str:
    """Return all that keeps a row from being a counterfactual, and which of its changes can be undone."""
    said = [one.fault] if one.fault else [] if one.valid else ["the target is missed"]
    said += [f"{check.path} is broken" for check in one.constraints if not check.holds]
    said += [f"{path} is not met" for path in one.unmet]
    said += [f"{name} has a value that may not be proposed" for name in one.inadmissible]
    said += [f"the change of {' and '.join(names)} can be undone" for names in one.needless or ()]
    return "; ".join(said)
