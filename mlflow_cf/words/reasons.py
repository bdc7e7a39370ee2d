"""What a reply gives as its reason: why there is no counterfactual, or no certificate where one was wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

NOT_CERTIFIED: Final = "not certified: "  # begins the reason of an answer without the certificate it was to have
SHOWN: Final = 3  # constraints of one kind that are named
NOTHING_WANTED: Final = "no admissible row is predicted as wanted (proved)"

WITHHOLDS: Final = "privacy.k_anonymous"
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
        cause: the model was not opened, or not for a row with a level it was opened without; a further requirement
            was not; numbers between those of the background are not searched exactly; the opened model and the logged
            one disagree; the explainer ranks its answers in its own way; functions compute what plans cost; plans have
            too many steps, or such plans were not compared; the time was over; or a causal function bends.
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


def would_suffice(seconds: float, rows: int) -> str:
    """Return what is said of a row that was not searched, with the time in which all `rows` would be, as it seems."""
    return f"{stopped('clock', 0)}; a time_limit_s of about {seconds:.2g} would do for {rows:,} rows"


def fewer(found: int, wanted: int, why: str) -> str:
    """Return what is said of fewer answers than were asked for."""
    return f"{found} of {wanted} counterfactuals asked for: {why}"


def nothing_else(least: float, *, near: bool, proved: bool) -> str:
    """Return what is said where there are no more answers that differ enough from those there are."""
    what = "differs by a level" if near else "changes other features"
    found = "exists" if proved else "was found"
    return f"nothing else {found} that {what}, or a number by {100 * least:g}% of its range more"


def none_among(tried: int) -> str:
    """Return what is said of a search that ended by itself."""
    return f"no counterfactual among {tried:,} rows tried"


def missed(told: str) -> str:
    """Return what is said where a search ended without an answer, but there is one; `told` is what it says itself."""
    return f"{told}; by the opened model there is one: ask another explainer, such as exact"


def several(section: str, places: Sequence[str], *, features: bool) -> str:
    """Return constraints of one kind in words, such as ``5 features of constraints.immutable (a, b, c, 2 more)``.

    Args:
        section: where their key stands.
        places: where each stands below it; `features`: whether these are features, each by itself.
    """
    more = len(places) - SHOWN
    shown = [*places[:SHOWN], f"{more} more"] if more > 1 else places
    return f"{len(places)} {'features ' if features else ''}of {section} ({', '.join(shown)})"


def unwanted(groups: Sequence[str]) -> str:
    """Return what is said where the model wants no row at all, or none with the combinations that groups may take."""
    rows = "no row with values of the background"
    if groups:
        limits = f"and with the combinations that {' and '.join(groups)} may take"
        return f"{rows} {limits} is predicted as wanted, even without other constraints (proved)"
    return f"{rows} is predicted as wanted, even without constraints (proved)"


def withheld(groups: Sequence[str]) -> str:
    """Return what is said of groups with combinations that requests are not proposed."""
    return f"{WITHHOLDS} withholds combinations of {' and '.join(groups)} that few rows share"


def blocked(causes: Sequence[str], advice: str, *, proved: bool, minimal: bool, one: bool) -> str:
    """Return what rules out every counterfactual, or may do so unless it is `proved`; what would help comes first.

    `minimal`: whether all of it is needed for that; `one`: whether it is a single constraint.
    """
    named = " and ".join(causes)
    if advice:
        return f"{advice}; {'' if proved else 'may be '}ruled out by {named}{'' if minimal else ', or part of this'}"
    verb = f"rule{'s' if one else ''} out" if proved else "may rule out"
    return f"{named}{'' if minimal else ', or part of this,'} {verb} every counterfactual"
