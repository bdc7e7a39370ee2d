"""A plan in plain words: one numbered line a step, and what all of them cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mlflow_cf.features import Level
from mlflow_cf.words.result import Step, changes_between
from mlflow_cf.words.sentences import told


def plan_text(steps: Sequence[Step], old_row: Mapping[str, Level | None]) -> str:
    """Return a plan as numbered lines, the last of which tells what several steps cost in all.

    ``1. add education: education rises from 9 to 13 and age rises from 30 to 38 (effort 4, probability 0.31)``. What
    names and levels hold of line breaks is a space in it.

    Args:
        steps: of the plan; none give "".
        old_row: every feature's value before the first of them.
    """
    rows = [old_row, *(step.row for step in steps)]
    lines = [_line(step, before) for step, before in zip(steps, rows, strict=False)]
    if len(steps) > 1:
        lines.append(f"in all {cost(math.fsum(step.effort * step.discount for step in steps))}")
    return "\n".join(lines)


def cost(amount: float) -> str:
    """Return an amount of effort with two decimals, or with three digits where that says more: 4.35, 1,200, 0.0313."""
    if not 1e-9 <= amount < 1e15:  # nothing, or too many digits
        return f"{amount:.3g}"
    decimals = max(2, 2 - math.floor(math.log10(amount)))
    text = f"{amount:,.{decimals}f}"
    return text.rstrip("0").rstrip(".")


def _line(step: Step, before: Mapping[str, Level | None]) -> str:
    changes = [(change.feature, change.old, change.new) for change in changes_between(before, step.row)]
    facts = [f"effort {_cost_of(step)}"]
    if step.probability is not None:
        facts.append(f"probability {_likely(step.probability)}")
    line = f"{step.step}. {step.action}: {told(changes) or 'nothing changes'} ({', '.join(facts)})"
    return " ".join(line.split())


def _likely(probability: float) -> str:
    """Return a probability with two decimals; 0.00 and 1.00 would say more than is known."""
    if 0 < probability < 0.005:
        return "below 0.01"
    return "above 0.99" if 0.995 < probability < 1 else f"{probability:.2f}"


def _cost_of(step: Step) -> str:
    """Return what a step costs, and how where something has made it cheaper: 4, or 0.5 x 0.7 = 0.35."""
    if step.discount == 1:
        return cost(step.effort)
    return f"{cost(step.effort)} x {cost(step.discount)} = {cost(step.effort * step.discount)}"
