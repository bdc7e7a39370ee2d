"""Why a row has no counterfactual: a smallest set of constraints that rules them all out, and what would help most.

The set is found by leaving out (a deletion filter): first whole kinds of constraints, then single ones. What can be
left out while there is still no counterfactual is no part of it.

All of it is a generator, like a proof: it yields rows and is sent what the judge says about them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context
from typing import Any, Final, TypeVar

import numpy as np

from mlflow_cf.constraints import Origin, Rule
from mlflow_cf.constraints.expressions import Changed, Ref, evaluate
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import Requirements
from mlflow_cf.goal.requirements import MARGIN
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.policy import Target
from mlflow_cf.policy.target import EVEN
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.problem.binding import admissible, same
from mlflow_cf.why_not.blame import WITHHOLDS, by_kind
from mlflow_cf.words.statements import say

MOST_MADE: Final = 256  # relaxed questions that stay; each has the rules of its bound policy, sorted and compiled
MIN_PROBABILITY = Origin("policy", "min_probability")  # a policy may hold a floor that no request may go below
# What a feature is to be let do, by how the answer changes it: at all, or further than now.
LET: Final = {"change": "let_change", "rise": "let_rise", "fall": "let_fall"}
LET_FURTHER: Final = {"change": "let_change_further", "rise": "let_rise_further", "fall": "let_fall_further"}
T = TypeVar("T")
Deciding = Generator[Asked, Outcome, T]


@dataclass(frozen=True)
class Question:
    """A problem with some of its constraints left out.

    Attributes:
        bound_policy, target, requirements: what is left.
        nearest: whether the nearest answer is wanted, or any.
    """

    bound_policy: BoundPolicy
    target: Target
    requirements: Requirements
    nearest: bool


@dataclass(frozen=True, eq=False)
class Decision:
    """The result of a search for an answer to a question.

    Attributes:
        found: whether there is a counterfactual; None if that is not decided.
        row: (d,) the nearest one; distance: its distance.
        probability: of the wanted label, if the model gives one.
    """

    found: bool | None
    row: Floats | None = None
    distance: float = np.inf
    probability: float | None = None


@dataclass(frozen=True)
class WhyNot:
    """What was found.

    Attributes:
        blocking: the constraints that together leave nothing; empty: without any there is nothing either.
        proved: whether it is known that they leave nothing; minimal: whether each of them is needed for that.
        advice: the relaxation of one constraint whose answer is nearest, in words, or "".
        tried: for `diagnostics`, every relaxation with the distance of its answer, None without.
        decided: whether it is known that relaxations without a distance have no answer.
        joined: groups that are never left out: without them, a request would learn which values rows have.
        withheld: groups with combinations that requests are not proposed, as few rows share them.
        missed: whether there is an answer that the search has not found.
    """

    blocking: tuple[Origin, ...]
    proved: bool
    minimal: bool
    advice: str
    tried: dict[Origin, float | None]
    decided: bool
    joined: tuple[Origin, ...] = ()
    withheld: tuple[Origin, ...] = ()
    missed: bool = False

    @property
    def reason(self) -> str:
        """The sentence of a reply."""
        sentence = self._blocked() if self.blocking else self._unwanted()
        if self.withheld:
            return say("few_share", sentence=sentence, path=WITHHOLDS, groups=by_kind(self.withheld))
        return sentence

    def _unwanted(self) -> str:
        """Return what is said where no row is wanted at all, or none with the combinations that groups may take."""
        return say("unwanted_together", groups=by_kind(self.joined)) if self.joined else say("unwanted")

    def _blocked(self) -> str:
        """Return what rules out every counterfactual, or may do so; what would help comes first."""
        named = by_kind(self.blocking)
        if self.advice:
            causes = say("all_of" if self.minimal else "part_of", causes=named)
            return say("ruled_out" if self.proved else "maybe_ruled_out", advice=self.advice, causes=causes)
        causes = say("all_of" if self.minimal else "part_of_them", causes=named)
        sure = "rules_out" if len(self.blocking) == 1 else "rule_out"
        sentence = say(sure if self.proved else "may_rule_out", causes=causes)
        if self.tried and self.decided:
            return say("one_is_not_enough" if len(self.tried) > 1 else "it_is_not_enough", sentence=sentence)
        return sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the details for `diagnostics`, constraints by their paths."""
        return {
            "blocking": [origin.path for origin in self.blocking],
            "proved": self.proved,
            "minimal": self.minimal,
            "withheld": [origin.path for origin in self.withheld],
            "relaxations": {origin.path: distance for origin, distance in self.tried.items()},
        }


