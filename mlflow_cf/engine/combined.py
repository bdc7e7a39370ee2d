"""One linear model in place of many that must all accept an answer: a weighted sum of their scores.

Whatever the weights are, what all models accept reaches the same sum of what they ask for. So bounds on one model hold
for all of them together, and they tell more than bounds on each: no candidate may reach the sum, although some reach
what one or the other model asks for; and a linear model tells what changes cost that reach it (`LinearBoxes.costs`).
The best weights are the multipliers of a Lagrangian relaxation (Fisher 1981, Management Science 27), the prices of a
linear program; others only tell less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.unanimous import all_needed
from mlflow_cf.problem import Codes
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.structures.capabilities import ROUNDED, Boxes
from mlflow_cf.structures.layers.boxes import LinearBoxes
from mlflow_cf.structures.layers.costs import LinearCosts
from mlflow_cf.structures.structure import Flags

MOST_NUMBERS: Final = 2**17  # in the program: a few ms for 13 groups and 90 models, 50 ms at most for 300 groups
MOST_VALUES, FEWEST_VALUES = 16, 4  # of a group in it
# What it costs to fall short of the score asked for by 1, in terms of the dearest changes of all groups together: where
# some candidates do not, none of the program's solutions does.
SHORT: Final = 1e3


@dataclass(frozen=True, eq=False)
class Combined:
    """A weighted sum of what models say, and what answers reach of it.

    Attributes:
        boxes: bounds of the sum, as of a model with one raw score, in the grid of the actions.
        least: what every answer reaches.
    """

    boxes: LinearBoxes
    least: float

    @classmethod
    def of(cls, scorer: Scorer, boxes: Boxes | None, actions: ActionTable, tolerance: float) -> Combined | None:
        """Return the sum that tells most of the candidates of a table of actions.

        None unless there are several models, all linear, each of which must accept an answer and decides by a number.

        Args:
            scorer: the models; boxes: their bounds in the grid of the actions.
            actions: some for every group.
            tolerance: by how much scores may be off, in units of max(1, |score|).
        """
        if not isinstance(boxes, LinearBoxes) or len(boxes.bias) < 2:
            return None
        asked = _asked(scorer, tolerance)
        if asked is None:
            return None
        weights, least = asked
        gains = np.zeros((len(actions.cost), len(least)))
        np.add.at(gains, actions.columns, boxes.added @ weights)
        price = _prices(gains, least - boxes.bias @ weights, actions)
        return None if price is None else cls(boxes.weighted(weights @ price), float(least @ price))

    def missed(self, masks: Flags) -> Flags:
        """Return (m,) which boxes `masks` (m, n) of the grid no answer is in."""
        missed: Flags = self.boxes.bounds(masks)[1][:, 0] < self._least
        return missed

    def costs(self, costs: Floats) -> LinearCosts:
        """Return what answers cost at least, where the values of the grid cost `costs` (n,)."""
        return self.boxes.costs(costs, np.ones(1), self._least)

    @property
    def _least(self) -> float:
        """What every answer reaches, however that was rounded."""
        return self.least - ROUNDED * max(1.0, abs(self.least))


def _asked(scorer: Scorer, tolerance: float) -> tuple[Floats, Floats] | None:
    """Return the weights (k, models) of the raw scores in what each model decides by, and what that must reach."""
    alike = all_needed(scorer, tolerance)
    if alike is None or not all(np.isfinite(one.lead.may) for one in alike):
        return None
    values = np.concatenate([np.tile(one.lead.weights, one.models) for one in alike])
    widths = np.repeat([one.target.width for one in alike], [one.models for one in alike])
    weights = np.zeros((len(values), len(widths)))
    weights[np.arange(len(values)), np.repeat(np.arange(len(widths)), widths)] = values
    return weights, np.repeat([one.lead.may for one in alike], [one.models for one in alike])


def _prices(gains: Floats, need: Floats, actions: ActionTable) -> Floats | None:
    """Return the weight (models,) of every model, 1 in all; None: the program has no solution, or no model matters.

    The program mixes the actions of every group, so that the mixtures' gains add up to what each model needs, at the
    least cost; what is missing is dear.

    Args:
        gains: (actions, models) what actions add to what each model decides by; need: (models,) in all.
        actions: what they cost.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  a tenth of a second that few requests need

    some = _some(actions, MOST_NUMBERS // (len(actions.own) * len(need)))
    costs, dearest = actions.cost[some], np.maximum.reduceat(actions.cost, actions.start[:-1]).sum()
    fall = SHORT * max(float(dearest), np.finfo(np.float64).tiny)
    groups = (actions.group[some] == np.arange(len(actions.own))[:, None]).astype(np.float64)
    solved = linprog(
        np.append(costs, fall),
        A_ub=np.column_stack([-gains[some].T, -np.ones(len(need))]),
        b_ub=-need,
        A_eq=np.column_stack([groups, np.zeros(len(groups))]),
        b_eq=np.ones(len(groups)),
        method="highs",
    )
    if solved.status != 0:
        return None
    price = np.maximum(-np.asarray(solved.ineqlin.marginals), 0.0)
    total = float(price.sum())
    return price / total if total > 0 else None


def _some(actions: ActionTable, values: int) -> Codes:
    """Return about so many actions (n,) of every group: the nearest ones, and others that lie evenly among all."""
    parts, values = [], min(max(values, FEWEST_VALUES), MOST_VALUES)
    for start, stop in zip(actions.start[:-1].tolist(), actions.start[1:].tolist(), strict=True):
        order = start + np.argsort(actions.code[start:stop], kind="stable")
        near = start + np.argsort(actions.cost[start:stop], kind="stable")[: values // 4]
        even = order[np.linspace(0, len(order) - 1, min(values - values // 4, len(order))).astype(np.intp)]
        parts.append(np.unique(np.concatenate([near, even])))
    return np.concatenate(parts)
