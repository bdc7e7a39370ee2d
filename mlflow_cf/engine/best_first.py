"""Exact search: boxes of candidates, least possible key first, until nothing nearer is left (methods of exact search).

The key of a candidate is its distance, then its number of changed groups, then its codes. A box is answered for by the
least key any candidate in it can have, and is given up where the model's bounds prove that none of its candidates meets
the target. So the first candidate the judge accepts is the nearest there is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.actions import RedundantChanges
from mlflow_cf.engine.agreed import Agreed
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.few_changes import FewChanges
from mlflow_cf.engine.frontier import Frontier, KeyedCandidate, Node
from mlflow_cf.engine.listed import Listed, ListedCandidates, gains
from mlflow_cf.engine.moves.search import MoveSearch, search_listed
from mlflow_cf.engine.nodes import Parting, boxes_of_sets, tight, tighten, whole_box
from mlflow_cf.engine.sets.search import SetSearch
from mlflow_cf.engine.three_changes import TripleLimits
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Codes
from mlflow_cf.problem.actions import Within
from mlflow_cf.rounding import loose
from mlflow_cf.structures.capabilities import CostBound


class BestFirst:
    """Yields candidates in the order of their keys; no candidate that the judge may accept is left out.

    Only candidates no farther away than `limit` are looked at. Candidates whose changed groups are among `closed` may
    be left out, and so may those that neither the model nor any rule can tell from a nearer one. Where one answer is
    wanted, candidates that are farther than one that certainly meets the target may be left out, too; where several
    are, those with a change that is certainly redundant are.
    With `sets` (s, G), candidates are those whose changed groups are one of these sets, and none of them is left out;
    nor is any where the nearest answers are wanted, whatever they change. Where many models must accept an answer, the
    few that lack most of the nearest one `known` (k, d) refuse most of the others first.
    """

    def __init__(
        self,
        engine: Engine,
        budget: Budget,
        limit: float,
        tolerance: float,
        sets: Bools | None = None,
        known: Floats | None = None,
    ) -> None:
        self.problem = problem = engine.problem
        self.budget, self.limit = budget, limit
        self.joint_rules = problem.joint_rules
        whole = sets is not None or problem.variety.near
        self.actions = engine.within(limit, whole=whole)
        self.within = Within(problem.bound_distance.c, limit, problem.most_changes)
        self.tolerance = thresholds.SCORE_TOLERANCES * tolerance
        self.redundant = RedundantChanges(problem, self.actions, self.tolerance) if problem.count > 1 else None
        self._alone = thresholds.MOST_ALONE * (1 if self.redundant is None else thresholds.MORE_ALONE)
        self._engine, self._known = engine, known
        self.cut = False
        self._parted, self._pays = 0, False
        self._root_bound: CostBound | None = None
        self._floor = 0.0  # no candidate of a node is nearer
        self._frontier = Frontier(problem.own, self.redundant)
        if not whole and engine.agreed is not None:
            self._decide_agreed(engine.agreed)
            return
        if all(np.diff(self.actions.start) > 0):
            boxes = whole_box(self.actions) if sets is None else boxes_of_sets(self.actions, sets)
            unknown = whole or np.isinf(limit)  # whether any candidate meets the target
            if unknown:
                self._push(boxes.copy())
            few = engine.few if not whole and (len(self._frontier) or not unknown) else None
            if few is not None:
                self._decide_few(few, boxes)
            elif not unknown:
                self._push(boxes)

    @cached_property
    def _hardest(self) -> Scorer | None:
        """The models that refuse most candidates; of several answers it is asked what only all models tell."""
        return self._engine.hardest(self._known) if self.redundant is None else None

    @cached_property
    def _parting(self) -> Parting:
        """What parts boxes."""
        return Parting(self.problem, self.actions, self.redundant, self.tolerance, self.budget, self._hardest)

    @property
    def low(self) -> float:
        """No candidate that is still to come is nearer than this."""
        return self._frontier.low

    @property
    def closed(self) -> set[bytes]:
        """Changed sets (G,), as bytes, of which no more candidates are looked for."""
        return self._frontier.closed

    def next(self) -> KeyedCandidate | None:
        """Return the next candidate; None if there are no more within the limit, or if the budget is used up."""
        while not self.cut and (least := self._frontier.pop(self.limit, self.budget)) is not None:
            if isinstance(least, KeyedCandidate):
                return least
            key, box = least
            if self.budget.spent or not self._look_into(box):
                self._frontier.add_node(key, box)
                self.cut = True
        self.cut |= len(self._frontier) > 0 and self.low <= self.limit
        return None

    def _look_into(self, box: Node) -> bool:
        """Wait with what is left of a box in its place; return False if the budget does not last for that."""
        mask = box.mask
        if not box.worthwhile:
            if not self.budget.take(1):
                return False
            left = self._parting.worthwhile(mask)
            if left is not mask:
                self._push(left[None], box, worthwhile=True)
                return True
        return self._list(box, mask) if self._few(mask) else self._part(box, mask)

    def look_no_farther(self, limit: float) -> None:
        """Lower the limit, if this one is lower."""
        if limit < self.limit:
            self.limit = limit
            self.within = self.within._replace(limit=limit)

    def stop(self, candidate: KeyedCandidate) -> None:
        """End the search before a candidate it has returned."""
        self._frontier.add_candidate(candidate)
        self.cut = True

    def doubtful(self, most: int) -> list[Codes]:
        """Return the codes of some candidates that wait and may be refused, at most so many."""
        return self._frontier.doubtful(most)

    def misses(self, Z: Floats) -> Bools:
        """Return which of the rows Z (m, d) miss the target by more than the tolerance, as the structure says."""
        scorer = self.problem.scorer
        if scorer is None or not len(Z):
            return np.zeros(len(Z), dtype=np.bool_)
        favourable, margin = scorer.margins(scorer.encoded(range(Z.shape[1]), Z))
        return np.asarray(~favourable & (margin >= self.tolerance))

    @cached_property
    def _undoing(self) -> Bools:
        """(G,) the groups whose changes may be put back, where redundant ones are looked for."""
        return np.zeros(len(self.actions.own), dtype=np.bool_) if self.redundant is None else self.redundant.free

    @cached_property
    def _together(self) -> int:
        """How many candidates can be rated together."""
        scorer = self.problem.scorer
        if scorer is None or not gains(self.actions, scorer):
            return 0
        return thresholds.MOST_LISTED // scorer.numbers(self.tolerance)

    def _few(self, mask: Bools) -> bool:
        sizes = np.add.reduceat(mask, self.actions.start[:-1], dtype=np.intp)
        size: int = prod(sizes.tolist())
        return size <= self._alone or (size <= thresholds.MOST_LISTED and size <= self._together)

    def _push(self, masks: Bools, whole: Node | None = None, *, worthwhile: bool = False) -> None:
        """Add boxes (m, actions), parts of a `whole` one, but those that hold no candidate."""
        lows = tighten(masks, self.actions, self.within)
        alive = np.flatnonzero(np.isfinite(lows.distance))
        alive = alive[[self._possible(mask) for mask in masks[alive]]]
        found = self._parting.reach(masks[alive])
        for box, far in zip(alive.tolist(), found.tolist(), strict=True):
            bound = self._cost_bound(masks[box], whole) if far >= 0 and whole else None
            low = max(float(lows.distance[box]), tight(bound.low) if bound else 0.0, tight(self._floor))
            if far >= 0 and low <= self.limit:
                if bound is not None and bound.kept is not None:
                    masks[box, self.actions.columns[~bound.kept]] = False
                    bound = replace(bound, kept=None)  # many nodes wait
                key = (low, int(lows.changes[box]), tuple(lows.code[box].tolist()))
                self._frontier.add_node(
                    key, Node(np.packbits(masks[box]), masks.shape[1], worthwhile or bound is not None, bound)
                )

    def _cost_bound(self, mask: Bools, whole: Node) -> CostBound | None:
        """Return what candidates of a part (actions,) of a whole box cost at least; None: not known.

        Where several answers are wanted, parts that are listed next have none: candidates with a redundant change
        cost little, so that few parts are given up by it, and a list takes about as long.
        """
        if self.redundant is not None and (self._few(mask) or not self._costs_pay):
            return None
        return self._parting.cost_bound(mask, whole.bound or self._root_bound, self.limit)

    @property
    def _costs_pay(self) -> bool:
        """Whether bounds on costs are worth their time where several answers are wanted.

        Where they are not quick, that is found out once a search has proved long: they are if they tell enough about
        all candidates together.
        """
        if self._parting.quick_costs:
            return True
        if self._root_bound is None and self._parted >= thresholds.LONG_SEARCH and np.isfinite(self.limit):
            self._root_bound = self._parting.cost_bound(whole_box(self.actions)[0], None, self.limit)
            self._pays = self._root_bound is not None and self._root_bound.low >= thresholds.TELLING * self.limit
        return self._pays

    def _possible(self, mask: Bools) -> bool:
        """Whether every rule over several groups holds for some candidate of a box, and its changes may be new."""
        actions = self.actions
        chosen = [actions.code[a:b][mask[a:b]] for a, b in zip(actions.start[:-1], actions.start[1:], strict=True)]
        for joint in self.joint_rules:
            if joint.table is not None and not joint.table[np.ix_(*(chosen[number] for number in joint.groups))].any():
                return False
        if not self.closed:
            return True
        same = np.array([codes[0] == own for codes, own in zip(chosen, self.problem.own, strict=True)])
        decided = all(len(codes) == 1 or own not in codes for codes, own in zip(chosen, self.problem.own, strict=True))
        return not decided or (~same).tobytes() not in self.closed

    def _part(self, node: Node, box: Bools) -> bool:
        """Wait with the parts of a box; return False if the budget does not last for parting it."""
        self._parted += 1
        parts = self._parting.of(box, node.bound)
        if parts is not None:
            self._push(parts, node)
        return parts is not None

    def _list(self, node: Node, box: Bools) -> bool:
        """Add all candidates of a box one by one; return False if the budget does not last for that."""
        if not self.budget.take(1):  # there may be no lawful one among them, and it took time all the same
            return False
        listed = Listed.of(self.actions, box, self._undoing)
        scorer = self.problem.scorer
        rated = None if scorer is None else listed.rated(self.within, scorer, self.tolerance, self._hardest)
        if rated is not None:
            return self._keep(rated, listed.rows.size)
        if listed.size > self._alone:
            return self._part(node, box)
        return self._add(listed.near(self.within), self.within.least)

    def _keep(self, rated: ListedCandidates, size: int) -> bool:
        """Let what may be answers of so many candidates wait for their turn."""
        codes, certain = rated.codes, rated.certain
        lawful = self._lawful(codes)
        codes, certain = codes[lawful], certain[lawful]
        distance = self.problem.distance(codes)
        if self.redundant is None and certain.any():
            self._lower(distance, codes, certain)
            near = distance <= self.limit
            codes, distance, certain = codes[near], distance[near], certain[near]
        count = len(codes) + size // thresholds.LISTED_PER_ROW
        if self.budget.take(count) < count:
            return False
        self._frontier.add(codes, distance, certain, rated.checked)
        return True

    def _lower(self, distance: Floats, codes: Codes, certain: Bools) -> None:
        """Look no farther than the nearest of candidates (m, G) that certainly is an answer, where one is wanted."""
        for at in np.argsort(np.where(certain, distance, np.inf), kind="stable")[: thresholds.MOST_CHECKED].tolist():
            if distance[at] > self.limit or not certain[at]:
                return
            if self.problem.check(self.problem.rows(codes[[at]])).all():
                self.look_no_farther(float(distance[at]))
                return

    def _add(self, codes: Codes, least: int) -> bool:
        """Add those of candidates (m, G) that change so many groups; return False if the budget is too small."""
        problem = self.problem
        near = (problem.distance(codes) <= self.limit) & ((codes != problem.own).sum(axis=1) >= least)
        codes = codes[near & self._lawful(codes)]
        if self.budget.take(len(codes)) < len(codes):
            return False
        self._rate(codes)
        return True

    def _rate(self, codes: Codes) -> None:
        """Let those of lawful candidates (m, G) wait for their turn that may be answers."""
        problem = self.problem
        certain = np.zeros(len(codes), dtype=np.bool_)
        if problem.scorer is not None and len(codes):
            may, certain = problem.scorer.decisions(
                problem.scorer.structure.sums(problem.encoded(codes)), self.tolerance
            )
            codes, certain = codes[may], certain[may]
        self._frontier.add(codes, problem.distance(codes), certain, np.zeros(len(problem.groups), dtype=np.bool_))

    def _lawful(self, codes: Codes) -> Bools:
        """Return which candidates (m, G) meet the rules over several groups and change few enough of them."""
        lawful: Bools = self.problem.changes_left(codes) >= 0
        for joint in self.joint_rules:
            lawful &= joint.holds(codes)
        return lawful

    def _decide_agreed(self, agreed: Agreed) -> None:
        """Put what many models accept in place of all boxes, or of what is nearer than the others are."""
        found = agreed.nearest(self.limit, self.tolerance, self.budget, thresholds.AGREED_IN_PROOFS)
        self._rate(found.codes)  # the list has taken from the budget for them
        if not found.whole:
            self._floor = found.low
            self._push(whole_box(self.actions))

    def _decide_few(self, few: FewChanges, whole: Bools) -> None:
        """Put the candidates that change one group, or two, and a box of those that change more, in place of all.

        Often nothing that changes more groups can be as near.
        """
        groups = len(self.problem.groups)
        self._frontier = Frontier(self.problem.own, self.redundant)
        enough = self.budget.take(groups) == groups  # like bounds: a sweep costs little more
        if not enough or not self._add(few.singles(self.limit, self.tolerance), 1):
            self.cut = True
            self._push(whole)
            return
        self.within = self.within._replace(least=2)
        pairs = few.pairs(self.limit, self.tolerance, self.budget)
        if pairs is not None and self._add(pairs, 2):
            self.within = self.within._replace(least=3)
            if self._decide_by_triples(few):
                return
        if self._decide_by_moves() and self._decide_by_sets():
            self._push(whole)

    def _decide_by_triples(self, few: FewChanges) -> bool:
        """Add all candidates of three changes, and a box for every larger set of groups; return whether that is all.

        Where one answer is wanted, only if no larger set can be as near: a search among sets is better for these.
        """
        larger = few.sets(self.limit, 4) if np.isfinite(self.limit) else None
        if larger is None or (self.redundant is None and len(larger)):
            return False
        triples = few.three.near(TripleLimits(self.limit, np.empty(0), self.tolerance), self.budget)
        if triples is None or not self._add(triples, 3):
            return False
        if len(larger):
            self._push(boxes_of_sets(self.actions, larger))
        return True

    def _decide_by_moves(self) -> bool:
        """Add all candidates that a search among moves finds; return whether others may be left."""
        search = None
        if self.redundant is None:
            search = search_listed(self.problem, self.actions, self.limit, self.tolerance, self.within.most)
        if search is None:
            return True
        # candidates that break a rule do not lower the limit: so many may be found that rules are the better guide
        part = self.budget.part(self.budget.left if search.asked.lowers else thresholds.MOST_RULED)
        return self._decide_by(search, part)

    def _decide_by_sets(self) -> bool:
        """Add all candidates that a search among sets of changed features finds; return whether others may be left."""
        search = self._parting.set_search(self.within) if self.redundant is None else None
        if search is None:
            return True
        share = 1.0 if search.most <= thresholds.FEW_CHANGED else 0.5
        return self._decide_by(search, self.budget.part(int(share * self.budget.left), share))

    def _decide_by(self, search: MoveSearch | SetSearch, part: Budget) -> bool:
        """Add all candidates that a search finds with a part of the budget; return whether others may be left."""
        done = search.run(part)
        self.budget.take(part.used)
        if not self._add(search.candidates(self.actions), self.within.least):
            self.cut = True  # what was found is lost: all of it is left again
            return True
        self.look_no_farther(loose(search.limit))
        self._floor = 0.0 if done else search.low
        return not done
