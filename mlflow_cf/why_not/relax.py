"""Why a row has no counterfactual: a smallest set of constraints that rules them all out, and what would help most.

The set is found by leaving out (a deletion filter): first whole kinds of constraints, then single ones. What can be
left out while there is still no counterfactual is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np

from mlflow_cf.constraints import Rule
from mlflow_cf.constraints.rules import Ref
from mlflow_cf.features import FeatureSpace, Floats, Level
from mlflow_cf.problem import Setting, Target
from mlflow_cf.words.sentences import spoken

MAX_CHANGES = "constraints.max_changes"
MIN_PROBABILITY = "target.min_probability"
CONSTRAINTS = "constraints."
POLICY = "policy."  # begins the paths of what a request may not touch, where it adds something of its own


@dataclass(frozen=True)
class Question:
    """A problem with some of its constraints left out.

    Attributes:
        setting, target: what is left; nearest: whether the nearest answer is wanted, or any.
    """

    setting: Setting
    target: Target
    nearest: bool


@dataclass(frozen=True, eq=False)
class Decision:
    """What a search says of a question.

    Attributes:
        found: whether there is a counterfactual; None if that is not decided.
        row: (d,) the nearest one; distance: its distance.
        probability: of the wanted label, if the model gives one.
        changes: groups it changes.
    """

    found: bool | None
    row: Floats | None = None
    distance: float = np.inf
    probability: float | None = None
    changes: int = 0


@dataclass(frozen=True)
class WhyNot:
    """What was found.

    Attributes:
        blocking: paths of the constraints that together leave nothing; empty: without any there is nothing either.
        proved: whether it is known that they leave nothing; minimal: whether each of them is needed for that.
        advice: the relaxation of one constraint whose answer is nearest, in words, or "".
        tried: for `diagnostics`, every relaxation with the distance of its answer, None without.
        decided: whether there is surely no answer where none is told.
    """

    blocking: tuple[str, ...]
    proved: bool
    minimal: bool
    advice: str
    tried: dict[str, float | None]
    decided: bool

    @property
    def reason(self) -> str:
        """The sentence of a reply."""
        if not self.blocking:
            return "no row with values of the background is predicted as wanted, even without constraints (proved)"
        verb = "rules out" if self.proved and len(self.blocking) == 1 else "rule out"
        verb = verb if self.proved else f"may {verb}"
        doubt = "" if self.minimal else ", or part of this,"
        told = f"{' and '.join(self.blocking)}{doubt} {verb} every counterfactual"
        if self.advice:
            return f"{told}; {self.advice}"
        which = "one of them" if len(self.tried) > 1 else "it"
        return f"{told}; to relax {which} alone is not enough" if self.tried and self.decided else told

    def told(self) -> dict[str, Any]:
        """Return the details for `diagnostics`."""
        known = {"blocking": list(self.blocking), "proved": self.proved, "minimal": self.minimal}
        return {**known, "relaxations": dict(self.tried)}


def why_not(
    asked: Question,
    x0: Floats,
    decide: Callable[[Question], Decision],
    may_relax: Callable[[str], bool],
    *,
    proved: bool = False,
) -> WhyNot:
    """Find what blocks a row, and the cheapest single relaxation that helps.

    Args:
        asked: what has no answer.
        x0: (d,) codes of the row.
        decide: answers questions; it returns undecided once the budget is used up.
        may_relax: whether the asker may leave out the constraint of a path.
        proved: whether it is known that there is no answer; if not, that is asked first.
    """
    everything = _paths(asked.setting, asked.target)
    answerable = False if proved else decide(replace(asked, nearest=False)).found
    if answerable:
        return WhyNot((), False, False, "", {}, False)  # nothing blocks: the search missed it
    proved = answerable is False
    kept, minimal = _fewest(asked, everything, decide) if proved else (everything, False)
    decisions = {path: decide(_without(asked, {path}, nearest=True)) for path in kept if may_relax(path)}
    helped = {path: decision for path, decision in decisions.items() if decision.found}
    tried = {path: decision.distance if decision.found else None for path, decision in decisions.items()}
    decided = all(decision.found is not None for decision in decisions.values())
    advice = ""
    if helped:
        best = min(helped, key=lambda path: helped[path].distance)
        advice = _advice(asked.setting, asked.target, x0, best, helped[best])
    return WhyNot(tuple(kept), proved, minimal, advice, tried, decided)


def _fewest(asked: Question, everything: list[str], decide: Callable[[Question], Decision]) -> tuple[list[str], bool]:
    """Return what cannot be left out, and whether that is known of each; together they have no answer."""
    kept, minimal = everything, True
    kinds = [[path for path in kept if _kind(path) == kind] for kind in dict.fromkeys(map(_kind, kept))]
    for trial in [*(kind for kind in kinds if len(kind) > 1), *([path] for path in kept)]:
        rest = [path for path in kept if path not in trial]
        if len(rest) == len(kept):
            continue  # left out already, with its kind
        found = decide(_without(asked, set(everything) - set(rest), nearest=False)).found
        if found is False:
            kept = rest
        # a kind that is undecided is tried again one by one; what has an answer keeps it when more is left out
        minimal = minimal and (found is not None or len(trial) > 1)
    return kept, minimal


def _paths(setting: Setting, target: Target) -> list[str]:
    """Return the path of every constraint that can be left out, each once."""
    paths = [rule.path for rule in setting.rules]
    if setting.max_changes is not None:
        paths.append(MAX_CHANGES)
    if target.min_probability is not None:
        paths.append(MIN_PROBABILITY)
    return list(dict.fromkeys(paths))


def _kind(path: str) -> str:
    """Return the key a constraint stands under: ``constraints.ranges`` of ``constraints.ranges.age``."""
    head, _, rest = path.partition("constraints.")
    return f"{head}constraints.{rest.split('.')[0].split('[')[0]}" if rest else path


def _without(asked: Question, left_out: set[str], *, nearest: bool) -> Question:
    """Return a question without some constraints."""
    target = asked.target
    if MIN_PROBABILITY in left_out:
        target = target.model_copy(update={"min_probability": None})
    return Question(_relaxed(asked.setting, left_out), target, nearest)


def _relaxed(setting: Setting, left_out: set[str]) -> Setting:
    rules = tuple(rule for rule in setting.rules if rule.path not in left_out and POLICY + rule.path not in left_out)
    most = None if MAX_CHANGES in left_out else setting.max_changes
    sealed = None if setting.sealed is None else _relaxed(setting.sealed, left_out)
    return replace(setting, rules=rules, max_changes=most, sealed=sealed)


def _advice(setting: Setting, target: Target, x0: Floats, path: str, decision: Decision) -> str:
    """Return what to do about one constraint, as the nearest answer without it needs it."""
    if path == MAX_CHANGES:
        return f"allow {decision.changes} changes instead of {setting.max_changes}"
    if path == MIN_PROBABILITY:
        reached = Context(prec=3, rounding=ROUND_FLOOR).create_decimal(decision.probability or 0.0)
        return f"ask for a probability of {float(reached)} instead of {target.min_probability}"
    broken = [rule for rule in setting.rules if rule.path == path]
    if decision.row is not None:
        row = decision.row
        broken = [rule for rule in broken if not rule.holds(row[None, :], x0)[0]] or broken
        words = [_relax(rule, setting.space, x0, row) for rule in broken]
        return " and ".join(dict.fromkeys(words))
    return f"leave out {path}"


def _relax(rule: Rule, space: FeatureSpace, x0: Floats, row: Floats) -> str:
    """Return in words how far one rule must give way for a row (d,)."""
    key = _kind(rule.path).rsplit(".", 1)[-1]
    left = rule.then.left
    if key == "rules" or not isinstance(left, Ref):
        return f"leave out {rule.path} ({rule.text})"
    feature = space.features[left.column]
    old, new = (_in_full(feature.value(float(codes[left.column]))) for codes in (x0, row))
    if key == "ranges":
        bound = _in_full(feature.value(float(rule.then.bound(row[None, :], x0)[0])))
        return f"{'raise' if rule.then.sign == '<=' else 'lower'} the limit of {feature.name} from {bound} to {new}"
    if key == "levels":
        return f"allow {feature.name} to be {new}"
    return f"let {feature.name} go from {old} to {new}"


def _in_full(value: Level | None) -> str:
    """Return a value for a sentence; a number that a rounded one would not admit, with all its digits."""
    text = spoken(value)
    return repr(value) if isinstance(value, float) and float(text.replace(",", "")) != value else text
