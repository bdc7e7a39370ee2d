"""The nearest answers of a row by a search that ends soon.

That is a search among moves under a linear model or a network with one layer, and among sets of changed features under
boosted trees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.engine.moves.bounds import Asked
from mlflow_cf.engine.moves.search import AT_ONCE, MoveSearch, hidden_of, levels, lowers, search_listed
from mlflow_cf.engine.sets.search import LEAVES_PER_ROW, search_sets
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable, Within
from mlflow_cf.rounding import loose
from mlflow_cf.structures import TreeEnsemble
from mlflow_cf.structures.capabilities import SupportsHidden, boxes_of
from mlflow_cf.structures.structure import Structure

# Networks of a layer part about 6 times as many nodes for every further change, and the more the wider the layer is:
# on breast cancer, 16 units take 31 to 56 nodes for two changes, 150 to 175 for three and 620 to 1,140 for four, 64
# units 43 to 164 for two and 2,800 to 7,600 for four.
MORE_PARTED: Final = 6
DIRECTIONS: Final = 2  # most features have no more moves
UNITS: Final = 32  # of layers that part so many nodes; the known answer often has a change more than the nearest
# Leaves, times features, of boosted trees that are searched: some 13 to 30 times as many leaves are looked at in the
# first quarter of the distance. Breast cancer has 11,500 under XGBoost, and takes 7 to 12 ms in all, 66,000 under
# HistGradientBoosting, and 19 to 25 ms, where generations take 16 to 20; of 100 numbers under XGBoost, with 265,000, it
# would take 180 ms. Forests of as many leaves take 20 to 600: these are shares, of which many must be gained.
MOST_LEAVES: Final = 2**17
SOON_LEAVES: Final = 2**21  # are looked at, at most: some 20 ms


class Sought(NamedTuple):
    """What is looked for.

    Attributes:
        limit: how far a candidate may be; tolerance: by how much scores may be off.
        changes: how many features the nearest known answer changes; 0: none is known.
    """

    limit: float
    tolerance: float
    changes: int


class NearestFound(NamedTuple):
    """Candidates of a row that a search has found; no other may meet the target that is as near.

    Attributes:
        codes: (m, G) of each.
        limit: how far they are at most; tolerance: by how much scores may be off.
    """

    codes: Codes
    limit: float
    tolerance: float

    def within(self, problem: Problem, distance: float, tolerance: float) -> Codes | None:
        """Return the candidates (n, G) no farther than a distance; None: they do not tell all that may be answers."""
        if distance > self.limit or tolerance > self.tolerance:
            return None
        return self.codes[problem.distance(self.codes) <= loose(distance)]


def nearest_moves(
    problem: Problem, actions: Callable[[], ActionTable], sought: Sought, budget: Budget, share: int
) -> NearestFound | None:
    """Return the nearest candidates that take some of the `actions`, if a share of the budget lasts for that.

    None where several answers are wanted, where the model has other units than one rectified layer, where no candidate
    certainly meets the target, and where rules over several features, limits on groups or the largest change decide
    which of them is an answer. Where an answer is known, the search ends after some 20 ms; a network is looked into
    only then, and not at all where that will hardly do.
    """
    if problem.count > 1 or not lowers(problem) or not _has_moves(problem, sought.changes):
        return None
    table = actions()
    search = search_listed(problem, table, sought.limit, sought.tolerance, problem.most_changes)
    if search is None:
        return None
    evaluations = budget.left // share
    part = budget.part(min(evaluations, search.at_once) if sought.changes else evaluations)
    done = search.run(part)
    budget.take(part.used)
    found = done and search.limit < np.inf
    return NearestFound(search.candidates(table), search.limit, sought.tolerance) if found else None


def _has_moves(problem: Problem, changes: int) -> bool:
    """Whether a search among moves may soon find answers of so many changes; 0: of any number."""
    structure = None if problem.scorer is None else problem.scorer.structure
    if not isinstance(structure, SupportsHidden):
        return False
    if structure.linear or not changes:
        return structure.linear
    width = len(structure.first.bias)
    nodes = AT_ONCE // (DIRECTIONS * len(problem.groups) * width)
    return bool(MORE_PARTED**changes * width <= UNITS * nodes)


def nearest_sets(
    problem: Problem, actions: Callable[[], ActionTable], sought: Sought, budget: Budget, share: int
) -> NearestFound | None:
    """Return the nearest candidates under boosted trees, if a share of the budget lasts for that, and some 20 ms.

    None where `nearest_moves` has none for other reasons than the model's kind, and before an answer is known.
    """
    structure = None if problem.scorer is None else problem.scorer.structure
    if problem.count > 1 or not lowers(problem) or not sought.changes or not isinstance(structure, TreeEnsemble):
        return None
    nodes = structure.trees.nodes
    leaves = (len(nodes.value) + len(nodes.roots)) // 2
    if structure.link == "share" or leaves * len(problem.space) > MOST_LEAVES:
        return None
    table, within = actions(), Within(problem.bound_distance.c, sought.limit, problem.most_changes)
    search = search_sets(problem, table, boxes_of(structure, table.encoded), sought.tolerance, within)
    if search is None:
        return None
    part = budget.part(min(budget.left // share, SOON_LEAVES // LEAVES_PER_ROW))
    done = search.run(part)
    budget.take(part.used)
    return NearestFound(search.candidates(table), search.limit, sought.tolerance) if done else None


def try_moves(structure: Structure, Z: Floats) -> None:
    """Look among changes of the first of coded rows (m, d) to values of the others.

    It warms up the kernel, so that no later row waits until it is compiled.
    """
    if not isinstance(structure, SupportsHidden):
        return
    score, (rows, columns) = DecisionScore(np.ones(structure.outputs), 0.0, 0.0), Z.shape
    layer = structure.hidden([structure.encode(column, codes) for column, codes in enumerate(Z.T)], score.weights)
    if layer is None:
        return
    added, ids = layer.added.reshape(columns, rows, -1), np.arange(1, rows)
    groups = [levels(ids, ids.astype(np.float64), effects[1:] - effects[0]) for effects in added]
    hidden = hidden_of(layer, layer.bias + added[:, 0].sum(axis=0), groups, score)
    MoveSearch(groups, hidden, Asked(loose(0.0), columns, True, True), np.inf).run(Budget(1))
