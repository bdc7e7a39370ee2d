"""Sets of levers: which feature groups a person may change, all others staying as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from typing import Final

from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.policy.levers import LeversAsked
from mlflow_cf.problem import BoundPolicy

# On Adult (12 features, boosting with 100 trees) all 78 sets of up to two take 10 ms a row, all 298 of up to three
# 60 ms; a set whose combinations are too many to be scored is searched in 3 ms.
MOST_SETS: Final = 1_500

Groups = tuple[int, ...]


@dataclass(frozen=True)
class LeverSets:
    """Sets of feature groups by number, in the order in which they are told.

    Attributes:
        sets: the sets, each ascending.
        smallest: whether a set is of no interest that contains a working one.
    """

    sets: tuple[Groups, ...]
    smallest: bool


def lever_sets(asked: LeversAsked, bound_policy: BoundPolicy) -> LeverSets:
    """Return the named sets, or all sets of up to so many groups that may change.

    Raises:
        InputError: unknown or immutable features, or more sets than `MOST_SETS`.
    """
    if isinstance(asked, int):
        return _all_sets(asked, bound_policy)
    if len(asked) > MOST_SETS:
        fact = f"{len(asked):,} sets are more than {MOST_SETS}"
        raise InputError("levers", fact, "name those that matter; each is searched for every row")
    raise_all(_errors(asked, bound_policy))
    index, owner = bound_policy.space.index, bound_policy.grounding.owner
    named = tuple(tuple(sorted({owner[index[name]] for name in names})) for names in asked)
    return LeverSets(named, smallest=False)


def _all_sets(most: int, bound_policy: BoundPolicy) -> LeverSets:
    levers = changeable(bound_policy)
    sizes = range(1, min(most, len(levers)) + 1)
    count = sum(comb(len(levers), size) for size in sizes)
    if count > MOST_SETS:
        fact = f"{count:,} sets of up to {most} of {len(levers)} levers are more than {MOST_SETS}"
        raise InputError("levers", fact, "ask for smaller ones, or name the sets that matter")
    return LeverSets(tuple(chain.from_iterable(combinations(levers, size) for size in sizes)), smallest=True)


def changeable(bound_policy: BoundPolicy) -> list[int]:
    """Return the numbers of the groups that rows may change: those neither immutable nor constant."""
    fixed, features = immutable_columns(bound_policy), bound_policy.space.features
    return [
        number
        for number, domain in enumerate(bound_policy.domains)
        if not all(column in fixed or features[column].constant for column in domain.columns)
    ]


def immutable_columns(bound_policy: BoundPolicy) -> dict[int, str]:
    """Return the columns that no counterfactual changes, each with the constraint that says so, in words."""
    held = [rule for rule in bound_policy.rules if rule.origin.key == "immutable" and rule.defines is not None]
    return {rule.defines: f"immutable under the {rule.origin.source}" for rule in held if rule.defines is not None}


def _errors(asked: Sequence[Sequence[str]], bound_policy: BoundPolicy) -> Iterator[InputError]:
    space, fixed = bound_policy.space, immutable_columns(bound_policy)
    for place, names in enumerate(asked):
        for name in names:
            if name not in space.index:
                yield InputError(f"levers[{place}]", f"{name!r} is not a feature", did_you_mean(name, space.names))
            elif space.index[name] in fixed:
                yield InputError(f"levers[{place}]", f"{name!r} is {fixed[space.index[name]]}", "leave it out")


def names_of(groups: Groups, bound_policy: BoundPolicy) -> tuple[str, ...]:
    """Return the features of some groups, in the order of columns."""
    names, domains = bound_policy.space.names, bound_policy.domains
    return tuple(names[column] for column in sorted(chain.from_iterable(domains[group].columns for group in groups)))
