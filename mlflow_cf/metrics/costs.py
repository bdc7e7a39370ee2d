"""What plans of ordered steps cost (CSCF, SCF), and how two costs compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.errors import InputError


@dataclass(frozen=True)
class Steps:
    """The steps of one plan, in order.

    Attributes:
        efforts: b_i >= 0 of each step, finite.
        discounts: g_i in [0, 1] of each step, evaluated before it; empty if nothing is discounted.
    """

    efforts: tuple[float, ...]
    discounts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(np.isfinite(effort) and effort >= 0 for effort in self.efforts):
            raise InputError("efforts", f"{self.efforts} holds a negative or infinite effort", "")
        if self.discounts and len(self.discounts) != len(self.efforts):
            raise InputError("discounts", f"{len(self.discounts)} for {len(self.efforts)} steps", "give one per step")
        if not all(0 <= discount <= 1 for discount in self.discounts):
            raise InputError("discounts", f"{self.discounts} leaves [0, 1]", "")


def sequence_cost(steps: Steps) -> float:
    """sum_i b_i: the effort of all steps without discount.

    Unit: the effort's. Better: down. Source: SCF, CSCF.
    """
    return float(sum(steps.efforts))


def discounted_cost(steps: Steps) -> float:
    """sum_i b_i * g_i: what earlier steps make easier costs less.

    Unit: the effort's. Better: down. Source: CSCF.
    """
    discounts = steps.discounts or (1.0,) * len(steps.efforts)
    return float(sum(effort * discount for effort, discount in zip(steps.efforts, discounts, strict=True)))


def sequence_length(steps: Steps) -> float:
    """Number of steps.

    Unit: steps. Better: down. Source: CSCF.
    """
    return float(len(steps.efforts))


def relative_difference(a: float, b: float) -> float:
    """(b - a) / max(a, b) of two costs >= 0: positive where `a` is the cheaper; 0 if both are 0.

    Unit: share, in [-1, 1]. Source: CSCF.
    """
    larger = max(a, b)
    return (b - a) / larger if larger > 0 else 0.0
