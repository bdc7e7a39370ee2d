"""The frontier of an exact search: candidates and nodes that wait, least possible key first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import RedundantChanges
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes
from mlflow_cf.structures.capabilities import CostBound

Key = tuple[float, int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class KeyedCandidate:
    """One candidate.

    Attributes:
        key: its key.
        codes: (G,) its actions.
        certain: whether it meets the target by more than the tolerance; if not, the judge may refuse it.
    """

    key: Key
    codes: Codes
    certain: bool


@dataclass(frozen=True, eq=False)
class Node:
    """A set of candidates.

    Attributes:
        bits: the mask (actions,) of allowed actions, eight to a byte: a long search holds many boxes.
        size: number of actions.
        worthwhile: whether those that lose were looked for.
        bound: what its candidates cost at least; None: not known.
    """

    bits: NDArray[np.uint8]
    size: int
    worthwhile: bool = False
    bound: CostBound | None = None

    @property
    def mask(self) -> Bools:
        """The mask (actions,) of allowed actions."""
        return np.unpackbits(self.bits, count=self.size).astype(np.bool_)


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """Candidates that change the same groups, in the order of their keys.

    Attributes:
        codes: (m, G) their actions.
        distance: (m,) how far away they are.
        certain: (m,) see `KeyedCandidate`.
        changed: (G,) what they change.
        checked: (G,) the groups of which none of them has a change that is certainly redundant.
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
    def by_set(
        cls, own: Codes, codes: Codes, distance: Floats, certain: Bools, checked: Bools
    ) -> Iterator[CandidateSet]:
        """Yield candidates (m, G) beside a row with the actions `own` (G,), by what they change."""
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

    def candidate(self, at: int) -> KeyedCandidate:
        """Return one of them."""
        return KeyedCandidate(self._key(at), self.codes[at], bool(self.certain[at]))

    def after(self, first: int) -> CandidateSet:
        """Return what is left without the first ones, at most those that are tested."""
        rest = replace(self, codes=self.codes[first:], distance=self.distance[first:], certain=self.certain[first:])
        return replace(rest, tested=self.tested - first)

    def without(self, redundant: Bools) -> CandidateSet:
        """Return those that are left once the first (t,) were tested, and some of them are `redundant`."""
        kept = np.concatenate([np.flatnonzero(~redundant), np.arange(len(redundant), len(self.codes))])
        rest = replace(self, codes=self.codes[kept], distance=self.distance[kept], certain=self.certain[kept])
        return replace(rest, tested=int((~redundant).sum()), dropped=self.dropped + int(redundant.sum()))

    def _key(self, at: int) -> Key:
        return float(self.distance[at]), int(self.changed.sum()), tuple(self.codes[at].tolist())


class Frontier:
    """Nodes, and candidates by what they change, in the order of their least keys.

    Attributes:
        closed: changed sets (G,) as bytes; candidates with one of them are dropped.
    """

    def __init__(self, own: Codes, redundant: RedundantChanges | None) -> None:
        """Start empty. Candidates beside a row with actions `own` (G,) are dropped if a change is `redundant`."""
        self._own, self._redundant = own, redundant
        self.closed: set[bytes] = set()
        self._serial = count()
        self._heap: list[tuple[Key, int, CandidateSet | Node]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[tuple[Key, CandidateSet | Node]]:
        return ((key, entry) for key, _, entry in self._heap)

    @property
    def low(self) -> float:
        """A lower bound on the distance of all that is in the frontier."""
        return self._heap[0][0][0] if self._heap else np.inf

    def add_node(self, key: Key, node: Node) -> None:
        """Add a node that has no candidate with a lesser key."""
        heapq.heappush(self._heap, (key, next(self._serial), node))

    def add(self, codes: Codes, distance: Floats, certain: Bools, checked: Bools) -> None:
        """Add candidates (m, G), without a redundant change of the groups `checked` (G,); see `CandidateSet`."""
        if len(codes):
            for candidates in CandidateSet.by_set(self._own, codes, distance, certain, checked):
                self._wait(candidates)

    def add_candidate(self, candidate: KeyedCandidate) -> None:
        """Put back a candidate that was returned."""
        certain, everything = np.array([candidate.certain]), np.ones(len(self._own), dtype=np.bool_)
        (candidates,) = CandidateSet.by_set(
            self._own, candidate.codes[None], np.array([candidate.key[0]]), certain, everything
        )
        self._wait(candidates)

    def pop(self, limit: float, budget: Budget) -> KeyedCandidate | tuple[Key, Node] | None:
        """Return the next candidate or node, None if there is none within a limit or the budget is used up before."""
        while self._heap and self.low <= limit:
            key, _, least = heapq.heappop(self._heap)
            if isinstance(least, Node):
                return key, least
            if self._closes(least.changed):
                continue
            if least.tested:
                self._wait(least.after(1))
                return least.candidate(0)
            spent = budget.spent
            self._wait(least if spent else self._tested(least))
            if spent:
                return None
        return None

    def doubtful(self, most: int) -> list[Codes]:
        """Return the codes of some candidates that may be refused, at most so many."""
        found: list[Codes] = []
        for _, _, entry in self._heap[: 4 * most]:  # the nearest stand near the front
            if isinstance(entry, CandidateSet) and not self._closes(entry.changed):
                found += list(entry.codes[: entry.tested][~entry.certain[: entry.tested]])
        return found[:most]

    def _closes(self, changed: Bools) -> bool:
        return changed.tobytes() in self.closed

    def _wait(self, candidates: CandidateSet) -> None:
        if len(candidates.codes) and not self._closes(candidates.changed):
            heapq.heappush(self._heap, (candidates.key, next(self._serial), candidates))

    def _tested(self, candidates: CandidateSet) -> CandidateSet:
        """Test the first of some candidates; the longer all had a redundant change, the more of them."""
        first = candidates.codes[: min(max(thresholds.FIRST_TESTED, candidates.dropped), thresholds.MOST_TESTED)]
        none = np.zeros(len(first), dtype=np.bool_)
        return candidates.without(none if self._redundant is None else self._redundant.of(first, candidates.checked))
