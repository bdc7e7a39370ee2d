"""treecf on the same model, rows and objective: its genetic search and its exact one, by row and in one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import treecf
from cases.data_sets import Case
from cases.independent import spreads
from rivals.turns import Reply
from sklearn.ensemble import RandomForestClassifier

UNBOUND = 2**40  # nodes: the clock alone ends a search
EXACT: Mapping[str, Any] = {"backend": "exact", "search": "refine", "node_budget": UNBOUND}
MENU = ("seed", "time_budget_s", "backend", "search", "node_budget")  # options that its menu takes, too


@dataclass(frozen=True, eq=False)
class Treecf:
    """One of treecf's searches.

    It minimises the number of changes plus their sum as shares of the background's ranges, which ranks as our own
    distance does, within these ranges. It is told which features are fixed. It knows no integers unless it rounds
    afterwards, so on integer columns it proposes fractions.

    Attributes:
        explainer, target: of treecf.
        options: of every call.
    """

    explainer: treecf.Explainer
    target: treecf.Target
    options: Mapping[str, Any]

    @classmethod
    def build(cls, case: Case, seed: int, time_limit_s: float, *, exact: bool) -> Treecf:
        """Prepare one search for the model of `case`, an ensemble of trees over numbers alone.

        Args:
            case: model, background and what is fixed; other constraints it is not told of.
            seed: of its genetic search, which also starts the exact one.
            time_limit_s: for one row.
            exact: whether it is to prove what it finds.
        """
        fixed = case.constraints.get("immutable", ())
        ranges = {str(name): (float(low), float(high)) for name, low, high in _ends(case.background)}
        constraints = [treecf.Freeze(name) for name in fixed]
        constraints += [treecf.Range(name, *ends) for name, ends in ranges.items() if name not in fixed]
        explainer = treecf.Explainer(case.model, constraints=constraints, normalizers=spreads(case.background))
        half = {"op": ">=", "value": 0.5}
        averages = isinstance(case.model, RandomForestClassifier)  # its own output is the probability already
        target = treecf.Target.raw(**half) if averages else treecf.Target.probability(**half)
        options = {"sparsity_weight": 1.0, "seed": seed, "time_budget_s": time_limit_s}
        return cls(explainer, target, {**options, **(EXACT if exact else {})})

    def __call__(self, row: pd.DataFrame) -> Reply:
        """Explain one row (1, d)."""
        with _quiet():
            found = self.explainer.explain(row.to_numpy(np.float64)[0], self.target, **self.options)
        return _reply(row.to_dict("records")[0], found, isinstance(found, treecf.Counterfactual))

    def in_one_call(self, rows: pd.DataFrame) -> list[Reply]:
        """Explain rows (m, d) in one call, in order."""
        consent = {"allow_exact_batch": True} if "backend" in self.options else {}
        with _quiet():
            batch = self.explainer.explain_batch(
                rows.to_numpy(np.float64), self.target, n_per_example=1, **self.options, **consent
            )
        return [_reply(x0, one, one.feasible) for x0, one in zip(rows.to_dict("records"), batch.records, strict=True)]

    def menu(self, row: pd.DataFrame, most: int) -> set[frozenset[str]]:
        """Return the smallest sets of up to so many features that turn one row (1, d)."""
        options = {key: value for key, value in self.options.items() if key in MENU}
        with _quiet():
            found = self.explainer.recourse_menu(row.to_numpy(np.float64)[0], self.target, max_levers=most, **options)
        return {frozenset(key.split("+")) for key in found.minimal}


def _reply(x0: Mapping[Any, Any], found: Any, answered: bool) -> Reply:  # noqa: FBT001
    """Return what was found for the row `x0`."""
    if not answered:
        return Reply(None, "treecf found nothing", proved=found.proof == "certified")
    changed = {name: new for name, (_, new) in found.changes.items()}
    return Reply({**{str(name): value for name, value in x0.items()}, **changed}, proved=found.proof == "optimal")


def _ends(background: pd.DataFrame) -> zip[tuple[Any, Any, Any]]:
    return zip(background, background.min(), background.max(), strict=True)


def _quiet() -> warnings.catch_warnings[None]:
    """Keep back that a search was cut: the proof it lacks says so."""
    return warnings.catch_warnings(action="ignore", category=treecf.TreecfWarning)
