"""Requests that were made to stop a server, or to read its background: what each sends as the options of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Options = dict[str, Any]


def nested(depth: int) -> Any:
    """Return a list in a list in a list, and so on."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


ECHOED = ("a long key", "many keys")  # refused by MLflow before us, in words that quote them
# Each is refused, whatever is to be explained; built when it is sent, for some are large.
ATTACKS: dict[str, Callable[[], Options]] = {
    "100,000 names": lambda: {"constraints": {"immutable": [f"name {n}" for n in range(100_000)]}},
    "one name a million times": lambda: {"constraints": {"immutable": ["income"] * 1_000_000}},
    "names that are nearly known": lambda: {"constraints": {"increasing": [f"incom{n}" for n in range(1_200)]}},
    "a long name": lambda: {"constraints": {"immutable": ["a" * 2_000_000]}},
    "a long key": lambda: {"a" * 100_000: 1},
    "many keys": lambda: {f"key {n}": n for n in range(50_000)},
    "many wrong types": lambda: {"constraints": {"immutable": list(range(100_000))}},
    "many levels": lambda: {"constraints": {"levels": {"job": [f"level {n}" for n in range(100_000)]}}},
    "many ranges": lambda: {"constraints": {"ranges": {f"name {n}": [0, 1] for n in range(20_000)}}},
    "many groups": lambda: {"constraints": {"groups": [["income"]] * 100_000}},
    "many transitions": lambda: {"constraints": {"forbidden": {"job": [["a", "b"]] * 100_000}}},
    "many rules": lambda: {"constraints": {"rules": ["x_cf.income >= x.income"] * 10_000}},
    "a long rule": lambda: {"constraints": {"rules": [" + ".join(["x_cf.income"] * 50_000) + " >= 0"]}},
    "a deep rule": lambda: {"constraints": {"rules": ["(" * 5_000 + "x_cf.income" + ")" * 5_000 + " >= 0"]}},
    "a deep list": lambda: {"constraints": {"immutable": nested(60)}},
    "a long explainer": lambda: {"explainer": "g" * 1_000_000},
    "many options": lambda: {"explainer": {"name": "geco", "options": {f"q{n}": n for n in range(50_000)}}},
    "a huge number": lambda: {"seed": 10**4000},
    "a list in place of options": lambda: {"count": [1] * 100_000},
}
