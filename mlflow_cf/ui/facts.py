"""What the page must know of a model before anything is asked: its features, what its policy holds, its limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mlflow_cf.cards import Pictures
from mlflow_cf.cards.pictures import WIDTH, Drawing
from mlflow_cf.constraints import Constraints
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import EXPLAINERS
from mlflow_cf.features import Feature, Level
from mlflow_cf.policy import Target
from mlflow_cf.request.reasons import outcome_words
from mlflow_cf.words.sentences import spoken

MOST_LEVELS: Final = 200  # that a feature offers; others can be typed
EVEN: Final = 0.5  # where one of two labels becomes the likelier one


def pictures_of(explained: ExplainedModel) -> Pictures:
    """Return the distributions that may be shown: all of a background that is no secret, else no rare values."""
    return Pictures(explained.space.features, explained.policy.privacy.rare)


def facts_of(explained: ExplainedModel, name: str, pictures: Pictures) -> dict[str, Any]:
    """Return what the page must know of a model, as plain JSON values.

    Args:
        explained: the model.
        name: what the page calls it.
        pictures: its distributions, as `pictures_of` returns them.
    """
    policy, model = explained.policy, explained.model
    limits, privacy = policy.limits, policy.privacy
    allowed = privacy.answering(explained.explainer.name)
    return {
        "name": name,
        "flavor": model.flavor,
        "regression": model.regression,
        "classes": [] if model.regression else [str(label) for label in model.classes],
        "target": str(outcome_words(policy.target)),
        "threshold": threshold_of(explained, policy.target),
        "opened": explained.opened.structure is not None,
        "provable": explained.context.required.structure is not None,
        "certified": policy.certify,
        "plans": bool(policy.constraints.actions),
        "explainers": list(EXPLAINERS if allowed is None else allowed),
        "language": policy.language,
        "limits": {
            "count": limits.count,
            "time_limit_s": limits.time_limit_s,
            "max_changes": policy.constraints.max_changes,
        },
        "may": {"regions": privacy.regions, "levers": privacy.levers, "reasons": privacy.reasons},
        "features": [
            _feature(feature, pictures.drawing(feature.name), policy.constraints, privacy.rare)
            for feature in explained.space.features
        ],
    }


def threshold_of(explained: ExplainedModel, target: Target) -> float | None:
    """Return the probability from which on the target is met, where one number says that; None: none does."""
    model = explained.model
    if model.regression or model.score_kind != "probability":
        return None
    margin = explained.policy.margin
    if target.min_probability is not None:
        return float(target.min_probability) + margin
    return EVEN + margin if len(model.classes) == 2 or margin else None


def told_levels(feature: Feature, least: int) -> list[Level]:
    """Return the levels that more than `least` background rows have: ranks in order, others by frequency."""
    codes = feature.values.astype(np.intp)
    order = (
        np.arange(len(codes)) if feature.kind in ("ordinal", "boolean") else np.argsort(-feature.counts, kind="stable")
    )
    told = [feature.levels[codes[at]] for at in order.tolist() if feature.counts[at] > least]
    return told[:MOST_LEVELS]


def _feature(feature: Feature, drawing: Drawing, constraints: Constraints, least: int) -> dict[str, Any]:
    levels = [] if feature.numeric else told_levels(feature, least)
    axis = [drawing.low, drawing.high] if feature.numeric and drawing.bars else None
    return {
        "name": feature.name,
        "label": feature.label or feature.name.replace("_", " "),
        "unit": feature.units or feature.unit,
        "kind": feature.kind,
        "ordered": feature.has_order,
        "step": feature.step if feature.numeric else None,
        "nullable": feature.nullable,
        "days": feature.kind == "date" and feature.step is not None and float(feature.step).is_integer(),
        "levels": levels,
        "bars": drawing.path,
        "axis": axis,
        "places": [drawing.place(feature.code(level)) for level in levels],
        "typical": _typical(feature, drawing, levels),
        "policy": _held(feature, constraints),
    }


def _typical(feature: Feature, drawing: Drawing, levels: Sequence[Level]) -> Level | None:
    """Return a value to begin with: of the fullest bin, or the most frequent level; None: nothing is told."""
    if not feature.numeric:
        often = dict(zip(feature.values.tolist(), feature.counts.tolist(), strict=True))
        return max(levels, key=lambda level: often.get(float(feature.code_of[level]), 0.0), default=None)
    if not drawing.bars:
        return None
    tallest = max(drawing.bars, key=lambda bar: bar.height)
    middle = (tallest.left + tallest.width / 2) / WIDTH
    return feature.value(snapped(feature, drawing.low + middle * (drawing.high - drawing.low)))


def snapped(feature: Feature, code: float) -> float:
    """Return the admissible number next to a code: a whole one of whole numbers, a few digits of others."""
    if feature.step:
        return float(feature.low + round((code - feature.low) / feature.step) * feature.step)
    wide = feature.high - feature.low
    digits = 3 - math.floor(math.log10(wide)) if wide > 0 else 3
    return feature.held(round(code, digits))


def _held(feature: Feature, constraints: Constraints) -> dict[str, Any]:
    """Return what the policy holds a feature to: the page shows it, and cannot take it away."""
    name = feature.name
    low, high = constraints.ranges.get(name, (None, None))
    levels = constraints.levels.get(name)
    return {
        "locked": "constant" if feature.constant else "policy" if name in constraints.immutable else "",
        "direction": "".join(key for key in ("increasing", "decreasing") if name in getattr(constraints, key)),
        "range": [_end(feature, low), _end(feature, high)],
        "levels": None if levels is None else list(levels),
        "told": list(_told(feature, constraints)),
        "rules": _rules(name, constraints),
    }


def _end(feature: Feature, end: float | str | None) -> float | None:
    return None if end is None or not feature.numeric else feature.code(end)


def _told(feature: Feature, constraints: Constraints) -> Iterator[str]:
    """Yield in words what else the policy says of a feature."""
    name = feature.name
    low, high = (None, None) if feature.numeric else constraints.ranges.get(name, (None, None))
    yield from (f"{words} {end}" for words, end in (("at least", low), ("at most", high)) if end is not None)
    relative = constraints.relative.get(name)
    for key, most in () if relative is None else relative:
        way, _, unit = key.partition("_")
        if most is not None:
            yield f"{way} by at most {spoken(most)}{' %' if unit else ''}" if most else f"not {way}"
    if name in constraints.forbidden:
        yield "some transitions are forbidden"
    for group in constraints.groups:
        if name in group:
            yield f"changes together with {', '.join(one for one in group if one != name)}"


def _rules(name: str, constraints: Constraints) -> list[str]:
    """Return the policy's rules that name a feature."""
    named = re.compile(rf"\.{re.escape(name)}(?!\w)")
    return [rule for rule in constraints.rules if named.search(rule)]