class Relaxations:
    """A question with any of its constraints left out, made once for all rows of a table; belongs to one thread.

    Attributes:
        asked: the whole question; origins: what can be left out, in the order in which that is tried.
    """

    def __init__(self, asked: Question) -> None:
        """Set up for a question; what it is without something is made when that is asked."""
        # groups first: what is left without one is then more, whatever else is left out
        found = list(asked.bound_policy.joining) if asked.bound_policy.reveal else []
        found += [rule.origin for rule in asked.bound_policy.all_rules]
        if asked.target.min_probability is not None:
            found.append(MIN_PROBABILITY)
        if asked.requirements.margin:
            found.append(MARGIN)
        found += [one.origin for one in asked.requirements.further]
        self.asked, self.origins = asked, list(dict.fromkeys(found))
        self._made: dict[frozenset[Origin], Question] = {}

    def without(self, left_out: Collection[Origin], *, nearest: bool) -> Question:
        """Return the question without some constraints."""
        key = frozenset(left_out)
        if key not in self._made:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            bound_policy, target = self.asked.bound_policy, self.asked.target
            if MIN_PROBABILITY in key:
                target = target.model_copy(update={"min_probability": None})
            bound_policy = bound_policy.without(key) if key else bound_policy
            self._made[key] = Question(bound_policy, target, self.asked.requirements.without(key), nearest)
        return replace(self._made[key], nearest=nearest)


@dataclass(frozen=True, eq=False)
class Unanswered:
    """A row without answer, and the answers to relaxed questions found so far.

    Attributes:
        relaxations: of what is asked.
        x0: (d,) its codes, by `space`.
        decide: answers questions; it returns undecided once the budget is used up.
        broken: for each answer to a relaxed question, the constraints it breaks; if all of these are left out, it is an
            answer.
    """

    relaxations: Relaxations
    space: FeatureSpace
    x0: Floats
    decide: Callable[[Question], Deciding[Decision]]
    broken: list[frozenset[Origin]] = field(default_factory=list)

    def ask(self, left_out: Collection[Origin], *, nearest: bool = False) -> Deciding[Decision]:
        """Decide without some constraints, and note what the answer breaks."""
        if not nearest and any(broken <= set(left_out) for broken in self.broken):
            return Decision(True)
        decision = yield from self.decide(self.relaxations.without(left_out, nearest=nearest))
        if decision.row is not None:
            self.broken.append(self.breaks(decision.row, left_out))
        return decision

    def breaks(self, row: Floats, left_out: Collection[Origin]) -> frozenset[Origin]:
        """Return what a row (d,) breaks of what is left out, or may break: nobody has asked the requirements."""
        bound_policy = self.relaxations.asked.bound_policy.covering(self.space)
        joining, one = bound_policy.joining, row[None, :]
        if joining and bound_policy.limits:  # they count otherwise where a group is left out
            return frozenset(left_out)
        held = bound_policy.checks.held(one, self.x0)[:, 0].tolist()
        kept = {rule.origin for rule in bound_policy.all_rules}
        kept -= {rule.origin for rule, holds in zip(bound_policy.all_rules, held, strict=True) if not holds}
        for origin, domain in joining.items():
            columns = list(domain.columns)
            values, own = one[:, columns], self.x0[columns]
            if same(values, own).all() or admissible(domain, values, own)[0]:
                kept.add(origin)
        return frozenset(left_out) - kept


def why_not(
    row: Unanswered, may_relax: Callable[[Origin], bool], *, proved: bool = False, quick: bool = False
) -> Deciding[WhyNot]:
    """Find what blocks a row, and the cheapest single relaxation that helps.

    Args:
        row: the row, and what it asks for.
        may_relax: whether the asker may leave out a constraint.
        proved: whether it is known that there is no answer; if not, that is asked first.
        quick: try no other relaxations than those that the nearest answer without all of them needs.
    """
    relaxations, everything = row.relaxations, row.relaxations.origins
    answerable = False if proved else (yield from row.ask(())).found
    if answerable:
        return WhyNot((), False, False, "", {}, False, missed=True)
    proved = answerable is False
    decisions = yield from _needed(row, [origin for origin in everything if may_relax(origin)])
    kept, minimal = (yield from _fewest(row)) if proved else (everything, False)
    relaxable = [origin for origin in kept if may_relax(origin)]
    for origin in [] if quick else relaxable:
        if origin not in decisions:
            decisions[origin] = yield from row.ask({origin}, nearest=True)
    decisions = {origin: decisions[origin] for origin in kept if origin in decisions}
    helped = {origin: decision for origin, decision in decisions.items() if decision.found}
    tried = {origin: decision.distance if decision.found else None for origin, decision in decisions.items()}
    decided = len(tried) == len(relaxable) and all(decision.found is not None for decision in decisions.values())
    advice = ""
    if helped:
        best = min(helped, key=lambda origin: helped[origin].distance)
        advice = _advice(row, best, helped[best])
    bound_policy = relaxations.asked.bound_policy
    joined = () if bound_policy.reveal else tuple(bound_policy.joining)
    hidden = tuple(origin for origin in joined if bound_policy.joining[origin].withheld)
    return WhyNot(tuple(kept), proved, minimal, advice, tried, decided, joined, hidden)


