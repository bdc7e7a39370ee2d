"""What waits in an exact search: candidates, and boxes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes

Key = tuple[float, int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Leaf:
    """One candidate.

    Attributes:
        key: its key.
        codes: (G,) its tuples.
        certain: whether it meets the target by more than the tolerance; if not, the judge may refuse it.
    """

    key: Key
    codes: Codes
    certain: bool


@dataclass(frozen=True, eq=False)
class Box:
    """A set of candidates.

    Attributes:
        bits: the mask (choices,) of allowed tuples, eight to a byte: a long search holds many boxes.
        size: number of choices.
        worthwhile: whether those that lose were looked for.
    """

    bits: NDArray[np.uint8]
    size: int
    worthwhile: bool = False

    @property
    def mask(self) -> Bools:
        """The mask (choices,) of allowed tuples."""
        return np.unpackbits(self.bits, count=self.size).astype(np.bool_)


@dataclass(frozen=True, eq=False)
class Leaves:
    """Candidates that change the same groups, in the order of their keys.

    Attributes:
        codes: (m, G) their tuples.
        distance: (m,) how far away they are.
        certain: (m,) see `Leaf`.
        changed: (G,) what they change.
        checked: (G,) the groups of which none of them has a change that is certainly needless.
        tested: how many, from the first one on, have none at all.
        dropped: how many had one.
    """

    codes: Codes
    distance: Floats
    certain: Bools
    changed: Bools
    checked: Bools
    tested: int = 0
    dropped: int = 0

    @classmethod
    def by_set(cls, own: Codes, codes: Codes, distance: Floats, certain: Bools, checked: Bools) -> Iterator[Leaves]:
        """Yield candidates (m, G) beside a row with the tuples `own` (G,), by what they change."""
        changed = codes != own
        whole = np.packbits(changed, axis=1)
        _, first, of = np.unique(
            whole.view(np.dtype((np.void, whole.shape[1])))[:, 0], return_index=True, return_inverse=True
        )
        for number, at in enumerate(first.tolist()):
            here = np.flatnonzero(of == number)
            here = here[np.lexsort((*codes[here].T[::-1], distance[here]))]
            yield cls(codes[here], distance[here], certain[here], changed[at], checked)

    @property
    def key(self) -> Key:
        """The key of the first."""
        return self._key(0)

    def leaf(self, at: int) -> Leaf:
        """Return one of them."""
        return Leaf(self._key(at), self.codes[at], bool(self.certain[at]))

    def after(self, first: int) -> Leaves:
        """Return what is left without the first ones, at most those that are tested."""
        rest = replace(self, codes=self.codes[first:], distance=self.distance[first:], certain=self.certain[first:])
        return replace(rest, tested=self.tested - first)

    def without(self, needless: Bools) -> Leaves:
        """Return those that are left once the first (t,) were tested, and some of them are `needless`."""
        kept = np.concatenate([np.flatnonzero(~needless), np.arange(len(needless), len(self.codes))])
        rest = replace(self, codes=self.codes[kept], distance=self.distance[kept], certain=self.certain[kept])
        return replace(rest, tested=int((~needless).sum()), dropped=self.dropped + int(needless.sum()))

    def _key(self, at: int) -> Key:
        return float(self.distance[at]), int(self.changed.sum()), tuple(self.codes[at].tolist())
