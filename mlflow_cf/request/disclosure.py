"""Notes for the owner of a model: what requests can learn about the background, and what they never get."""

from __future__ import annotations

from collections.abc import Iterator

from mlflow_cf.constraints import Domain
from mlflow_cf.problem.bound_policy import BoundPolicy


def notes_on_privacy(bound_policy: BoundPolicy, for_requests: BoundPolicy) -> list[str]:
    """Return what is to be noted of a `bound_policy` beside what requests see of it; nothing if that is all."""
    return [] if for_requests.reveal else [*_lost(bound_policy, for_requests), *_told(for_requests)]


def _lost(bound_policy: BoundPolicy, for_requests: BoundPolicy) -> Iterator[str]:
    """Yield the groups that requests can never change, because too few rows share any of their actions."""
    for every, shared in zip(bound_policy.domains, for_requests.domains, strict=True):
        if len(every.actions) and not len(shared.actions):
            names = " and ".join(bound_policy.space.names[column] for column in every.columns)
            k = for_requests.k_anonymous
            yield f"requests never change the group {names}: no tuple of it has more than {k} rows (k_anonymous)"


def _told(bound_policy: BoundPolicy) -> Iterator[str]:
    """Yield what requests can learn: whether few rows have a value, and what distances tell."""
    few = [domain.columns[0] for domain in bound_policy.domains if _is_telling(bound_policy, domain)]
    if bound_policy.values == "observed" and few:
        names = ", ".join(bound_policy.space.names[column] for column in few)
        yield f"requests can learn whether a value of {names} is in the background; not with another `values`"
    if bound_policy.bound_distance.percentiles is not None:
        yield "distances tell requests which share of the background lies between two values; not with another `scale`"


def _is_telling(bound_policy: BoundPolicy, domain: Domain) -> bool:
    if (
        len(domain.columns) > 1
        or not bound_policy.space.features[domain.columns[0]].has_order
        or not len(domain.weights)
    ):
        return False
    return bool((domain.weights <= bound_policy.k_anonymous).mean() > 0.5)
