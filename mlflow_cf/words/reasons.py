"""What a reply gives as its reason: why there is no counterfactual, or no certificate where one was wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

NOT_CERTIFIED: Final = "not certified: "  # begins the reason of an answer without the certificate it was to have
NO_PLAN: Final = "no plan of as many steps as are allowed leads to a row that is predicted as wanted (proved)"
NOTHING_WANTED: Final = "no admissible row is predicted as wanted (proved)"
NOTHING_LEFT: Final = "no row that the explainer's own restrictions leave is predicted as wanted (proved)"

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
NOT_OPENED: Final = "the model could not be opened for this row"
OBSTACLES: Final[dict[Cause, str]] = {
    "unopened": NOT_OPENED,
    "requirement": "a further requirement could not be opened ({})",
    "unseen_level": f"{NOT_OPENED} (the background has no level {{}})",
    "not_exact": "numbers between those of the background are not searched exactly",
    "disagree": "the opened model and the logged one disagree on this row",
    "ranked": "the explainer ranks its answers in another way than by distance",
    "functions": "of what Python functions compute, nothing can be proved",
    "steps": "the cheapest plan has more than {} steps, and proofs compare no such plans",
    "longer": "certified among plans of up to {} steps",
    "late": "the time limit left no time for it",
    "bends": "bounds leave out a causal function that is not piecewise linear ({}) in numbers of any value",
}


@dataclass(frozen=True)
class Uncertified:
    """Why an answer has no certificate.

    Attributes:
        cause: a key of `OBSTACLES`, which says what stands in the way.
        detail: what stood in the way of opening, what no program can express, or what bends.
    """

    cause: Cause
    detail: str = ""

    @property
    def reason(self) -> str:
        """The sentence of a reply."""
        return self.fact if self.cause == "longer" else NOT_CERTIFIED + self.fact

    @property
    def fact(self) -> str:
        """What stands in the way, in words."""
        if self.cause in ("unopened", "not_exact") and self.detail:
            return f"{OBSTACLES[self.cause]} ({self.detail})"
        return OBSTACLES[self.cause].format(self.detail)


UNOPENED: Final = Uncertified("unopened")


def stopped(limit: Literal["clock", "evaluations"], used: int) -> str:
    """Return what is said of a search that a limit ended after so many evaluations."""
    return f"stopped by the {'time' if limit == 'clock' else 'evaluation'} limit after {used:,} evaluations"


def still_learning(explainer: str) -> str:
    """Return what is said of rows that waited for an explainer which the model was not logged with."""
    kept = f"the next request goes on from there, and a model logged with explainer={explainer!r} has learned already"
    return f"stopped by the time limit while the explainer learned: {kept}"


def hurried(limit: Literal["clock", "evaluations"], used: int) -> str:
    """Return what is said of answers beside which a limit has left something unseen."""
    more = "time" if limit == "clock" else "evaluations"
    return f"{stopped(limit, used)}; with more {more} there may be nearer ones"
