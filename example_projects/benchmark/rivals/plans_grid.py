"""The cheapest plan of one or two actions by a grid over their values, without mlflow_cf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from cases.plans_actions import Model, State
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

POINTS = 201  # values of an action at most; where there are more whole numbers, the best ones are looked at closely
AROUND = 10  # values on either side of one that is looked at closely
BEST = 100  # cells of a pair that are looked at closely
MAY_SAVE = 2.0  # a plan that costs more than so often the best one, and so much, is not worth a closer look
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network:
    """A fitted network over one-hot levels and scaled numbers, read from the pipeline that `models.fitted` returns.

    Attributes:
        levels: column -> level -> what it adds to the first layer; numbers: column -> what one unit adds.
        start: what the first layer has without these; deeper: weights and offsets of the layers behind it.
    """

    levels: dict[str, dict[str, Floats]]
    numbers: dict[str, Floats]
    start: Floats
    deeper: list[tuple[Floats, Floats]]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Network:
        """Read a pipeline."""
        columns, network = pipeline[0], pipeline[-1]
        weights, start, at = network.coefs_[0], network.intercepts_[0].copy(), 0
        (_, spread, named), (_, scaler, counted) = columns.transformers_[:2]
        levels: dict[str, dict[str, Floats]] = {}
        for column, known in zip(named, spread.categories_, strict=True):
            levels[column] = {level: weights[at + place] for place, level in enumerate(known)}
            at += len(known)
        numbers: dict[str, Floats] = {}
        for place, column in enumerate(counted):
            numbers[column] = weights[at + place] / scaler.scale_[place]
            start -= numbers[column] * scaler.mean_[place]
        deeper = list(zip(network.coefs_[1:], network.intercepts_[1:], strict=True))
        return cls(levels, numbers, start, deeper)

    def margin(self, state: State) -> Floats:
        """Return how far states (m,) are beyond the boundary, in the network's own unit; 0 and less is rejected."""
        first = self.start
        for column, of in self.levels.items():
            first = first + of[state[column]]
        open_: dict[str, Any] = {column: state[column] for column in self.numbers}
        for column, value in open_.items():
            if np.ndim(value) == 0:
                first = first + self.numbers[column] * value
        layer = np.atleast_2d(first)
        for column, value in open_.items():
            if np.ndim(value):
                layer = layer + np.ravel(value)[:, None] * self.numbers[column]
        for weights, offsets in self.deeper:
            layer = np.maximum(layer, 0) @ weights + offsets
        margin: Floats = layer[:, 0]
        return margin


@dataclass(frozen=True)
class Cheapest:
    """A plan: what it costs, the names of its actions with their values, and where it ends; infinite: there is none."""

    cost: float = np.inf
    steps: tuple[tuple[str, float], ...] = ()
    end: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Grid:
    """The grid of one row.

    Attributes:
        model: what can be done; network: what decides; x0: the row.
    """

    model: Model
    network: Network
    x0: State

    def cheapest(self) -> Cheapest:
        """Return the cheapest plan of at most two actions that the network accepts."""
        best = Cheapest()
        for names in self._orders():
            best = min(best, self._of(names, best.cost), key=lambda plan: plan.cost)
        return best

    def _orders(self) -> Iterator[tuple[str, ...]]:
        for length in (1, 2):
            yield from permutations(self.model.doings, length)

    def _of(self, names: tuple[str, ...], most: float) -> Cheapest:
        """Return the cheapest plan of these actions that is cheaper than `most`."""
        lattices, widths = zip(*(self._values(name) for name in names), strict=True)
        points = _product(lattices)
        while True:
            rough = max(widths) > 1
            cost = self._cost(names, points, MAY_SAVE * most + MAY_SAVE if rough else most)
            if not (rough and np.isfinite(cost).any()):
                break
            kept = _of_each_line(points, cost, widths)
            centres = points[kept[np.argsort(cost[kept], kind="stable")[:BEST]]]
            points = _around(centres, widths)
            widths = tuple(max(width / AROUND, 1.0) for width in widths)
        place = int(cost.argmin()) if len(cost) else 0
        if not len(cost) or not np.isfinite(cost[place]):
            return Cheapest()
        return self.follow(tuple(zip(names, points[place].tolist(), strict=True)))

    def follow(self, steps: tuple[tuple[str, float], ...]) -> Cheapest:
        """Return a plan with its cost, whether the network accepts its end or not."""
        state, total = self.x0, 0.0
        for name, value in steps:
            done = self.model.step(name, state, np.float64(value))
            if not done.valid:
                return Cheapest()
            state, total = done.state, total + float(done.cost)
        return Cheapest(total, steps, tuple(state.items()))

    def _values(self, name: str) -> tuple[Floats, float]:
        """Return values of an action that lead through the background's range, and how far they are apart."""
        doing = self.model.doings[name]
        if doing.outcome is not None:
            return np.zeros(1), 1.0
        low, high = self.model.bounds[doing.feature]
        least = 1.0 if doing.up else low - high  # the other step may have moved the feature, so that all is open
        count = int(high - low - least) + 1 if doing.up else int(2 * (high - low)) + 1
        if count <= 2 * POINTS:
            return np.arange(least, high - low + 1), 1.0
        values = np.linspace(least, high - low, 2 * POINTS)
        return values, float(values[1] - values[0])

    def _cost(self, names: tuple[str, ...], points: Floats, most: float) -> Floats:
        """Return the cost (m,) of plans with values (m, t); infinite where one is not cheaper than `most`, or none."""
        state, total, valid = self.x0, np.zeros(len(points)), np.ones(len(points), dtype=np.bool_)
        for at, name in enumerate(names):
            done = self.model.step(name, state, points[:, at])
            state, total, valid = done.state, total + done.cost, valid & done.valid
        rows = np.flatnonzero(valid & (total < most) & self.model.within(self.x0, state))
        ends = {column: value[rows] if np.ndim(value) else value for column, value in state.items()}
        cost = np.full(len(points), np.inf)
        if len(rows):
            accepted = rows[np.broadcast_to(self.network.margin(ends) > 0, rows.shape)]
            cost[accepted] = total[accepted]
        return cost


def _product(lattices: tuple[Floats, ...]) -> Floats:
    return np.stack(np.meshgrid(*lattices, indexing="ij"), axis=-1).reshape(-1, len(lattices))


def _of_each_line(points: Floats, cost: Floats, widths: tuple[float, ...]) -> NDArray[np.intp]:
    """Return the cheapest point of each value of the action whose values are complete; all points if there is none."""
    found = np.flatnonzero(np.isfinite(cost))
    complete = [at for at, width in enumerate(widths) if width <= 1]
    if not complete:
        return found
    order = found[np.argsort(cost[found], kind="stable")]
    _, first = np.unique(points[order][:, complete], axis=0, return_index=True)
    return order[first]


def _around(centres: Floats, widths: tuple[float, ...]) -> Floats:
    """Return whole points around some: each as far as the next one on either side."""
    sides = [
        np.arange(-AROUND, AROUND + 1) * (width / AROUND if width > AROUND else 1.0) if width > 1 else np.zeros(1)
        for width in widths
    ]
    return np.unique(np.round(centres[:, None] + _product(tuple(sides))[None]).reshape(-1, len(widths)), axis=0)


def rows_of(table: pd.DataFrame) -> list[State]:
    """Return the rows of a table as states."""
    return [
        {column: value if isinstance(value, str) else float(value) for column, value in row.items()}
        for row in table.to_dict("records")
    ]
