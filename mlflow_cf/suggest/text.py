"""Suggestions as a commented YAML file of constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from mlflow_cf.suggest.result import Suggestion, Suggestions

HEADER: Final = """\
Suggested constraints, to be reviewed: nothing has been applied.
Above each line: how many rows speak for it, how many against it, and the reason.
Lines that are comments have exceptions, or describe what was seen and perhaps no more: take the # away to apply one."""
KEYS: Final = ("immutable", "increasing", "ranges", "groups", "rules")


def yaml_of(suggestions: Suggestions) -> str:
    """Return the file; a key of which all lines are comments is null, which the reader counts as left out."""
    lines = [*_comments(HEADER, ""), *_comments(suggestions.summary, "")]
    for note in suggestions.notes:
        lines += _comments(f"Note: {note}", "")
    for name, why in suggestions.skipped.items():
        lines += _comments(f"Not looked at: {_scalar(name)}: {why}", "")
    for key in KEYS:
        those = [each for each in suggestions if key in each.constraint]
        if those:
            lines += ["", f"{key}:"]
            for each in those:
                lines += _entry(each, key)
    steps = [each for each in suggestions if "features" in each.constraint]
    if steps:
        lines += ["", *_comments("Steps are no constraints: pass them to wrap or log_model as features=", "")]
        for each in steps:
            lines += [*_figures(each, ""), *_comments(_scalar(each.constraint["features"]), "")]
    return "\n".join(lines) + "\n"


def _entry(each: Suggestion, key: str) -> Iterator[str]:
    yield from _figures(each, "  ")
    value = each.constraint[key]
    start = "  " if each.active else "  # "
    if isinstance(value, dict):
        for name, content in value.items():
            yield f"{start}{_scalar(name)}: {_scalar(content)}"
    else:
        for content in value:
            yield f"{start}- {_scalar(content)}"


def _figures(each: Suggestion, indent: str) -> list[str]:
    return _comments(f"{each.support:,} for, {each.exceptions:,} against: {each.reason}", indent)


def _comments(text: str, indent: str) -> list[str]:
    """Return text as comments; what YAML could read as the end of a line or refuses is escaped."""
    lines = text.split("\n")
    return [f"{indent}# {''.join(c if c.isprintable() else repr(c)[1:-1] for c in line)}" for line in lines]


def _scalar(value: Any) -> str:
    """Return a value in flow style, on one line."""
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False)[
        1:-2
    ]
