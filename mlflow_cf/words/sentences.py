"""Changes, plans and regions in plain words: in a language, with the names, units and outcomes that the owner gives.

Sentences are deterministic and know no locale. A plan has one numbered line a step, and what all of them cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from mlflow_cf.features.feature import Feature, Level, days
from mlflow_cf.words.changes import Change, RegionSide, Step, changes_between
from mlflow_cf.words.phrases import MARKS, PHRASES, Language
from mlflow_cf.words.result import Survived

MOST_LEVELS: Final = 5  # of a region, that a sentence lists
BEFORE_NUMBERS: Final = "$€£¥"  # units that English puts before a number
ATTACHED: Final = ("%", "°")  # units that English puts behind it without a space
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")  # what dates are told as begins so
_PLAIN: Final = Feature("", "real", "float64")  # neither label nor unit


@dataclass(frozen=True, eq=False)
class Speaker:
    """Makes sentences.

    Attributes:
        language: of all phrases.
        features: what is known of features by name: their labels, units and decimals; others are told by their names.
        outcome: what the wanted prediction means, as ``the loan is approved``; "": the prediction itself is told.
    """

    language: Language = "en"
    features: Mapping[str, Feature] = field(default_factory=dict)
    outcome: str = ""

    def answer(self, changes: Sequence[Change], prediction: Level) -> str:
        """Return ``income rises from 41,000 to 46,500: the prediction becomes 1``."""
        return self.sentence([self.clause(change) for change in changes], self.outcome_of(prediction))

    def sentence(self, clauses: Sequence[str], outcome: str) -> str:
        """Return the same of changes, and of what comes of them, that are told already."""
        return self.say("answer", changes=self._list(clauses), outcome=outcome)

    def outcome_of(self, prediction: Level) -> str:
        """Return ``the prediction becomes 1``, or what the wanted prediction means."""
        return _one_line(self.outcome) or self.say("prediction", label=self.value(prediction))

    def survives(self, survived: Survived) -> str:
        """Return how surely an answer holds under models that retraining may give."""
        numbers = {name: self.marked(f"{getattr(survived, name):.3g}") for name in ("holds", "at_least", "confidence")}
        return self.say("survives", agreeing=survived.agreeing, models=survived.models, **numbers)

    def surviving(self, sentence: str, survived: Survived | None) -> str:
        """Return what is said of an answer, with how surely it survives on a line of its own."""
        return sentence if survived is None else f"{sentence}\n{self.survives(survived)}"

    def changes(self, changes: Sequence[Change]) -> str:
        """Return ``income rises from 41,000 to 46,500 and owner changes from no to yes``."""
        return self._list([self.clause(change) for change in changes])

    def clause(self, change: Change) -> str:
        """Return ``income rises from 41,000 to 46,500``."""
        old, new = change.old, change.new
        before, after = self.pair(change)
        verb = "changes"
        if _number(old) and _number(new):
            verb = "rises" if new > old else "falls"  # type: ignore[operator]
        elif old is not None and new is not None:
            start, end = (days(v) if isinstance(v, str) and _DATE.match(v) else None for v in (old, new))
            if start is not None and end is not None:
                verb = "later" if end > start else "earlier"
        return self.say(verb, feature=self.name(change.feature), old=before, new=after)

    def plan(self, steps: Sequence[Step], old_row: Mapping[str, Level | None]) -> str:
        """Return a plan as numbered lines, the last of which tells what several steps cost in all.

        ``1. add education: education rises from 9 to 13 and age rises from 30 to 38 (effort 4, probability 0.31)``.
        What names and levels hold of line breaks is a space in it.

        Args:
            steps: of the plan; none give "".
            old_row: every feature's value before the first of them.
        """
        rows = [old_row, *(step.row for step in steps)]
        lines = [self._line(step, before) for step, before in zip(steps, rows, strict=False)]
        if len(steps) > 1:
            lines.append(self.say("total", effort=self.cost(math.fsum(s.effort * s.discount for s in steps))))
        return "\n".join(lines)

    def region(self, sides: Sequence[RegionSide], ends: Sequence[tuple[bool, bool]]) -> str:
        """Return ``it holds while utilisation is 52 or less and income is from 38,000 to 60,000``.

        Args:
            sides: of the region, at least one.
            ends: of each, whether no admissible value lies below its low end, and above its high end.
        """
        told = [
            self.say("side", feature=self.name(side.feature), values=self._values(side, *some))
            for side, some in zip(sides, ends, strict=True)
        ]
        return self.say("region", sides=self._list(told))

    def name(self, feature: str) -> str:
        """Return what a feature is called: its label, or else its name."""
        label = self._known(feature).label
        return (label and _one_line(label)) or feature.replace("_", " ")

    def value(self, value: Level | None, feature: str = "") -> str:
        """Return a value of a feature, with its unit: 41,000 EUR, 0.5, yes, rent, or "missing"."""
        if value is None or isinstance(value, bool):
            return self.say("missing" if value is None else "yes" if value else "no")
        if isinstance(value, str):
            return value.replace("\n", " ")  # a sentence has one line
        known = self._known(feature)
        text = spoken(value) if known.decimals is None else f"{value:,.{known.decimals}f}"
        return self._with_unit(text, known)

    def cost(self, amount: float) -> str:
        """Return an amount of effort with two decimals, or with three digits where that says more: 4.35, 0.0313."""
        return self.marked(cost(amount))

    def marked(self, text: str) -> str:
        """Return a number in English digits with the marks of the language."""
        thousands, decimal = MARKS[self.language]
        return text.translate({ord(","): thousands, ord("."): decimal})

    def likely(self, probability: float) -> str:
        """Return a probability with two decimals; 0.00 and 1.00 would say more than is known."""
        if 0 < probability < 0.005:
            return self.say("below", probability=self.marked("0.01"))
        if 0.995 < probability < 1:
            return self.say("above", probability=self.marked("0.99"))
        return self.marked(f"{probability:.2f}")

    def pair(self, change: Change) -> tuple[str, str]:
        """Return both values of a change; numbers with all their digits where they would read the same otherwise."""
        before, after = self.value(change.old, change.feature), self.value(change.new, change.feature)
        if before == after and _number(change.old) and _number(change.new):
            return self._exact(change.old, change.feature), self._exact(change.new, change.feature)
        return before, after

    def say(self, phrase: str, **filled: object) -> str:
        """Return a phrase of the table in the language, filled in."""
        return PHRASES[phrase][self.language].format(**filled)

    def _known(self, feature: str) -> Feature:
        return self.features.get(feature, _PLAIN)

    def _with_unit(self, text: str, known: Feature) -> str:
        unit = _one_line(known.units if known.units and text not in ("1", "-1") else known.unit)
        number = self.marked(text)
        if not unit:
            return number
        if self.language == "en" and unit in BEFORE_NUMBERS:
            return f"-{unit}{number[1:]}" if number.startswith("-") else unit + number
        return number + unit if self.language == "en" and unit in ATTACHED else f"{number} {unit}"

    def _list(self, parts: Sequence[str], link: str = "and") -> str:
        if len(parts) < 2:
            return "".join(parts)
        return self.say(link, first=", ".join(parts[:-1]), last=parts[-1])

    def _exact(self, value: Level | None, feature: str) -> str:
        """Return all digits of a number."""
        return self._with_unit(repr(value), self._known(feature))

    def _line(self, step: Step, before: Mapping[str, Level | None]) -> str:
        effort, discount = self.cost(step.effort), self.cost(step.discount)
        if step.discount == 1:
            facts = [self.say("effort", effort=effort)]
        else:  # something has made it cheaper
            left = self.cost(step.effort * step.discount)
            facts = [self.say("discounted", effort=effort, discount=discount, left=left)]
        if step.probability is not None:
            facts.append(self.say("likely", probability=self.likely(step.probability)))
        changes = self.changes(changes_between(before, step.row)) or self.say("nothing")
        line = self.say("step", number=step.step, action=step.action, changes=changes, facts=", ".join(facts))
        return _one_line(line)

    def _values(self, side: RegionSide, at_low: bool, at_high: bool) -> str:  # noqa: FBT001  a pair of them
        if side.levels:
            told = [self.value(level, side.feature) for level in side.levels[:MOST_LEVELS]]
            others = len(side.levels) - len(told)
            if others:
                return self.say("others", levels=", ".join(told), count=self.marked(f"{others:,}"))
            return reduce(lambda first, last: self.say("or", first=first, last=last), told)
        low, high = self.value(side.low, side.feature), self.value(side.high, side.feature)
        if side.low == side.high:
            return low
        if low == high:  # closer than the digits shown
            low, high = self._exact(side.low, side.feature), self._exact(side.high, side.feature)
        dates = isinstance(side.low, str)
        if at_low and not at_high:
            return self.say("or_earlier" if dates else "or_less", high=high)
        if at_high and not at_low:
            return self.say("or_later" if dates else "or_more", low=low)
        return self.say("between", low=low, high=high)


def spoken(value: Any) -> str:
    """Return a value for a sentence in English: 41,000, 0.5, yes, rent, or "missing"."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return str(value)


def cost(amount: float) -> str:
    """Return an amount of effort with two decimals, or with three digits where that says more: 4.35, 1,200, 0.0313."""
    if not 1e-9 <= amount < 1e15:  # nothing, or too many digits
        return f"{amount:.3g}"
    decimals = max(2, 2 - math.floor(math.log10(amount)))
    text = f"{amount:,.{decimals}f}"
    return text.rstrip("0").rstrip(".")


def counted(count: int, noun: str) -> str:
    """Return ``1 row``, or ``1,200 rows``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _number(value: Level | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_line(text: str) -> str:
    return " ".join(text.split())
