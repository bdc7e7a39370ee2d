"""In which order plans do two things."""

from __future__ import annotations

from collections.abc import Iterable

from mlflow_cf import Explanation

BETTER_JOBS = ("become a specialist", "become a manager")


def studies_first(explanations: Iterable[Explanation]) -> tuple[int, int]:
    """Return in how many plans studying comes before every better job, and how many plans have both."""
    first = both = 0
    for actions in ([step.action for step in found.plan] for told in explanations for found in told.counterfactuals):
        jobs = [actions.index(job) for job in BETTER_JOBS if job in actions]
        if jobs and "study" in actions:
            both += 1
            first += actions.index("study") < min(jobs)
    return first, both
