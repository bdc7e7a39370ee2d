"""More counterfactuals that change other features, found by asking the model about growing sets of changes.

A counterfactual with a redundant change is no further answer: with that change put back it is equal to another one. So
sets grow from those that do not suffice, as frequent item sets do (Agrawal and Srikant 1994): single changes first,
then pairs of those that do not suffice alone, and so on as long as a set can be nearer than the last wanted answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import Cascade, alone
from mlflow_cf.search.population import Population, Seen, changed_sets, fittest, log_odds, none_scored, score_within

LEAST_EVALUATIONS: Final = 4_096  # else as many as the search before took, so that five answers cost twice one or so
MOST_SINGLES: Final = 4_096  # single changes, as many of every group: all those of Credit and Adult
# Sets that grow and sets that are tried, per level: on Adult, five answers of boosted trees were 17 % farther than the
# optimum without pairs of these, 10 % with 1,024 as with 4,096.
BEAM: Final = 64
MOST_GROWN: Final = 2_048
MOST_PARENTS: Final = 256  # single changes of which pairs are made
ACTIONS: Final = 8  # of a group that go into sets: of each of two kinds; of few groups more, so many in all
ALL_ACTIONS: Final = 128
NEARER: Final = 8  # actions of a group that are tried to come nearer: of each of two kinds
SPARE: Final = 8  # answers beyond those that are wanted: the logged model may refuse some
MOST_LEVELS: Final = 8  # changes of a set
MOST_ROUNDS: Final = 20  # of coming nearer


class SingleChanges(NamedTuple):
    """Single changes that do not suffice: the group, its action, log odds, and part of the distance, (n,) each."""

    group: Codes
    code: Codes
    merit: Floats
    cost: Floats


def more_sets(problem: Problem, budget: Budget, known: Codes) -> Codes:
    """Return candidates (m, G): the nearest of distinct changed sets without redundant changes, then other actions.

    Args:
        problem: the row to explain, with the number of answers that are wanted.
        budget: at most as many evaluations are taken as before, see `LEAST_EVALUATIONS`, or half of what is left.
        known: (k, G) favourable candidates.
    """
    return _searched(problem, budget, known, MoreSets.run).found()


def nearer(problem: Problem, budget: Budget, known: Codes) -> Codes:
    """Return known candidates (k, G) brought nearer and without redundant changes, and the single changes that suffice.

    Arguments are those of `more_sets`, which grows sets of changes besides.
    """
    return _searched(problem, budget, known, MoreSets.singles).answers.codes


def _searched(problem: Problem, budget: Budget, known: Codes, look: Callable[[MoreSets], None]) -> MoreSets:
    """Return a search that has looked, within at most half of what is left, so that what is found can be proved."""
    part = budget.part(min(max(budget.used, LEAST_EVALUATIONS), budget.left // 2))
    search = MoreSets(problem, part, known)
    look(search)
    budget.take(part.used)
    return search


class MoreSets:
    """One search.

    Attributes:
        answers: the nearest known counterfactual of every changed set, none with a redundant change, nearest first.
        favourable: all favourable candidates that were rated.
        base: (G,) the row, repaired where it breaks rules; tried: what was rated and differs from it in one group.
    """

    def __init__(self, problem: Problem, budget: Budget, known: Codes) -> None:
        self.problem, self.budget = problem, budget
        self.cascade, self.seen = Cascade(problem), Seen(problem)
        self.answers = self.favourable = self.tried = none_scored(problem)
        own = problem.own[None]
        lawful = problem.own_allowed.all() and problem.held(own)[0]
        repaired = own if lawful else self.cascade.repair(own)
        self.base: Codes = repaired[0] if len(repaired) else problem.own
        self._favourable_keys: set[int] = set()
        self.seen.remember(len(self.seen.new(known)))
        self._keep(_favourable(problem, known))

    @property
    def cutoff(self) -> float:
        """The distance of the last wanted answer: candidates must be nearer."""
        last = self.problem.count - 1
        return float(self.answers.score[last]) if len(self.answers) > last else np.inf

    def run(self) -> None:
        """Look at single changes, then at pairs, and so on."""
        self.singles()
        single, strongest, parents = self._insufficient()
        first = self._rate(self._grown(strongest, single))
        self._refine()  # so that fewer pairs are near enough
        level = Population.together([first, self._rate(self._grown(parents, single))])
        for _ in range(MOST_LEVELS - 1):
            self._refine()
            failed = self._beam(level)
            if self.budget.spent or not len(failed):
                break
            level = self._rate(self._grown(failed, single))

    def _beam(self, level: Population) -> Population:
        """Return the most promising of rated candidates that do not suffice, of distinct changed sets first."""
        failed = level.take(np.flatnonzero(~level.favourable))
        failed = failed.take(np.argsort(-failed.merit, kind="stable"))
        first = changed_sets(self.problem, failed.codes)[1]
        others = np.setdiff1d(np.arange(len(failed)), first)
        return failed.take(np.concatenate([first, others])[:BEAM])

    def singles(self) -> None:
        """Rate single changes of the base, and bring all answers nearer."""
        numbers = range(len(self.problem.groups))
        most = max(2 * ACTIONS, MOST_SINGLES // len(numbers))
        changed = [_with(self.base, n, _spread(_actions(self.problem, n), most)) for n in numbers]
        self._rate(np.concatenate(changed))
        self._refine()

    def found(self) -> Codes:
        """Return the answers (m, G), and if they are too few, some other candidates that change the same groups."""
        problem, answers, others = self.problem, self.answers, self.favourable
        if len(answers) >= problem.count:
            return answers.codes
        alike = self._alike()
        alike = _spread(alike[np.argsort(others.score[alike], kind="stable")], SPARE * problem.count)
        return np.concatenate([answers.codes, others.codes[alike]])

    def _rate(self, codes: Codes) -> Population:
        """Rate candidates (m, G) that are new and near enough, keep the favourable ones, and return all of them."""
        codes = self.cascade.repair(codes)
        rated = self._scored(codes[self.problem.distance(codes) < self.cutoff], self.budget)
        self._keep(rated)
        return rated

    def _scored(self, codes: Codes, budget: Budget) -> Population:
        codes = codes[self.seen.new(codes)]
        rated = score_within(self.problem, codes, budget)
        self.seen.remember(len(rated))
        return rated

    def _keep(self, rated: Population) -> None:
        """Keep the favourable ones among rated candidates as answers, without their redundant changes."""
        problem, found = self.problem, self._noted(rated)
        while len(found):
            found = fittest(problem, self.answers.joined(found), len(self.answers) + len(found))
            self.answers = found.take(changed_sets(problem, found.codes)[1][: problem.count + SPARE])
            owner, undone = self._undone(self.answers.codes, self.budget)
            self.answers = self.answers.take(np.setdiff1d(np.arange(len(self.answers)), owner))
            found = _favourable(problem, undone)

    def _undone(self, codes: Codes, budget: Budget | None) -> tuple[Codes, Codes]:
        """Return owners (n,) among candidates (m, G) and what is favourable without one of their changes (n, G).

        Without a budget only what was rated already counts.
        """
        owner, undone = self.problem.undone_codes(codes)
        lawful = self.problem.held(undone)
        owner, undone = owner[lawful], undone[lawful]
        if budget is not None:
            self._noted(self._scored(undone, budget))
        keys = self.seen.keys.of(undone).tolist()
        redundant = np.flatnonzero([key in self._favourable_keys for key in keys])
        return owner[redundant], undone[redundant]

    def redundant(self, codes: Codes, budget: Budget | None = None) -> Bools:
        """Return (m,) which candidates (m, G) are favourable without one of their changes, too.

        As far as a budget allows to tell; without one, as far as it is known already.
        """
        found = np.zeros(len(codes), dtype=np.bool_)
        found[self._undone(codes, budget)[0]] = True
        return found

    def pool(self) -> tuple[Codes, Bools]:
        """Return favourable candidates (m, G) that change what answers change, and (m,) which are the answers."""
        keys = set(self.seen.keys.of(self.answers.codes).tolist())
        others = self.favourable.codes[self._alike()]
        others = others[[key not in keys for key in self.seen.keys.of(others).tolist()]]
        codes = np.concatenate([self.answers.codes, others])
        return codes, np.arange(len(codes)) < len(self.answers)

    def _alike(self) -> Codes:
        """Return the positions of favourable candidates with the changed set of an answer."""
        own = self.problem.own
        one, two = self.answers.codes != own, self.favourable.codes != own
        return np.flatnonzero((one[:, None] == two).all(axis=2).any(axis=0))

    def _noted(self, rated: Population) -> Population:
        """Note and return the favourable ones among rated candidates."""
        lone = np.flatnonzero((rated.codes != self.base).sum(axis=1) == 1)
        self.tried = Population.together([self.tried, rated.take(lone)])
        found = rated.take(np.flatnonzero(rated.favourable))
        self._favourable_keys.update(self.seen.keys.of(found.codes).tolist())
        self.favourable = Population.together([self.favourable, found])
        return found

    def _refine(self) -> None:
        """Bring answers nearer by other actions in what they change, one at a time, until none comes nearer."""
        done: set[bytes] = set()
        for _ in range(MOST_ROUNDS):
            waiting = [codes for codes in self.answers.codes if codes.tobytes() not in done]
            if not waiting or self.budget.spent:
                return
            done.update(codes.tobytes() for codes in waiting)
            self._rate(np.concatenate([self._nearer(codes) for codes in waiting]))

    def _nearer(self, codes: Codes) -> Codes:
        """Return candidates (m, G) that are nearer than one (G,) by another action in a group that it changes."""
        parts = [codes[None][:0]]
        for number in np.flatnonzero(codes != self.problem.own).tolist():
            cost, nearer = alone(self.problem, number), _actions(self.problem, number)
            nearer = nearer[cost[nearer] < cost[codes[number]]]
            beside = len(nearer) - 2 ** np.arange(NEARER)  # the next ones, and then at growing steps
            some = np.concatenate([_spread(nearer, NEARER), nearer[beside[beside >= 0]]])
            parts.append(_with(codes, number, some))
        return np.concatenate(parts)

    def _insufficient(self) -> tuple[SingleChanges, Population, Population]:
        """Return the single changes worth joining, every group's strongest one, and those that pairs are made of.

        Worth joining are the best trade-offs of distance and log odds, and a few others of each group.
        """
        base, failed = self.base, self.tried.take(np.flatnonzero(~self.tried.favourable))
        merit, cost = log_odds(failed.merit), self.problem.distance(failed.codes)
        parts, strongest = [np.empty((0, 2), dtype=np.intp)], []
        most = max(ACTIONS, ALL_ACTIONS // len(self.problem.groups))
        for number in np.flatnonzero((failed.codes != base).any(axis=0)).tolist():
            here = np.flatnonzero(failed.codes[:, number] != base[number])  # a repair may have changed others, too
            here = here[np.lexsort((-merit[here], cost[here]))]
            before = np.append(-np.inf, np.maximum.accumulate(merit[here])[:-1])
            some = np.union1d(_spread(here[merit[here] > before], most), _spread(here, most))
            parts.append(np.column_stack([some, np.full(len(some), number)]))
            strongest.append(int(here[merit[here].argmax()]))
        at, group = np.concatenate(parts).T
        code, actions = failed.codes[at, group], self.problem.actions
        single = SingleChanges(group, code, merit[at], actions.cost[actions.start[group] + code])
        alone_best, parents = np.array(strongest, dtype=np.intp), np.unique(at)
        firsts = alone_best[np.argsort(-merit[alone_best], kind="stable")[:BEAM]]
        parents = parents[np.argsort(-merit[parents], kind="stable")[:MOST_PARENTS]]
        return single, failed.take(firsts), failed.take(parents)

    def _grown(self, parents: Population, single: SingleChanges) -> Codes:
        """Return candidates (m, G): parents with one more change, near enough, those that promise most if too many."""
        problem = self.problem
        free = parents.codes[:, single.group] == problem.own[single.group]
        far = problem.distance(parents.codes)[:, None] + single.cost
        parent, at = np.nonzero(free & (far < self.cutoff))
        promise = log_odds(parents.merit)[parent] + single.merit[at]
        if len(at) > MOST_GROWN:
            some = np.sort(np.argsort(-promise, kind="stable")[:MOST_GROWN])
            parent, at = parent[some], at[some]
        codes = parents.codes[parent]
        codes[np.arange(len(at)), single.group[at]] = single.code[at]
        return codes


def _favourable(problem: Problem, codes: Codes) -> Population:
    """Return candidates (m, G) that are known to be favourable."""
    yes = np.ones(len(codes), dtype=np.bool_)
    return Population(codes, yes, problem.distance(codes), np.ones(len(codes)), yes)


def _actions(problem: Problem, number: int) -> Codes:
    """Return the codes of what a group may become, nearest first."""
    group = problem.groups[number]
    codes = np.argsort(alone(problem, number), kind="stable")
    known = ~np.isnan(group.actions[codes]).any(axis=1)
    return np.asarray(codes[(codes != group.own) & known])


def _spread(codes: Codes, most: int) -> Codes:
    """Return at most so many of some codes, evenly spread, with the first and the last one."""
    if len(codes) <= most:
        return codes
    return np.asarray(codes[np.unique(np.linspace(0, len(codes) - 1, most).astype(np.intp))])


def _with(base: Codes, number: int, codes: Codes) -> Codes:
    """Return candidates (m, G): one (G,) with each of some codes in a group."""
    found = np.tile(base, (len(codes), 1))
    found[:, number] = codes
    return found
