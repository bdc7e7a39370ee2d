"""Propose constraints from a table of training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlflow_cf.constraints.model import MAX_RULES
from mlflow_cf.features import Table
from mlflow_cf.suggest.columns import sample_of
from mlflow_cf.suggest.dependencies import dependencies, grouped
from mlflow_cf.suggest.implications import implications
from mlflow_cf.suggest.labels import labels_of, leaks
from mlflow_cf.suggest.names import by_name, is_key
from mlflow_cf.suggest.one_hot import one_hot_sets
from mlflow_cf.suggest.order import orders
from mlflow_cf.suggest.result import Suggestion, Suggestions
from mlflow_cf.suggest.single import bounds, describe_key, steps


def suggest_constraints(data: Table, labels: Any = None, *, seed: int = 0) -> Suggestions:
    """Propose constraints that a table of training rows shows, to be reviewed; nothing is applied.

    It looks for numbers of which one never exceeds another, columns that determine others, sets of 0/1 columns,
    levels that imply others, bounds, steps, and names of what cannot be changed or only grows. Among columns that are
    independent of each other, the probability that anything is suggested about several of them is at most 1 % a table.

    Args:
        data: training rows; of more than 100,000, or of 50 million values, a sample is looked at.
        labels: the training target, one per row; used for notes about columns that give it away.
        seed: draws the sample.

    Raises:
        InputError: no table, no rows, two columns of one name, or another number of labels than rows.
    """
    rng = np.random.default_rng(seed)
    sample = sample_of(data, rng)
    label = labels_of(labels, sample)
    notes = [describe_key(column) for column in sample.columns if is_key(column)]
    notes += leaks(sample, label)
    found: list[Suggestion] = [*by_name(sample), *bounds(sample)]
    hot = one_hot_sets(sample)
    known = dependencies(sample, hot, notes)
    groups = list(grouped(sample, known, hot))
    found += groups
    joined = [set(each.features) for each in groups if each.active]
    found += (each for each in orders(sample, notes) if not any(set(each.features) <= names for names in joined))
    place = {column.name: number for number, column in enumerate(sample.columns)}
    told = {(each.by, each.of) for each in known if not each.exceptions}
    told |= {(place[first], place[second]) for names in joined for first in names for second in names}
    found += implications(sample, told, rng, notes)
    found += steps(sample)
    found = _readable(found, notes)
    return Suggestions(tuple(found), sample.rows, sample.total, seed, sample.skipped, tuple(notes))


def _readable(found: list[Suggestion], notes: list[str]) -> list[Suggestion]:
    """Return the suggestions with no more active rules than constraints may have; further ones become comments."""
    rules = [number for number, each in enumerate(found) if "rules" in each.constraint and each.active]
    beyond = set(rules[MAX_RULES:])
    if beyond:
        notes.append(f"{len(beyond):,} rules without exceptions are comments: constraints have {MAX_RULES} at most")
    return [replace(each, active=False) if number in beyond else each for number, each in enumerate(found)]
