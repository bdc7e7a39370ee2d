"""UFCE (Suffian et al. 2024): counterfactuals within what a user is ready to change, by one, two and three changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import StrictBool

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.explainer import (
    Candidates,
    Facts,
    Learned,
    Learning,
    Search,
    Span,
    asked,
    check_names,
    check_options,
)
from mlflow_cf.explainers.ufce.lines import (
    Acceptance,
    Accepted,
    Line,
    Pair,
    Plausible,
    SearchLines,
    doubles,
    evenly,
    nested,
    pairs_of,
    scan,
    singles,
    threes,
    walk,
)
from mlflow_cf.explainers.ufce.predictors import Known, Predictors, learn_all
from mlflow_cf.explainers.ufce.subspaces import ReachableSets, Subspaces, neighbourhood, with_steps
from mlflow_cf.features import Embedding, Floats
from mlflow_cf.metrics.outliers import Inliers
from mlflow_cf.metrics.proximity import euclidean_distances, jaccard_distances
from mlflow_cf.problem import Budget, Codes, Problem

Changes = Literal[1, 2, 3, "all"]
How = Literal["auto", "walk", "scan"]
Plausibility = Literal["background", "refit", "off"]
Ranking = Literal["distance", "paper"]
STEP: Final = Span(1e-300, 1e150)
OPTIONS: Final = {
    "changes": Changes,
    "search": How,
    "plausibility": Plausibility,
    "ranking": Ranking,
    "radius": Span(1e-6, 1e6, optional=True),
    "pairs": Span(1, 100, whole=True, optional=True),
}
POINTS: Final = {1: 2_000, 2: 64, 3: 24}  # of a response curve looked at first, by the number of changes
NESTED: Final = 12  # values of a direction beside which another group is searched
FEW: Final = 3  # values of a direction of two groups beside which a third is searched
WANTED: Final = 5  # answers handed over, as in the paper's experiments
AT_ONCE: Final = 8  # candidates whose plausibility is asked together
MOST_ASKED: Final = 64  # candidates whose plausibility is asked, each first of its line; as many again of the others
CELLS: Final = 2**17  # groups of all candidates between two looks at the clock: 5 ms


@dataclass(frozen=True)
class UFCE:
    """Single changes, pairs and triples of changes, between the row and the favourable rows around it.

    What the user is ready to change is what the constraints leave: `ranges` and `relative` of a request are the
    feedback. Two features are paired if they tell much of each other; one moves, and the others follow by prediction.

    Reference: Suffian et al., UFCE (2024).

    Attributes:
        changes: at most 1, 2 or 3 groups, fewer only where so many give no answer; or ``all`` of these searches.
        search: ``walk`` halves what is left of a number's values, as in the paper; ``scan`` reads whole response curves
            and assumes nothing; ``auto`` scans models that could be opened.
        plausibility: whether answers are inliers of the ``background``; ``refit``, as in the paper: of the background
            and the row, which is fitted for every row; ``off``: not asked.
        ranking: by the problem's ``distance``, or as in the ``paper``: Jaccard's distance of levels plus the Euclidean
            one of numbers as a share of its largest; such answers keep their order.
        radius: of the neighbourhood, in standard deviations; None: the smallest that holds ten rows and 5 %.
        pairs: so many pairs are tried, those that tell most of each other; None: all of up to twelve features, ten of
            more.
        steps: by feature, how far apart the values of a continuous number are; by default 1 % of what it may be.
        nested_triples: whether, where no triple is accepted with what is predicted, a third group is tried beside a few
            values of two others; the paper has nothing of the kind.
        polish: whether needless changes are undone, which may turn a triple into a pair.
    """

    changes: Changes = "all"
    search: How = "auto"
    plausibility: Plausibility = "background"
    ranking: Ranking = "distance"
    radius: float | None = None
    pairs: int | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    nested_triples: bool = True
    polish: bool = True

    name: ClassVar[str] = "ufce"
    needs_rows: ClassVar[bool] = True
    learned_by: ClassVar[tuple[str, ...]] = ()
    by_request: ClassVar[Mapping[str, Any]] = {
        **asked(OPTIONS),
        "plausibility": Literal["background", "off"],
        "nested_triples": StrictBool,
        "polish": StrictBool,
    }

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)
        for feature, step in self.steps.items():
            STEP.check(f"explainer.steps.{feature}", step)

    @property
    def keeps_order(self) -> bool:
        """Whether answers keep the paper's order."""
        return self.ranking == "paper"

    def check(self, facts: Facts, count: int) -> None:
        """Refuse steps of features that are not there."""
        del count
        check_names("explainer.steps", self.steps, facts.space)

    def learn(self, facts: Facts) -> Learning:
        """Learn which features go together, what predicts each of them, and where the background is dense."""
        return learn_all(facts)

    def bound(self, learned: Learned) -> Search:
        """Return the search, which knows all that the background tells."""
        return partial(self._search, Known.of(learned))

    @property
    def variants(self) -> tuple[int, ...]:
        """The numbers of changes, in the order in which they are searched."""
        return (1, 2, 3) if self.changes == "all" else (self.changes,)

    def _search(self, known: Known, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search stage after stage under one budget; return plausible rows, best first (UFCE section 6)."""
        del rng  # nothing is drawn
        return UFCESearch(self, known, problem, budget).candidates()


class UFCESearch:
    """One search for one row."""

    def __init__(self, aim: UFCE, known: Known, problem: Problem, budget: Budget) -> None:
        """Find what the groups of a problem may become; nothing is scored yet."""
        self.aim, self.known, self.budget = aim, known, budget
        self.problem = problem = with_steps(problem, aim.steps)
        embedding = Embedding.from_arrays(problem.space, known.embedding)
        points = known.vectors, embedding.vectors(problem.x0[None])[0]
        self.near = neighbourhood(problem, known.labels, points, aim.radius)
        self.subspaces = Subspaces.of(problem, self.near)
        self.predictors = Predictors(problem, embedding, known.weights, known.intercepts, self.subspaces.ends)
        self.possible = ReachableSets(problem, self.subspaces, budget)
        self.accepted = self.asked = 0  # candidates, before plausibility is asked, and of how many it was
        self.scans = aim.search == "scan" or (aim.search == "auto" and problem.scorer is not None)

    def candidates(self) -> Candidates:
        """Search all variants; return plausible candidates, best first."""
        found, tried = [], {}
        for changes in self.aim.variants:
            used, accepted = self.budget.used, self.accepted
            found.append(self._searched(changes))
            tried[str(changes)] = {"accepted": self.accepted - accepted, "evaluations": self.budget.used - used}
        codes = np.unique(np.concatenate(found), axis=0)
        cost = costs(self.problem, codes, paper=self.aim.keeps_order)
        best = np.lexsort(((codes != self.problem.own).sum(axis=1), cost))
        told = {"tried": tried, "neighbours": len(self.near), "plausibility_asked": self.asked}
        rows = self.problem.rows(codes[best])
        return Candidates(rows, told, costs=cost[best] if self.aim.keeps_order else None, promise=self._plausible)

    def _searched(self, changes: int) -> Codes:
        """Return plausible candidates (m, G) of so many changes; where a stage has none, those of the next one."""
        found = np.empty((0, len(self.problem.groups)), dtype=np.intp)
        for stage in self._stages(changes):
            found = stage()
            if len(found) or self.budget.spent:
                break
        return found

    def _stages(self, changes: int) -> Iterator[Callable[[], Codes]]:
        """Yield the searches for so many changes: by what is predicted, then fewer changes, then beside values."""
        if changes == 1:
            yield lambda: self._kept(self._along(1, singles(self.subspaces), POINTS[1])[0])
            return
        met: set[Pair] = set()
        yield (lambda: self._doubles(met)) if changes == 2 else lambda: self._triples(beside=False)
        if len(self.aim.variants) == 1:  # else these are searched anyway
            yield lambda: self._searched(changes - 1)
        if changes == 2:
            yield lambda: self._kept(self._along(2, self._nested(met, of_them=True), NESTED)[0])
        elif self.aim.nested_triples:
            yield lambda: self._triples(beside=True)

    def _doubles(self, met: set[Pair]) -> Codes:
        """Search pairs, beside values of one where nothing predicted is accepted; add those where it is to `met`."""
        predicted, known = self._along(2, doubles(self.subspaces, self._reaching), POINTS[2])
        met |= known
        return self._kept(predicted, self._along(2, self._nested(known, of_them=False), NESTED)[0])

    def _nested(self, met: set[Pair], *, of_them: bool) -> Iterator[Line]:
        for pair in self._reaching:
            for ordered in (pair, pair[::-1]):
                if (ordered in met) == of_them:
                    yield from nested(self.subspaces, ordered, NESTED)

    def _triples(self, *, beside: bool) -> Codes:
        """Search triples: the third group as predicted, or beside values of two."""
        sets = self.possible.of(threes(self.subspaces, self._pairs))
        if beside:
            lines = (line for three in sets for line in nested(self.subspaces, three, FEW))
        else:
            lines = (line for i, j, third in sets for line in doubles(self.subspaces, [(i, j)], third))
        return self._kept(self._along(3, lines, NESTED if beside else POINTS[3])[0])

    def _along(self, changes: int, lines: Iterable[Line], points: int) -> tuple[Accepted, set[Pair]]:
        """Search lines for so many changes, block by block; return what is accepted, and the pairs it belongs to."""
        trial = Acceptance(self.problem, self.budget, changes, None if self.scans else self._plausible)
        parts, met, done = list[Accepted](), set[Pair](), 0
        for block in _blocks(lines, points, CELLS // len(self.problem.groups)):
            if self.budget.spent:
                break
            tried = SearchLines(self.problem, self.predictors, block)
            found = scan(trial, tried, points) if self.scans else walk(trial, tried)
            met |= {block[one].key for one in np.unique(found.line).tolist()}
            parts.append(replace(found, line=found.line + done))
            done += len(block)
        return Accepted.together(parts, len(self.problem.groups)), met

    @cached_property
    def _pairs(self) -> list[Pair]:
        return pairs_of(self.problem, self.subspaces.groups, self.known.mutual, self.aim.pairs)

    @cached_property
    def _reaching(self) -> list[Pair]:
        """The pairs that may meet the target without a third group."""
        return list(self.possible.of(self._pairs))

    @cached_property
    def _plausible(self) -> Plausible | None:
        problem = self.problem
        if self.aim.plausibility == "off":
            return None
        if self.aim.plausibility == "refit":
            return Inliers.fit(problem.space, np.vstack([problem.background, problem.x0])).accept
        return Inliers.from_arrays(problem.space, self.known.inliers).accept

    def _kept(self, *parts: Accepted) -> Codes:
        """Return those (m, G) that are plausible; those that are first in their line are looked at before all others.

        The first few are looked at even if the clock has run out: without that, nothing would come of the search.
        """
        codes = Accepted.together([*parts], len(self.problem.groups)).codes
        lead = np.concatenate([np.empty(0, dtype=np.bool_), *(_leaders(part) for part in parts)])
        order = np.lexsort((~lead, *codes.T))  # equal ones stand together, the first of its line before the others
        codes, lead = codes[order], lead[order]
        new = np.append(True, (np.diff(codes, axis=0) != 0).any(axis=1))[: len(codes)]
        lead, codes = lead[new], np.asarray(codes[new])
        self.accepted += len(codes)
        if self._plausible is None or not self.scans:
            return codes
        cost = costs(self.problem, codes, paper=self.aim.keeps_order)
        best = np.lexsort(((codes != self.problem.own).sum(axis=1), cost))
        first, others = best[lead[best]], best[~lead[best]]
        kept, wanted = list[int](), max(WANTED, 3 * self.problem.count)
        for some in (first[:MOST_ASKED], others[evenly(len(others), MOST_ASKED)]):
            for start in range(0, len(some), AT_ONCE):
                if len(kept) >= wanted or (start and self.budget.late):
                    break
                part = some[start : start + AT_ONCE]
                kept += part[self._plausible(self.problem.rows(codes[part]))].tolist()
                self.asked += len(part)
        return codes[kept]


def _blocks(lines: Iterable[Line], points: int, most: int) -> Iterator[list[Line]]:
    """Yield the lines in lots of about so many candidates, if so many points are looked at of each."""
    block, size = list[Line](), 0
    for line in lines:
        block.append(line)
        size += min(len(line.values.codes), points)
        if size >= most:
            yield block
            block, size = [], 0
    if block:
        yield block


def _leaders(found: Accepted) -> Bools:
    """Return (m,) which accepted candidates are the nearest of their lines."""
    order = np.lexsort((found.position, found.line))
    lead = np.zeros(len(order), dtype=np.bool_)
    lead[order[np.unique(found.line[order], return_index=True)[1]]] = True
    return lead


def costs(problem: Problem, codes: Codes, *, paper: bool) -> Floats:
    """Return what each candidate (m, G) costs: its distance, or the sum of two parts of which none is above 1.

    These are Jaccard's distance of levels, and the Euclidean distance of numbers divided by the largest of all.
    """
    if not paper or not len(codes):
        return problem.distance(codes)
    rows = problem.rows(codes)
    levels, numbers = (part(problem.space, problem.x0, rows) for part in (jaccard_distances, euclidean_distances))
    total = np.zeros(len(rows)) if levels is None else levels
    if numbers is not None and numbers.max() > 0:
        total = total + numbers / numbers.max()
    return total
