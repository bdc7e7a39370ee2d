"""The nearest answer of every set of levers of one row, or the proof that there is none.

A set's answers change some of its groups and nothing else. Sets of one group come from a sweep of all single changes,
sets of two from tables of pairs, larger ones from scoring all combinations of their actions, or from an exact search of
the row in which nothing else may change. Where the model is not opened, single changes are scored by the model itself,
and larger sets are searched without proof.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.few_changes import FewChanges
from mlflow_cf.engine.thresholds import LISTED_PER_ROW, MOST_PAIRED, SCORE_TOLERANCES, SWEPT
from mlflow_cf.explainers import GeCo
from mlflow_cf.features import Floats
from mlflow_cf.levers.grid import Grid
from mlflow_cf.levers.sets import Groups, LeverSets
from mlflow_cf.levers.singles import SweptChanges, lawful_alone
from mlflow_cf.levers.within import together, within
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.proof.certify import certify
from mlflow_cf.proof.verify import (
    NOTHING,
    Inquiry,
    RowTask,
    VerifiedAnswers,
    by_themselves,
    joined_outcomes,
    verify_rows,
)
from mlflow_cf.why_not.blame import impossible
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import LeverStatus, Proof

MOST_RATED: Final = 5_000  # single changes that a model which is not opened is asked about, for all groups together
MOST_COMBINED: Final = 2**17  # combinations of a set that are scored together: a search takes longer (boosting, Adult)
AHEAD: Final = 8  # of a set, candidates that the judge may refuse and is asked about together


DISAGREE: Final[tuple[LeverStatus, str]] = "not_found", Uncertified("disagree").fact


class Near(NamedTuple):
    """The nearest row (d,) of a set, with what the judge said of it; None: it was not asked yet."""

    key: tuple[float, int, tuple[int, ...]]
    row: Floats
    outcome: Outcome | None


@dataclass(frozen=True, eq=False)
class SetAnswer:
    """What a set of levers can do.

    Attributes:
        groups: the set.
        status: found; implied: a smaller set in it works, so that it was not searched; infeasible: proved; not_found:
            the search ended without a proof; budget: a limit ended it.
        at: the position of its answer among those of the row, -1 without.
        by: the smaller set that works.
        reason: what stands in the way of a proof, or "".
    """

    groups: Groups
    status: LeverStatus
    at: int = -1
    by: Groups = ()
    reason: str = ""


@dataclass(frozen=True, eq=False)
class LeverAnswers:
    """What all sets of a row can do, in the order in which they were asked for; `verified` holds their answers."""

    sets: tuple[SetAnswer, ...]
    verified: VerifiedAnswers


Levering = Generator[Asked, Outcome, LeverAnswers]


def nearest_of_levers(task: RowTask, wanted: LeverSets, tolerance: float, seed: int = 0) -> Levering:
    """Return the nearest answer of every set of levers, or the proof of none.

    Args:
        task: the row, with the budget of all sets together.
        wanted: the sets.
        tolerance: how far the structure's scores may be from the model's.
        seed: of searches without a structure.
    """
    if task.problem.count > 1:
        task = replace(task, engine=Engine(replace(task.problem, count=1)))
    if task.budget.late:
        return _undecided(task, wanted)
    run = _Run(task, wanted, tolerance, seed)
    run.hopeless = bool(impossible(task.problem))
    try:
        if not run.hopeless:
            yield from run.singles()
            yield from run.pairs()
            yield from run.grids()
            yield from run.larger()
        return (yield from run.settled())
    except UnavailableError as error:  # nothing leaves that the model did not confirm
        return _undecided(task, wanted, error.reason)


def _undecided(task: RowTask, wanted: LeverSets, reason: str = "") -> LeverAnswers:
    """Return that no set was decided, and why, if that is not plain."""
    nothing = VerifiedAnswers(np.empty((0, len(task.problem.space))), NOTHING)
    return LeverAnswers(tuple(SetAnswer(groups, "budget", reason=reason) for groups in wanted.sets), nothing)


@dataclass
class _Run:
    """The sets of one row at work.

    Attributes:
        near: the nearest row so far of sets that are decided; status: of sets that have none; proofs, bounds: of those
            in `near` that no table proves.
        working: sets with an answer, smallest first, where sets above them are of no interest.
    """

    task: RowTask
    wanted: LeverSets
    tolerance: float
    seed: int
    near: dict[Groups, Near] = field(default_factory=dict)
    status: dict[Groups, tuple[LeverStatus, str]] = field(default_factory=dict)
    proofs: dict[Groups, tuple[Proof, float | None]] = field(default_factory=dict)
    working: dict[Groups, frozenset[int]] = field(default_factory=dict)
    alone: dict[int, Near] = field(default_factory=dict)
    told_alone: bool = False  # whether it is known of every group what it does alone
    hopeless: bool = False  # whether constraints alone leave nothing
    doubted: bool = False  # whether the judge has refused what the structure is certain of

    @property
    def by_tables(self) -> bool:
        """Whether sweeps and tables of the opened model decide, so that what they find is proved."""
        return self.task.problem.scorer is not None and self.task.engine.exact

    @property
    def open_sets(self) -> list[Groups]:
        """The sets that are not decided yet and contain no working one."""
        return [
            groups
            for groups in dict.fromkeys(self.wanted.sets)
            if groups not in self.near and groups not in self.status and not self.works(groups)
        ]

    def works(self, groups: Groups) -> Groups:
        """Return a smaller set that works and makes this one needless, or none."""
        own = frozenset(groups)
        return next((some for some in self.working if own > self.working[some]), ())

    def note(self, groups: Groups, near: Near | None, otherwise: tuple[LeverStatus, str]) -> None:
        """Note what was found for a set."""
        if near is None:
            self.status[groups] = otherwise
            return
        self.near[groups] = near
        if self.wanted.smallest:
            self.working[groups] = frozenset(groups)

    def singles(self) -> Generator[Asked, Outcome, None]:
        """Decide the sets of one group, and what every group does alone."""
        task, problem = self.task, self.task.engine.problem
        levers = np.isin(np.arange(len(problem.groups)), [group for some in self.wanted.sets for group in some])
        if task.problem.scorer is not None and not task.engine.exact:
            return
        if self.by_tables and problem.scorer is not None:
            if task.budget.take(len(problem.groups)) < len(problem.groups):
                return
            actions = task.engine.actions
            may, sure = SweptChanges(problem, problem.scorer, actions).decisions(SCORE_TOLERANCES * self.tolerance)
        else:
            actions = problem.actions
            may = lawful_alone(problem, actions) & levers[actions.group]
            places = np.flatnonzero(may)
            if len(places) > MOST_RATED or task.budget.take(len(places)) < len(places):
                return
            sure = np.zeros(len(may), dtype=np.bool_)
            if len(places):
                may[places] = problem.rate(problem.rows(actions.candidates(places[:, None]))).favourable
        places = np.flatnonzero(may & levers[actions.group])
        owner = [(group,) for group in actions.group[places].tolist()]
        found = yield from self.first(owner, actions.candidates(places[:, None]), sure[places])
        if found is None:
            return
        self.alone, self.told_alone = {groups[0]: near for groups, near in found.items()}, True
        for groups in self.open_sets:
            if len(groups) == 1:
                self.note(groups, found.get(groups), ("infeasible" if self.by_tables else "not_found", ""))
                self.proofs[groups] = ("optimal", None) if self.by_tables else ("none", None)

    def pairs(self) -> Generator[Asked, Outcome, None]:
        """Decide the sets of two groups by tables of pairs, where the model has them."""
        engine, budget = self.task.engine, self.task.budget
        pairs = [groups for groups in self.open_sets if len(groups) == 2]
        few = engine.few if pairs and self.told_alone and self.by_tables else None
        if few is None:
            return
        problem, actions = engine.problem, few.actions
        tried = np.isin(actions.group, sorted({group for groups in pairs for group in groups}))
        tried[actions.own] = True
        several = FewChanges(self._of_all_sets(), few.scorer, actions.take(np.flatnonzero(tried)))
        pairs_told = several.nearest_pairs(np.inf, SCORE_TOLERANCES * self.tolerance, budget, MOST_PAIRED)
        if pairs_told is None:
            return
        codes, sure = pairs_told
        changed = np.argwhere(codes != problem.own)[:, 1].reshape(-1, 2)
        owner = [(one, other) for one, other in changed.tolist()]
        asked = set(pairs)
        kept = [at for at, groups in enumerate(owner) if groups in asked]
        found = yield from self.first([owner[at] for at in kept], codes[kept], sure[kept])
        for groups in pairs if found is not None else ():
            every = [found.get(groups) if found else None, *(self.alone.get(group) for group in groups)]
            best = min((near for near in every if near is not None), key=lambda near: near.key, default=None)
            self.note(groups, best, ("infeasible", ""))
            self.proofs[groups] = ("optimal", None)

    def grids(self) -> Generator[Asked, Outcome, None]:
        """Decide the sets that have few combinations of actions, by scoring all of them."""
        engine, scorer, budget = self.task.engine, self.task.problem.scorer, self.task.budget
        if scorer is None or not self.by_tables:
            return
        problem, actions, tolerance = engine.problem, engine.actions, SCORE_TOLERANCES * self.tolerance + SWEPT
        choices = np.split(actions.code, actions.start[1:-1])
        for size in sorted({len(groups) for groups in self.open_sets}):
            decided: list[Groups] = []
            owner: list[Groups] = []
            parts: list[tuple[Codes, Bools]] = [(problem.own[None][:0], np.empty(0, dtype=np.bool_))]
            for groups in [some for some in self.open_sets if len(some) == size]:
                grid = Grid(problem, groups, [choices[group] for group in groups])
                work = 1 + grid.size // LISTED_PER_ROW
                if grid.size > MOST_COMBINED or budget.take(work) < work:
                    continue
                decided.append(groups)
                if grid.size:
                    parts.append(grid.nearest(*scorer.decisions(grid.sums(scorer), tolerance)))
                    owner += [groups] * len(parts[-1][0])
            codes, sure = (np.concatenate(some) for some in zip(*parts, strict=True))
            found = yield from self.first(owner, codes, sure)
            for groups in decided if found is not None else ():
                self.note(groups, (found or {}).get(groups), ("infeasible", ""))
                self.proofs[groups] = ("optimal", None)

    def _of_all_sets(self) -> Problem:
        """Return the problem of which the nearest answers of all sets of two groups are wanted."""
        problem = self.task.engine.problem
        return replace(problem, count=len(problem.groups) ** 2 + 1)

    def first(
        self, owner: Sequence[Groups], codes: Codes, sure: Bools
    ) -> Generator[Asked, Outcome, dict[Groups, Near] | None]:
        """Return the nearest accepted of candidates (n, G) of every owner (n,); None where the budget does not last.

        Candidates are `sure` (n,) to be accepted, or the judge is asked about them at once, if they come first.
        """
        task, problem = self.task, self.task.engine.problem
        rows, distance = problem.rows(codes), problem.distance(codes)
        lawful = task.problem.check(rows) if len(rows) else np.empty(0, dtype=np.bool_)
        sets: dict[Groups, list[int]] = {}
        for at in np.lexsort((*codes.T[::-1], (codes != problem.own).sum(axis=1), distance)).tolist():
            some = sets.setdefault(owner[at], [])
            if lawful[at] and not (some and sure[some[-1]]):
                some.append(at)
        found: dict[Groups, Near] = {}
        while sets:
            asked = [at for some in sets.values() for at in some[:AHEAD] if not sure[at]]
            if task.budget.take(len(asked)) < len(asked):
                return None
            said = (yield rows[asked]) if asked else NOTHING
            accepted = dict(zip(asked, task.accepts(rows[asked], said).tolist() if asked else [], strict=True))
            for groups, some in list(sets.items()):
                best = next((at for at in some[:AHEAD] if sure[at] or accepted[at]), -1)
                if best >= 0:
                    key = float(distance[best]), int((codes[best] != problem.own).sum()), tuple(codes[best].tolist())
                    outcome = None if sure[best] else said.take(np.array([asked.index(best)]))
                    found[groups] = Near(key, rows[best], outcome)
                sets[groups] = [] if best >= 0 else some[AHEAD:]
            sets = {groups: some for groups, some in sets.items() if some}
        return found

    def larger(self) -> Generator[Asked, Outcome, None]:
        """Decide all other sets, those of one size side by side.

        Where small sets are wanted, they come first, and no set above a working one is searched. Else large ones come
        first: a set below an impossible one is impossible, and one that holds all changes of a larger set's nearest
        answer has the same.
        """
        ascending = self.wanted.smallest
        for size in sorted({len(groups) for groups in self.open_sets}, reverse=not ascending):
            self._bounded_together()
            some = [groups for groups in self.open_sets if len(groups) == size and not self._follows(groups)]
            found = yield from together([self._searched(groups, len(some) - at) for at, groups in enumerate(some)])
            for groups, (verified, cut) in zip(some, found, strict=True):
                self._note_verified(groups, verified, cut=cut)

    def _bounded_together(self) -> None:
        """Note that no open set works, if bounds tell it of all of their groups together."""
        open_sets = self.open_sets
        union = sorted({group for groups in open_sets for group in groups})
        if not self.by_tables or len(open_sets) < 2 or self.task.budget.take(1) < 1:
            return
        if within(self.task, union, self.task.budget).engine.beyond_reach(SCORE_TOLERANCES * self.tolerance):
            self.status |= dict.fromkeys(open_sets, ("infeasible", ""))

    def _follows(self, groups: Groups) -> bool:
        """Note what a larger set tells of this one; return whether it does."""
        for other, (status, _) in self.status.items():
            if status == "infeasible" and set(groups) < set(other):
                self.status[groups] = ("infeasible", "")
                return True
        problem = self.task.problem
        for other, near in list(self.near.items()):
            changed = set(np.flatnonzero(problem.changed(near.row[None])[0]).tolist())
            if set(groups) < set(other) and changed <= set(groups) and self.proofs[other][0] == "optimal":
                self.near[groups], self.proofs[groups] = near, self.proofs[other]
                return True
        return False

    def _searched(self, groups: Groups, left: int) -> Generator[Asked, Outcome, tuple[VerifiedAnswers, str]]:
        """Search the nearest answer of one set in a share of the budget for so many; also return what cut it, or ""."""
        budget = self.task.budget
        part = budget.part(budget.left // left)
        part.share(left)
        task = within(self.task, groups, part)
        nothing = VerifiedAnswers(np.empty((0, len(task.problem.space))), NOTHING)
        forced = set(np.flatnonzero(~task.problem.own_allowed).tolist())
        if part.spent:
            return nothing, part.cut or "evaluations"
        if forced - set(groups) or impossible(task.problem):
            return replace(nothing, exhausted=True), ""
        known = nothing if self.by_tables else (yield from self._tried(task))
        if task.engine.beyond_reach(SCORE_TOLERANCES * self.tolerance):
            known = replace(nothing, exhausted=True)
        elif task.problem.scorer is not None:
            known = yield from certify(task, known, self.tolerance)
        budget.take(part.used)
        return known, part.cut

    def _tried(self, task: RowTask) -> Inquiry:
        """Return verified answers of a search that proves nothing."""
        search = task.budget.part(task.budget.left // 2)  # the rest is for proofs
        found = GeCo().search(task.problem, search, np.random.default_rng(self.seed))
        task.budget.take(search.used)
        return (yield from verify_rows(task, found.rows, polish=True))

    def _note_verified(self, groups: Groups, verified: VerifiedAnswers, *, cut: str) -> None:
        near, why = None, verified.note.fact if verified.note else ""
        if len(verified.rows):
            row, bound = verified.rows[0], verified.bounds[0] if verified.bounds else None
            key = float(self.task.distance(row[None])[0]), len(groups), tuple(groups)
            near = Near(key, row, verified.outcome.take(slice(0, 1)))
            self.proofs[groups] = (verified.proofs[0] if verified.proofs else "none"), bound
        self.doubted |= verified.note is not None and verified.note.cause == "disagree"
        status: LeverStatus = "infeasible" if verified.exhausted else "budget" if cut else "not_found"
        self.note(groups, near, (status, why))

    def settled(self) -> Levering:
        """Ask the judge about what it was not asked yet, and return what all sets can do."""
        task = self.task
        waiting = [groups for groups, near in self.near.items() if near.outcome is None]
        rows = np.array([self.near[groups].row for groups in waiting]).reshape(len(waiting), len(task.problem.space))
        if waiting and task.budget.take(len(rows), even_late=True) < len(rows):
            self._drop(waiting, ("budget", ""))
        elif waiting:
            said = yield rows
            accepted = task.accepts(rows, said).tolist()
            for at, groups in enumerate(waiting):
                self.near[groups] = self.near[groups]._replace(outcome=said.take(slice(at, at + 1)))
            refused = [groups for groups, good in zip(waiting, accepted, strict=True) if not good]
            self.doubted |= bool(refused)
            self._drop(refused, DISAGREE)
        if self.doubted:
            self._doubt()
        sets = list(self.near)
        verified = yield from by_themselves(task, self._verified(sets))
        kept = [sets[at] for at in verified.origin.tolist()]
        self._drop(sorted(set(sets) - set(kept)), DISAGREE)
        places = {groups: place for place, groups in enumerate(kept)}
        return LeverAnswers(tuple(self._answer(groups, places) for groups in self.wanted.sets), verified)

    def _doubt(self) -> None:
        """Give up all that the structure has proved of this row."""
        unproved: tuple[Proof, float | None] = "none", None
        self.proofs = dict.fromkeys(self.proofs, unproved)
        refuted = [groups for groups, (status, _) in self.status.items() if status == "infeasible"]
        self.status |= dict.fromkeys(refuted, DISAGREE)

    def _drop(self, sets: Iterable[Groups], status: tuple[LeverStatus, str]) -> None:
        """Give up the answers of some sets."""
        for groups in sets:
            del self.near[groups]
            self.status[groups] = status
        self.working = {groups: own for groups, own in self.working.items() if groups in self.near}

    def _verified(self, sets: Sequence[Groups]) -> VerifiedAnswers:
        """Return the answers of some sets with their proofs."""
        nears = [self.near[groups] for groups in sets]
        rows = np.array([near.row for near in nears]).reshape(len(nears), len(self.task.problem.space))
        outcomes = [near.outcome for near in nears if near.outcome is not None]
        proofs = tuple(self.proofs[groups][0] for groups in sets)
        bounds = tuple(
            near.key[0] if proof == "optimal" else self.proofs[groups][1]
            for groups, near, proof in zip(sets, nears, proofs, strict=True)
        )
        outcome = joined_outcomes(outcomes) if outcomes else NOTHING
        return VerifiedAnswers(rows, outcome, proofs, bounds, origin=np.arange(len(rows)))

    def _answer(self, groups: Groups, places: Mapping[Groups, int]) -> SetAnswer:
        if groups in places:
            return SetAnswer(groups, "found", places[groups])
        if by := self.works(groups):
            return SetAnswer(groups, "implied", by=by)
        otherwise: tuple[LeverStatus, str] = ("budget", "") if self.task.budget.cut else DISAGREE
        status, reason = self.status.get(groups, ("infeasible", "") if self.hopeless else otherwise)
        return SetAnswer(groups, status, reason=reason)
