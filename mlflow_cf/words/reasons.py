"""What a reply gives as its reason: why there is no counterfactual, or no certificate where one was wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from mlflow_cf.words.statements import Statement, say

NO_PLAN: Final = say("no_plan")
NOTHING_WANTED: Final = say("nothing_wanted")
NOTHING_LEFT: Final = say("nothing_left")

Cause = Literal[
    "unopened",
    "requirement",
    "unseen_level",
    "not_exact",
    "disagree",
    "ranked",
    "functions",
    "steps",
    "longer",
    "late",
    "bends",
]
DETAILED: Final[tuple[Cause, ...]] = ("requirement", "unseen_level", "steps", "longer", "bends")


@dataclass(frozen=True)
class Uncertified:
    """Why an answer has no certificate.

    Attributes:
        cause: the phrase that says what stands in the way.
        detail: what stood in the way of opening, what no program can express, or what bends.
    """

    cause: Cause
    detail: str = ""

    @property
    def reason(self) -> Statement:
        """The sentence of a reply."""
        return self.fact if self.cause == "longer" else say("not_certified", fact=self.fact)

    @property
    def fact(self) -> Statement:
        """What stands in the way, in words."""
        if self.cause in DETAILED:
            return say(self.cause, detail=self.detail)
        fact = say(self.cause)
        return say("in_detail", fact=fact, detail=self.detail) if self.detail else fact


UNOPENED: Final = Uncertified("unopened")


def stopped(limit: Literal["clock", "evaluations"], used: int) -> Statement:
    """Return what is said of a search that a limit ended after so many evaluations."""
    return say("stopped_by_clock" if limit == "clock" else "stopped_by_evaluations", used=used)


def still_learning(explainer: str) -> Statement:
    """Return what is said of rows that waited for an explainer which the model was not logged with."""
    return say("still_learning", explainer=explainer)


def hurried(limit: Literal["clock", "evaluations"], used: int) -> Statement:
    """Return what is said of answers beside which a limit has left something unseen."""
    return say("more_time" if limit == "clock" else "more_evaluations", stopped=stopped(limit, used))
