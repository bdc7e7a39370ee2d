"""Changes in plain words; deterministic templates, no locale."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mlflow_cf.features.dates import days

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")  # what dates are told as begins so


def written(value: Any) -> str | None:
    """Return a value as the text of a reply: 41000, 0.5, true, rent; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def spoken(value: Any) -> str:
    """Return a value for a sentence: 41,000, 0.5, yes, rent, or "missing"."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return str(value)


def counted(count: int, noun: str) -> str:
    """Return ``1 row``, or ``1,200 rows``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def sentence(changes: Sequence[tuple[str, Any, Any]], prediction: Any) -> str:
    """Return ``income rises from 41,000 to 46,500: the prediction becomes 1``."""
    return f"{told(changes)}: the prediction becomes {spoken(prediction)}"


def told(changes: Sequence[tuple[str, Any, Any]]) -> str:
    """Return ``income rises from 41,000 to 46,500 and owner changes from no to yes``."""
    parts = [_clause(name.replace("_", " "), old, new) for name, old, new in changes]
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def aim(name: str, value: Any, beyond: str) -> str:
    """Return ``utilisation to 30 or less``; ``beyond`` is the word for values that are left as they are, if any are."""
    return f"{name.replace('_', ' ')} to {spoken(value)}{' or ' + beyond if beyond else ''}"


def _clause(name: str, old: Any, new: Any) -> str:
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (old, new)]
    if not all(numbers):
        return f"{name} {_moves(old, new)} from {spoken(old)} to {spoken(new)}"
    verb = "rises" if new > old else "falls"
    before, after = spoken(old), spoken(new)
    if before == after:  # closer than the digits shown
        before, after = repr(old), repr(new)
    return f"{name} {verb} from {before} to {after}"


def _moves(old: Any, new: Any) -> str:
    """Return what a date does, of which a sentence can tell the direction; anything else changes."""
    before, after = (days(v) if isinstance(v, str) and _DATE.match(v) else None for v in (old, new))
    if before is None or after is None:
        return "changes"
    return "moves later," if after > before else "moves earlier,"
