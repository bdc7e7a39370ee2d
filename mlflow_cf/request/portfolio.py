"""Rows of a long table that answers of few changes settle, a block at a time.

What `NearestFew` settles is verified as all answers are: against every constraint, and by the logged model, which
is asked about the candidates of a block in one call. Rows that are not settled, or whose candidate is refused, are left
to `Explaining`. A row gets the same answer as there, whatever the size of a block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import AGREED_SHARE, PAIRS_PER_ROW, SCORE_TOLERANCES, SWEPT
from mlflow_cf.explainers import GeCo
from mlflow_cf.explainers.exact import Exact
from mlflow_cf.explainers.geco.around import CLOSE
from mlflow_cf.explainers.geco.sweeps import NEAREST, SOON, SOON_SHARE
from mlflow_cf.features import CodedTable, Floats
from mlflow_cf.goal import BoundTarget, Scorer
from mlflow_cf.goal.requirements import meets_all
from mlflow_cf.model.judge import Outcome, classes_of
from mlflow_cf.model.parity import DOUBLE
from mlflow_cf.portfolio.listed import NearestListed
from mlflow_cf.portfolio.nearest import DoubtTolerances, NearestFew, Settled, SettledSets
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.proof.verify import NOTHING
from mlflow_cf.request.block_answers import BlockAnswers, SettledBlock
from mlflow_cf.request.candidates import Asked, ChosenSets, alone_by_structure, asked_alone, lawful_of, verified_of
from mlflow_cf.request.expected import Predictions
from mlflow_cf.request.request import Request, reserve_of
from mlflow_cf.structures.joined import Joined
from mlflow_cf.words.result import Proof

# Rows of a short table, which are searched one by one, and judged in the call that predicts them: a long one costs a
# call more. Where several models must accept answers, that is worth it for few rows already: 5 of Adult take 1.8 ms
# each for 2.6, 30 of Adult 0.6 for 1.6, of German 1.5 for 2.8; one alone takes 9.1 for 7.1.
FEW: Final = 64
FEW_LISTED: Final = 4
VERIFIED: Final = 16  # candidates of a row that are verified together, or more
DOUBT: Final = CLOSE + SWEPT  # of scores, for the search of single rows
# Blocks add scores up in another order than that search. Whether it doubts one whose distance from the threshold is its
# tolerance up to this factor, more or less, is not known: of models that calculate in double precision, and of others.
WIDER, WIDER_SINGLE = 1.0001, 1.01


class Settling(NamedTuple):
    """What settles rows that the model predicts as one class.

    Attributes:
        by: finds their nearest answers; scorer: rates candidates.
        targets: what all judges must say of an answer, the model's own first.
    """

    by: NearestFew | NearestListed
    scorer: Scorer
    targets: tuple[BoundTarget, ...]


class Portfolio:
    """Settles rows of a request in blocks; threads may share it.

    Attributes:
        predictions: of all rows.
    """

    def __init__(self, request: Request, predictions: Predictions) -> None:
        """Set up for rows that the logged model has predicted, or still will."""
        self.predictions, self.request, self._rows = predictions, request, predictions.reading
        self._known: dict[int, Settling | None] = {}

    @classmethod
    def of(cls, request: Request, predictions: Predictions) -> Portfolio | None:
        """Return what settles rows of a request with its constraints; None where it asks for more than blocks give."""
        return cls(request, predictions) if is_plain(request) else None

    def prepare(self, numbers: Codes) -> None:
        """Set up what blocks share before threads need it."""
        for own in classes_of(self._own(numbers)):
            self._settling(own)
        _ = self._bound_policy, self._most_paired

    def timely(self, numbers: Codes) -> SettledBlock:
        """Return the answers of a block; none if the time is over."""
        self.request.admission.give_way()
        return SettledBlock(numbers, () if self._late() else self.block(numbers))

    def _late(self) -> bool:
        deadline = self.request.deadline
        return deadline is not None and time.perf_counter() >= deadline

    def _stopped(self) -> bool:
        """Let others go first, and return whether the time is over."""
        self.request.admission.give_way()
        return self._late()

    def block(self, numbers: Codes) -> list[BlockAnswers]:
        """Return the answers of rows that few changes settle, those of each predicted class together."""
        started = time.perf_counter()
        parts: list[BlockAnswers] = []
        everyones, read = self._own(numbers), self._read(numbers)
        for own in classes_of(everyones):
            some, known = numbers[(everyones == own) & read], self._settling(own)
            part = None if known is None or not len(some) else self._settle(some, known)
            parts += [] if part is None else [part]
        seconds = (time.perf_counter() - started) / max(sum(len(part.numbers) for part in parts), 1)
        return [replace(part, seconds=seconds) for part in parts]

    def _own(self, numbers: Codes) -> Codes:
        """Return (m,) the position of the class that the model predicts for rows; -1 without, or where asked alone."""
        return self._rows.own[numbers]

    def _read(self, numbers: Codes) -> Bools:
        """Return (m,) which rows were predicted together and have only levels that the structure can read."""
        unread = self.request.requirements.unread_levels(self.predictions.space, self._rows.codes[numbers])
        read = self._rows.place[numbers] >= 0
        read[np.flatnonzero(unread) // unread.shape[1]] = False
        return read

    def _settling(self, own: int) -> Settling | None:
        """Return what settles rows that the model predicts as the class at position `own`."""
        if own not in self._known:
            targets, scorer, _ = self.request.requirements.wanted(self.request.target, own)
            by = None if scorer is None else self._nearest(scorer)
            self._known[own] = None if scorer is None or by is None else Settling(by, scorer, targets)
        return self._known[own]

    def _nearest(self, scorer: Scorer) -> NearestFew | NearestListed | None:
        """Return what finds the nearest answers of rows that a scorer rates."""
        request, policy = self.request, self.request.bound_policy
        if not request.requirements.further:
            return NearestFew.of(policy, scorer, self._wider * DOUBT)
        if SCORE_TOLERANCES * request.judges.tolerance > CLOSE:
            return None  # a proof doubts more than a search, and lists again
        most = request.max_evaluations - reserve_of(request, len(policy.space), opened=True)
        soon = request.deadline is not None
        return NearestListed.of(policy, scorer, CLOSE, int(AGREED_SHARE * most), soon=soon)

    def _settle(self, numbers: Codes, known: Settling) -> BlockAnswers | None:
        """Settle rows; return those whose candidates every constraint and all judges accept."""
        count, X = self.request.query.count, self._rows.codes[numbers]
        if isinstance(known.by, NearestListed):
            settled = self._settled_sets(X, known.by, partial(known.by.nearest, stopped=self._stopped))
            return self._several(numbers, settled, known, proof="optimal")
        if count == 1:
            return self._verified(numbers, known.by, known)
        find = partial(known.by.several, count=count, most=verified_of(count))
        return self._several(numbers, self._settled_sets(X, known.by, find), known, proof="none")

    def _verified(self, numbers: Codes, few: NearestFew, known: Settling) -> BlockAnswers | None:
        """Settle rows; return those whose candidate every constraint and the model accept, and nothing less."""
        settled, (_, scorer, targets) = self._settled(self._rows.codes[numbers], few), known
        numbers = numbers[settled.rows]
        X, policy = self._rows.codes[numbers], self._bound_policy
        lawful = lawful_of(policy, settled.Z, X)
        kept = lawful[self._afforded(settled)[lawful]]
        settled, numbers, X = settled.take(kept), numbers[kept], X[kept]
        if not len(numbers):
            return None
        asked = Asked.of(policy, settled, X)
        outcome = self._judged(np.concatenate([settled.Z, asked.others]))
        if outcome is None:
            return None
        met = meets_all(targets, outcome)
        enough = met[: len(numbers)]
        enough[asked.owner[met[len(numbers) :]]] = False  # less or another would do: that is found row by row
        kept = np.flatnonzero(enough)
        outcome = outcome.take(kept)
        if not scorer.steady and len(kept):
            certain, outcome = self._alone(settled.Z[kept], outcome, scorer)
            asked.rows[kept[~certain]] += 1
            accepted, outcome = asked_alone(settled.Z[kept], outcome, certain, targets[0], self._judged_in_time)
            kept, outcome = kept[accepted], outcome.take(np.flatnonzero(accepted))
        return self._answers(numbers, X, settled, asked.rows, targets).take(kept, outcome)

    def _afforded(self, settled: Settled) -> Bools:
        """Return (m,) whether the search of a row scores all that is in doubt, and verifies what it finds together."""
        request, groups = self.request, len(self.request.bound_policy.space)
        used, most = groups + settled.scored, request.max_evaluations
        searches = used <= most - reserve_of(request, groups, opened=True)
        verifies = (most - used) // (1 + groups) >= settled.singles
        return np.asarray((settled.scored == 0) | (searches & verifies))

    def _settled(self, X: Floats, few: NearestFew) -> Settled:
        """Return what settles rows X (m, d), as long as there is time."""
        proved = SCORE_TOLERANCES * self.request.judges.tolerance
        tolerances = DoubtTolerances(self._wider * proved, DOUBT / self._wider)
        parts = list[Settled]()
        for start, some in self._timely_parts(X, few):
            part = few.settle(some, self._most_paired, tolerances)
            parts.append(part._replace(rows=start + part.rows))
        return Settled.joined(parts)

    def _timely_parts(self, X: Floats, by: NearestFew | NearestListed) -> Iterator[tuple[int, Floats]]:
        """Yield rows X (m, d) in parts, and where each starts, as long as there is time."""
        for start in range(0, len(X), by.rows_at_once):
            if start and self._late():
                return
            yield start, np.ascontiguousarray(X[start : start + by.rows_at_once])

    def _several(
        self, numbers: Codes, settled: SettledSets | None, known: Settling, proof: Proof
    ) -> BlockAnswers | None:
        """Return the rows of which every constraint and all judges accept the nearest candidates."""
        count, codes, (_, scorer, targets) = self.request.query.count, self._rows.codes, known
        if settled is None or not len(settled.rows):
            return None
        numbers = numbers[settled.rows]
        chosen = ChosenSets.of(self._bound_policy, settled, codes[numbers], count)
        within = settled.searched + chosen.asked <= self._most_searched
        chosen, numbers = chosen.take(within), numbers[within]
        searched, cells = settled.searched[within], settled.cells[within]
        outcome = self._judged(np.concatenate([chosen.Z, chosen.undone])) if len(numbers) else None
        if outcome is None:
            return None
        met, answers = meets_all(targets, outcome), len(chosen.Z)
        kept = np.all(met[:answers].reshape(-1, count), axis=1)
        kept[chosen.owner[met[answers:]]] = False  # less would do: they are polished row by row
        outcome = outcome.take(np.arange(answers))
        if not scorer.steady:
            certain, outcome = self._alone(chosen.Z, outcome, scorer)
            kept &= np.all(certain.reshape(-1, count), axis=1)
        if not kept.any():
            return None
        some = np.flatnonzero(np.repeat(kept, count))
        return BlockAnswers(
            predictions=self.predictions,
            targets=targets,
            numbers=numbers[kept],
            Z=chosen.Z[some],
            distance=chosen.distance[some],
            outcome=outcome.take(some),
            changed=chosen.changed[some],
            searched=searched[kept],
            evaluations=(searched + chosen.asked)[kept],
            seconds=0.0,
            cells=cells[kept],
            proof=proof,
        )

    def _settled_sets(
        self, X: Floats, by: NearestFew | NearestListed, find: Callable[[Floats], SettledSets | None]
    ) -> SettledSets | None:
        """Return the nearest candidates of rows X (m, d), as long as there is time; None where nothing is known."""
        parts = list[SettledSets]()
        for start, some in self._timely_parts(X, by):
            part = find(some)
            if part is None:
                return None
            parts.append(part._replace(rows=start + part.rows))
        return SettledSets.joined(parts)

    def _answers(
        self, numbers: Codes, X: Floats, settled: Settled, asked: Codes, targets: tuple[BoundTarget, ...]
    ) -> BlockAnswers:
        """Return the answers of rows X (m, d), of each of which the model was asked so many rows."""
        space = self.request.bound_policy.space
        groups = len(space)
        columns = tuple((column,) for column in range(groups))
        searched = groups + settled.paired + settled.scored
        return BlockAnswers(
            predictions=self.predictions,
            targets=targets,
            numbers=numbers,
            Z=settled.Z,
            distance=self.request.bound_policy.bound_distance.distance(columns, settled.Z, X),
            outcome=NOTHING,
            changed=differing(settled.Z, X).sum(axis=1),
            searched=searched,
            evaluations=searched + asked,
            seconds=0.0,
            cells=groups + 2 * settled.paired + groups * settled.scored,
            proof="optimal",
        )

    @cached_property
    def _wider(self) -> float:
        """The factor for the model, and all further ones."""
        return WIDER if self.request.judges.tolerance <= DOUBLE else WIDER_SINGLE

    @cached_property
    def _most_paired(self) -> int:
        """How many numbers tables of pairs of one row may have."""
        request, groups = self.request, len(self.request.bound_policy.space)
        left = request.max_evaluations - reserve_of(request, groups, opened=True) - groups
        part = left // SOON_SHARE
        return min(SOON, part * PAIRS_PER_ROW) if part > VERIFIED * (groups + 1) else 0

    @cached_property
    def _most_searched(self) -> int:
        """How many evaluations a search for several answers may count, so that nothing is cut short."""
        request, groups = self.request, len(self.request.bound_policy.space)
        reserve = reserve_of(request, groups, opened=True)
        verified = verified_of(request.query.count) * (groups + 1)
        return request.max_evaluations - max(reserve, verified) - 1

    @cached_property
    def _bound_policy(self) -> BoundPolicy:
        """All constraints, whose rules can compare the levels that the rows have and the background lacks."""
        return self.request.bound_policy.covering(self.predictions.space)

    def _alone(self, Z: Floats, outcome: Outcome, scorer: Scorer) -> tuple[Bools, Outcome]:
        return alone_by_structure(Z, outcome, scorer, SCORE_TOLERANCES * self.request.requirements.rounding)

    def _judged_in_time(self, Z: Floats) -> Outcome | None:
        return None if self._late() else self._judged(Z)

    def _judged(self, Z: Floats) -> Outcome | None:
        """Return what the logged model says of candidates; None where it fails."""
        try:
            return self.request.judges.verdict(CodedTable(self.predictions.space, Z))
        except Exception:  # noqa: BLE001  any model, any error: the search of single rows asks again, and tells of it
            return None


def few_rows(request: Request) -> int:
    """Return how many rows at most are a short table."""
    structure = request.requirements.structure
    lists = isinstance(structure, Joined) and structure.has_leaves
    return FEW_LISTED if lists and is_plain(request) else FEW


def is_plain(request: Request) -> bool:
    """Whether a request asks for nearest answers, and for nothing that needs what a row's search knows.

    Of several answers, each must change other features than the others, and nothing must be proved.
    """
    query, explainer, requirements = request.query, request.explainer, request.requirements
    nearest = isinstance(explainer, Exact) or (isinstance(explainer, GeCo) and bool(explainer.sweep))
    more = query.levers is not None or query.responsiveness or query.region or query.reasons
    opened = requirements.structure is not None and (not requirements.further or query.count == 1)
    groups, most = len(request.bound_policy.tables.all), request.max_evaluations
    enough = most // 4 >= groups + 1  # half at least is left to the search, and a quarter is never kept back
    several = not request.certified and not request.variety.near and isinstance(explainer, GeCo)
    few = query.count == 1 or (several and verified_of(query.count) <= NEAREST + query.count)
    return nearest and few and not more and opened and enough and request.bound_policy.action_model is None