def _needed(row: Unanswered, relaxable: Sequence[Origin]) -> Deciding[dict[Origin, Decision]]:
    """Return what is decided without each constraint that the nearest answer without all of `relaxable` breaks.

    If it breaks a single one, no other relaxation of one has a nearer answer.
    """
    nearest = (yield from row.ask(relaxable, nearest=True)) if relaxable else Decision(None)
    if nearest.row is None:
        return {}
    broken = row.breaks(nearest.row, relaxable)
    if len(broken) == 1:
        return dict.fromkeys(broken, nearest)
    decisions = {}
    for origin in relaxable:
        if origin in broken:
            decisions[origin] = yield from row.ask({origin}, nearest=True)
    return decisions


def _fewest(row: Unanswered) -> Deciding[tuple[list[Origin], bool]]:
    """Return what cannot be left out, and whether that is known of each; together they have no answer."""
    everything = row.relaxations.origins
    kept, minimal = everything, True
    sections = dict.fromkeys(origin.section for origin in kept)
    kinds = [[origin for origin in kept if origin.section == section] for section in sections]
    for trial in [*(kind for kind in kinds if len(kind) > 1), *([origin] for origin in kept)]:
        rest = [origin for origin in kept if origin not in trial]
        if len(rest) == len(kept):
            continue  # left out already, with its kind
        found = (yield from row.ask(set(everything) - set(rest))).found
        if found is False:
            kept = rest
        # a kind that is undecided is tried again one by one; what has an answer keeps it when more is left out
        minimal = minimal and (found is not None or len(trial) > 1)
    bound_policy = row.relaxations.asked.bound_policy
    # a limit counts changes otherwise than when a group was kept: then that may not be needed any more
    split = 0 < sum(origin in bound_policy.joining for origin in kept) < len(bound_policy.joining)
    return kept, minimal and not (split and any(limit.origin in kept for limit in bound_policy.limits))


def _advice(asking: Unanswered, origin: Origin, decision: Decision) -> str:
    """Return what to do about one constraint, as the nearest answer without it needs it."""
    asked, x0, row = asking.relaxations.asked, asking.x0, decision.row
    bound_policy = asked.bound_policy.covering(asking.space)
    if origin == MIN_PROBABILITY:
        reached = _three_digits(max((decision.probability or 0.0) - asked.requirements.margin, 0.0))
        return say("ask_probability", reached=reached, asked=asked.target.min_probability)
    if origin == MARGIN:
        above = (decision.probability or 0.0) - (asked.target.min_probability or EVEN)
        return say("ask_margin", reached=_three_digits(max(above, 0.0)), asked=asked.requirements.margin)
    if row is None or origin.key in ("groups", "robust_to", "plausible", "survival"):
        return say("leave_out", path=origin.path)
    for limit in bound_policy.limits:
        if limit.origin == origin:
            changes = int(evaluate(Changed(limit.groups), row[None, :], x0)[0])
            return say("allow_changes", changes=changes, most=limit.most)
    declared = [rule for rule in bound_policy.rules if rule.origin == origin]
    broken = [rule for rule in declared if not rule.holds(row[None, :], x0)[0]] or declared
    ways = dict.fromkeys(_relax(rule, asking.space, x0, row, reveal=bound_policy.reveal) for rule in broken)
    return say("all_ways", ways=tuple(ways)) if len(ways) > 1 else next(iter(ways))


def _three_digits(number: float) -> float:
    """Return a number that is at most this one, for a sentence."""
    return float(Context(prec=3, rounding=ROUND_FLOOR).create_decimal(number))


def _relax(rule: Rule, space: FeatureSpace, x0: Floats, row: Floats, *, reveal: bool) -> str:
    """Return in words how far one rule must give way for a row (d,); without `reveal`, in which direction alone."""
    key, left = rule.origin.key, rule.then.left
    if key == "rules" or not isinstance(left, Ref) or (key == "forbidden" and not reveal):
        return say("leave_out_rule", path=rule.origin.path, rule=rule.text)
    feature, old, new = space.features[left.column], x0[left.column], row[left.column]
    name, (before, after) = feature.name, (feature.value(float(code)) for code in (old, new))
    if key == "ranges":
        high = rule.then.sign == "<="
        if not reveal:
            return say("raise" if high else "lower", feature=name, rule=rule.text)
        bound = feature.value(float(rule.then.bound(row[None, :], x0)[0]))
        return say("raise_from" if high else "lower_from", feature=name, bound=bound, value=after)
    if key == "levels":
        return say("allow_level", feature=name, value=after) if reveal else say("allow_levels", feature=name)
    if reveal:
        return say("let_go", feature=name, old=before, value=after)
    way = "change" if not feature.has_order or not abs(new - old) > 0 else "rise" if new > old else "fall"
    return say(LET_FURTHER[way] if key == "relative" else LET[way], feature=name)
