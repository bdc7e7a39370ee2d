"""treecf on the same model, rows and objective: its genetic search and its exact one, by row and in one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import treecf
from cases.data_sets import Case
from cases.independent import spreads
from numpy.typing import NDArray
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
        levels: column -> its levels, which treecf numbers 0, 1, ...
    """

    explainer: treecf.Explainer
    target: treecf.Target
    options: Mapping[str, Any]
    levels: Mapping[str, Sequence[str]]

    @classmethod
    def build(cls, case: Case, seed: int, time_limit_s: float, *, exact: bool) -> Treecf:
        """Prepare one search for the model of `case`, trees over numbers, and levels if they are CatBoost's.

        Args:
            case: model, background and what is fixed; other constraints it is not told of.
            seed: of its genetic search, which also starts the exact one.
            time_limit_s: for one row.
            exact: whether it is to prove what it finds.
        """
        fixed = case.constraints.get("immutable", ())
        constraints = [treecf.Freeze(name) for name in fixed]
        for name, column in case.background.items():
            if name not in fixed:
                seen = case.levels and name in case.levels
                constraints.append(
                    treecf.AllowedCategories(name, sorted(column.unique()))
                    if seen
                    else treecf.Range(name, float(column.min()), float(column.max()))
                )
        units = {name: spread or 1.0 for name, spread in spreads(case.background).items()}  # another level costs 1
        explainer = treecf.Explainer(
            case.model, constraints=constraints, normalizers=units, categories=case.levels or None
        )
        half = {"op": ">=", "value": 0.5}
        averages = isinstance(case.model, RandomForestClassifier)  # its own output is the probability already
        target = treecf.Target.raw(**half) if averages else treecf.Target.probability(**half)
        options = {"sparsity_weight": 1.0, "seed": seed, "time_budget_s": time_limit_s}
        return cls(explainer, target, {**options, **(EXACT if exact else {})}, case.levels)

    def __call__(self, row: pd.DataFrame) -> Reply:
        """Explain one row (1, d)."""
        with _quiet():
            found = self.explainer.explain(self._numbers(row)[0], self.target, **self.options)
        return self._reply(row.to_dict("records")[0], found, isinstance(found, treecf.Counterfactual))

    def in_one_call(self, rows: pd.DataFrame) -> list[Reply]:
        """Explain rows (m, d) in one call, in order."""
        consent = {"allow_exact_batch": True} if "backend" in self.options else {}
        with _quiet():
            batch = self.explainer.explain_batch(
                self._numbers(rows), self.target, n_per_example=1, **self.options, **consent
            )
        return [
            self._reply(x0, one, one.feasible) for x0, one in zip(rows.to_dict("records"), batch.records, strict=True)
        ]

    def menu(self, row: pd.DataFrame, most: int) -> set[frozenset[str]]:
        """Return the smallest sets of up to so many features that turn one row (1, d)."""
        options = {key: value for key, value in self.options.items() if key in MENU}
        with _quiet():
            found = self.explainer.recourse_menu(self._numbers(row)[0], self.target, max_levers=most, **options)
        return {frozenset(key.split("+")) for key in found.minimal}

    def _numbers(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return rows (m, d) as treecf takes them: levels by their numbers."""
        codes = {
            name: rows[name].map({level: code for code, level in enumerate(known)})
            for name, known in self.levels.items()
        }
        return rows.assign(**codes).to_numpy(np.float64)

    def _reply(self, x0: Mapping[Any, Any], found: Any, answered: bool) -> Reply:  # noqa: FBT001
        """Return what was found for the row `x0`."""
        if not answered:
            return Reply(None, "treecf found nothing", proved=found.proof == "certified")
        changed = {name: self._value(name, new) for name, (_, new) in found.changes.items()}
        return Reply({**{str(name): value for name, value in x0.items()}, **changed}, proved=found.proof == "optimal")

    def _value(self, name: str, value: Any) -> Any:
        return self.levels[name][int(value)] if name in self.levels and not isinstance(value, str) else value


def _quiet() -> warnings.catch_warnings[None]:
    """Keep back that a search was cut: the proof it lacks says so."""
    return warnings.catch_warnings(action="ignore", category=treecf.TreecfWarning)
