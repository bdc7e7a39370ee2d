"""What is known of states, by their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats

Keys = NDArray[np.uint64]
RECENT: Final = 4_096  # entries that are kept apart: to put new ones among many takes long


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Keys (k,), ascending behind a 0 that stands for none, and what is known of each (k, 2)."""

    keys: Keys = field(default_factory=lambda: np.zeros(1, dtype=np.uint64))
    facts: Floats = field(default_factory=lambda: np.zeros((1, 2)))

    def places(self, keys: Keys) -> tuple[NDArray[np.intp], Bools]:
        """Return where keys (m,) would be, and whether they are there."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return places, self.keys[places] == keys

    def joined(self, keys: Keys, facts: Floats) -> _Sorted:
        """Return all entries, with new ones among them."""
        keys, facts = np.concatenate([self.keys, keys]), np.concatenate([self.facts, facts])
        order = np.argsort(keys, kind="stable")
        return _Sorted(keys[order], facts[order])


class Memory:
    """Two facts about each of many states."""

    def __init__(self) -> None:
        """Start with none."""
        self._old, self._recent = _Sorted(), _Sorted()

    def unknown(self, keys: Keys) -> Bools:
        """Return (m,) of which keys nothing is known."""
        return ~(self._old.places(keys)[1] | self._recent.places(keys)[1])

    def learn(self, keys: Keys, facts: Floats) -> None:
        """Note facts (m, 2) about keys (m,) that are new and all different."""
        self._recent = self._recent.joined(keys, facts)
        if len(self._recent.keys) > RECENT:
            self._old = self._old.joined(self._recent.keys[1:], self._recent.facts[1:])
            self._recent = _Sorted()

    def facts(self, keys: Keys, otherwise: tuple[float, float]) -> Floats:
        """Return what is known (m, 2) about keys (m,), and `otherwise` of the others."""
        found = np.tile(np.array(otherwise), (len(keys), 1))
        for part in (self._old, self._recent):
            places, known = part.places(keys)
            found[known] = part.facts[places[known]]
        return found
