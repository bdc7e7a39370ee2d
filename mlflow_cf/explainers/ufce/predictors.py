"""What UFCE learns from the background once, as arrays: mutual information, vectors and predictors (UFCE section 2).

A predictor is one linear model a feature, which predicts it from all others (UFCE sections 4 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.explainer import Facts, Learned, Learning, known_labels
from mlflow_cf.features import UNIT_MISMATCH, Embedding, Feature, FeatureSpace, Floats
from mlflow_cf.metrics.outliers import Inliers
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.quiet import quietly
from mlflow_cf.search.snapping import Snapping
from mlflow_cf.stepwise import Steps
from mlflow_cf.unlogged import unlogged

MOST_ROWS: Final = 5_000  # of a regression of levels
MOST_CELLS: Final = 2**18  # of its rows by coordinates: an iteration takes 1 ms
MOST_ITERATIONS: Final = 100  # on standardised rows it ends after 20 to 60
AT_ONCE: Final = 512  # rows multiplied together: 30 ms with 400 coordinates
RIDGE: Final = 1e-9  # of coordinates whose deviation is 1, or that are levels
NEVER: Final = -1e300  # what stands for the logit of a level that was not seen


def fit_predictors(embedding: Embedding, background: Floats) -> Steps[tuple[Floats, Floats]]:
    """Return weights (width, width) and intercepts (width,) that predict every coordinate of a row's vector.

    The coordinates of the feature itself have weight 0. A number's are those of a linear regression on all rows
    without missing values, or on all rows where none is without; of levels they are the logits of a logistic one, on
    those of these rows that have one. A column that is always missing predicts nothing.
    """
    varying = [not feature.constant for feature in embedding.space.features]
    whole = ~embedding.filled(background)[:, varying].any(axis=1)
    rows = background[whole] if whole.any() else background
    V = embedding.vectors(rows)
    weights, intercepts = yield from _lines(embedding, V)
    picked = np.linspace(0, len(V) - 1, min(len(V), MOST_ROWS, MOST_CELLS // V.shape[1])).round().astype(np.intp)
    for column, feature in enumerate(embedding.space.features):
        block = embedding.blocks[column]
        if feature.has_order and not feature.constant:
            continue
        weights[:, block], intercepts[block] = 0.0, 0.0
        others = np.delete(np.arange(embedding.width), np.arange(block.start, block.stop))
        known = picked[~np.isnan(rows[picked, column])]
        if not feature.constant and len(others) and len(known):
            found = _logits(V[np.ix_(known, others)], rows[known, column], block.stop - block.start)
            weights[others, block], intercepts[block] = found
            yield
    return weights, intercepts


def _lines(embedding: Embedding, V: Floats) -> Steps[tuple[Floats, Floats]]:
    """Return the weights and intercepts of least squares for every coordinate from those of all other features.

    Of coordinates that tell the same, all share the weight; so little a ridge does that and nothing else. All follow
    from one inverse: what predicts a coordinate from all others is its column, divided by minus its own entry.
    """
    centre, products = V.mean(axis=0), np.zeros((embedding.width, embedding.width))
    for start in range(0, len(V), AT_ONCE):
        away = V[start : start + AT_ONCE] - centre
        products += away.T @ away / len(V)
        yield
    inverse = np.linalg.inv(products + RIDGE * np.eye(embedding.width))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return weights, centre - centre @ weights


def _logits(V: Floats, told: Floats, width: int) -> tuple[Floats, Floats]:
    """Return the weights (k, width) and intercepts (width,) of the levels; a boolean has one coordinate, its odds."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    levels = np.unique(told).astype(np.intp)
    weights, intercepts = np.zeros((V.shape[1], width)), np.full(width, NEVER)
    if len(levels) == 1:
        intercepts[:] = np.where(np.arange(width) == levels[0], 0.0, NEVER) if width > 1 else -NEVER * (levels[0] - 0.5)
        return weights, intercepts
    with quietly(UserWarning):  # near enough to the optimum to propose a level, of however many
        model = unlogged(LogisticRegression(max_iter=MOST_ITERATIONS).fit, V, told)
    if width == 1:
        return model.coef_.T, model.intercept_
    if len(levels) == 2:  # the odds of the second
        weights[:, levels[1]], intercepts[levels] = model.coef_[0], [0.0, float(model.intercept_[0])]
        return weights, intercepts
    weights[:, levels], intercepts[levels] = model.coef_.T, model.intercept_
    return weights, intercepts


@dataclass(frozen=True, eq=False)
class Predictors:
    """What the models say of candidates of one problem.

    Attributes:
        problem: the row to explain and what it may become.
        embedding: how rows become vectors, over the features of the problem.
        weights, intercepts: (width, width) and (width,); see `fit_predictors`.
        ends: (2, G) lowest and highest code that each group of one number may take.
    """

    problem: Problem
    embedding: Embedding
    weights: Floats
    intercepts: Floats
    ends: Floats
    _effects: dict[tuple[int, int], Floats] = field(default_factory=dict)
    _differences: dict[int, tuple[Codes, Floats]] = field(default_factory=dict)

    def predicted(self, codes: Codes, number: int) -> tuple[Codes, np.ndarray]:
        """Return the codes (m,) that candidates (m, G) should have in one group, and whether it may take them.

        A number is moved to the nearest admissible value, which is refused if it is beyond the ends; of levels the
        most probable admissible one counts.
        """
        group = self.problem.groups[number]
        wanted = np.empty((len(group.columns), len(codes)))
        for place, column in enumerate(group.columns):
            feature = self.problem.space.features[column]
            told = self._told(codes, column)
            if feature.has_order:
                wanted[place] = told[:, 0] * self.embedding.scale[column] + self.embedding.centre[column]
            else:
                wanted[place] = self._level(feature, column, number, told)
        found = self._snapping.nearest(number).codes(wanted)
        low, high = self.ends[:, number]
        return found, ~((group.actions[found, 0] < low) | (group.actions[found, 0] > high))  # no ends: NaN

    def _told(self, codes: Codes, column: int) -> Floats:
        """Return the coordinates (m, k) of one feature as predicted from the other groups of candidates (m, G)."""
        block, owner = self.embedding.blocks[column], int(self.problem.owner[column])
        total = np.tile(self._base[block], (len(codes), 1))
        changed = codes != self.problem.own
        for number in np.flatnonzero(changed.any(axis=0)).tolist():
            if number != owner:
                rows = np.flatnonzero(changed[:, number])
                if (number, column) not in self._effects:  # by how much each tuple (t, k) changes what is predicted
                    at, differ = self._differ(number)
                    self._effects[number, column] = differ @ self.weights[at, block]
                total[rows] += self._effects[number, column][codes[rows, number]]
        return total

    def _level(self, feature: Feature, column: int, number: int, told: Floats) -> Floats:
        """Return the codes (m,) of the most probable levels that some admissible tuple has."""
        group = self.problem.groups[number]
        some = group.actions[group.admissible, group.columns.index(column)]
        levels = np.unique(some[some < len(feature.levels)]).astype(np.intp)
        if not len(levels):
            return np.full(len(told), np.nan)
        logits = np.column_stack([np.zeros(len(told)), told[:, 0]]) if feature.kind == "boolean" else told
        likeliest: Floats = levels[logits[:, levels].argmax(axis=1)].astype(np.float64)
        return likeliest

    @cached_property
    def _base(self) -> Floats:
        """(width,) what is predicted of the row to explain."""
        base: Floats = self._vector @ self.weights + self.intercepts
        return base

    def _differ(self, number: int) -> tuple[Codes, Floats]:
        """Return the coordinates (k,) of a group, and what each tuple (t, k) adds to those of the row to explain."""
        if number in self._differences:
            return self._differences[number]
        problem, embedding, group = self.problem, self.embedding, self.problem.groups[number]
        own = self._vector
        at = np.concatenate([np.arange(embedding.width)[embedding.blocks[column]] for column in group.columns])
        if len(group.columns) == 1 and problem.space.features[group.columns[0]].has_order:
            (column,) = group.columns
            held = group.actions[:, 0]
            held = np.where(np.isnan(held) | (held >= problem.space.features[column].unknown_from), np.nan, held)
            scale = embedding.scale[column]
            vectors = (held - embedding.centre[column]) / scale if scale > 0 else np.zeros(len(held))
            fill = (embedding.fill[column] - embedding.centre[column]) / scale if scale > 0 else 0.0
            differ = np.where(np.isnan(vectors), fill, vectors)[:, None] - own[at]
        else:
            rows = np.tile(problem.x0, (len(group.actions), 1))
            rows[:, group.columns] = group.actions
            differ = embedding.vectors(rows)[:, at] - own[at]
        self._differences[number] = at, differ
        return at, differ

    @cached_property
    def _vector(self) -> Floats:
        vector: Floats = self.embedding.vectors(self.problem.x0[None])[0]
        return vector

    @cached_property
    def _snapping(self) -> Snapping:
        return Snapping(self.problem)


INLIERS: Final = "inliers_"
EMBEDDING: Final = "embedding_"
Arrays = Mapping[str, NDArray[Any]]


def learn_all(facts: Facts) -> Learning:
    """Learn mutual information, predictors, the rows as vectors with their labels, and the local outlier factor.

    Raises:
        InputError: fewer than two background rows.
    """
    inliers = yield from Inliers.fitted(facts.space, facts.background)
    embedding = Embedding.fit(facts.space, facts.background, scale="deviation", level_weight=UNIT_MISMATCH)
    weights, intercepts = yield from fit_predictors(embedding, facts.background)
    mutual = yield from mutual_information(facts.space, facts.background, facts.seed)
    return Learned(
        {
            "mutual": mutual,
            "weights": weights,
            "intercepts": intercepts,
            "vectors": embedding.vectors(facts.background),
            "labels": known_labels(facts),
            **{EMBEDDING + name: array for name, array in embedding.to_arrays().items()},
            **{INLIERS + name: array for name, array in inliers.to_arrays().items()},
        }
    )


@dataclass(frozen=True, eq=False)
class Known:
    """What was learned.

    Attributes:
        mutual: (d, d) mutual information of the features.
        weights, intercepts: what predicts each coordinate of a row's vector; see `fit_predictors`.
        vectors: (n, width) the background rows; labels: (n,) see `known_labels`.
        embedding, inliers: the arrays of both, for `from_arrays` over features that may know more levels.
    """

    mutual: Floats
    weights: Floats
    intercepts: Floats
    vectors: Floats
    labels: Floats
    embedding: Arrays
    inliers: Arrays

    @classmethod
    def of(cls, learned: Learned) -> Known:
        """Read what `learn_all` wrote.

        Raises:
            KeyError, ValueError: something is missing, or does not go together.
        """
        arrays = learned.arrays
        embedding, inliers = (
            {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            for prefix in (EMBEDDING, INLIERS)
        )
        known = cls(
            **{name: arrays[name] for name in ("mutual", "weights", "intercepts", "vectors", "labels")},
            embedding=embedding,
            inliers=inliers,
        )
        d, width = len(embedding["centre"]), len(known.intercepts)
        shapes = {"mutual": (d, d), "weights": (width, width), "vectors": (len(known.labels), width)}
        if any(arrays[name].shape != shape for name, shape in shapes.items()) or not len(inliers["points"]):
            raise ValueError("what UFCE did not learn")
        return known


NEIGHBOURS: Final = 3  # of the estimators for numbers
MOST_SAMPLED: Final = 5_000
FEWEST_ROWS: Final = 500
MOST_WORK: Final = 400_000  # rows of all pairs together: 2 s, however many features there are
ROWS_AT_ONCE: Final = 4_000  # of these: 20 ms
PARTS: Final = 8  # of a number's values, about equally many rows in each, where too many pairs wait to be estimated


def mutual_information(space: FeatureSpace, background: Floats, seed: int) -> Steps[Floats]:
    """Return the mutual information (d, d) of every two features over coded background rows (n, d), in nats.

    Between numbers, and between a number and levels, it is estimated by nearest neighbours (Kraskov 2004, Ross
    2014); levels are counted. A missing value counts as the median or the most frequent level; what never varies
    tells nothing, and levels of which none occurs twice tell nothing of numbers. The diagonal is 0. Where there are
    more than 800 pairs only those are estimated that tell most of each other with numbers counted in eight parts;
    the others come after all of these, in the order of what they tell so, with negative figures.
    """
    d = len(space)
    least = np.clip(MOST_WORK // max(d * (d - 1) // 2, 1), FEWEST_ROWS, MOST_SAMPLED)
    picked = np.linspace(0, len(background) - 1, min(len(background), int(least))).round().astype(np.intp)
    rows = background[picked]
    embedding = Embedding.fit(space, rows, scale="deviation")
    rows = np.where(embedding.filled(rows), embedding.fill, rows)
    varied = np.ptp(rows, axis=0) > 0 if len(rows) else np.zeros(d, dtype=np.bool_)
    asked, known = np.triu(varied & varied[:, None], 1), np.zeros((d, d))
    most = MOST_WORK // FEWEST_ROWS
    if asked.sum() > most:
        told = np.triu((yield from _by_parts(space, rows)), 1)
        bar = np.partition(told[asked], -most)[-most]
        known = np.where(asked & (told < bar), told - bar, 0.0)
        asked &= told >= bar
    for second in np.flatnonzero(asked.any(axis=0) | asked.any(axis=1)).tolist():
        yield from _fill(known, second, rows, (space.features, asked, seed))
    return np.where(known == 0, known.T, known)


def _by_parts(space: FeatureSpace, rows: Floats) -> Steps[Floats]:
    """Return the mutual information (d, d) of every two features whose numbers are counted in parts."""
    inside, owner = [], []
    for column, feature in enumerate(space.features):
        codes = rows[:, column]
        if feature.has_order:
            codes = np.searchsorted(np.quantile(codes, np.arange(1, PARTS) / PARTS), codes).astype(np.float64)
        member = codes[:, None] == np.unique(codes)
        inside.append(member)
        owner += [column] * member.shape[1]
    members, starts = np.concatenate(inside, axis=1).astype(np.float64), np.flatnonzero(np.diff(owner, prepend=-1))
    shares = members.mean(axis=0)
    told = np.zeros((len(space), len(space)))
    for column, member in enumerate(inside):
        joint = member.astype(np.float64).T @ members / len(rows)
        apart = shares[starts[column] : starts[column] + member.shape[1], None] * shares
        terms = np.where(joint > 0, joint * np.log(np.where(joint > 0, joint, 1.0) / apart), 0.0).sum(axis=0)
        told[column] = np.add.reduceat(terms, starts)
        yield
    return told


def _fill(known: Floats, second: int, rows: Floats, facts: tuple[tuple[Feature, ...], Bools, int]) -> Steps[None]:
    """Write what one feature and those before it tell of each other; of mixed pairs all that it is the level of."""
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression  # noqa: PLC0415  as below

    features, asked, seed = facts
    feature = features[second]
    others = np.flatnonzero(asked[:, second] | asked[second]).tolist()
    numbers = [at for at in others if features[at].has_order and (at < second or not feature.has_order)]
    if not feature.has_order and len(np.unique(rows[:, second])) == len(rows):
        numbers = []
    size = max(1, ROWS_AT_ONCE // max(len(rows), 1))
    for start in range(0, len(numbers) if len(rows) > NEIGHBOURS + 1 else 0, size):
        estimate = mutual_info_regression if feature.has_order else mutual_info_classif
        part = numbers[start : start + size]
        how = {"discrete_features": False, "n_neighbors": NEIGHBOURS, "random_state": seed % 2**32}
        with quietly(UserWarning):  # scikit-learn doubts whether many levels are levels
            known[part, second] = unlogged(partial(estimate, **how), rows[:, part], rows[:, second])
        yield
    if not feature.has_order:
        for at in others:
            if at < second and not features[at].has_order:
                known[at, second] = counted(rows[:, at], rows[:, second])
        yield


def counted(a: Floats, b: Floats) -> float:
    """Return the mutual information of two lists of levels (n,), in nats: H(a) + H(b) - H(a, b)."""
    return _entropy(a[:, None]) + _entropy(b[:, None]) - _entropy(np.column_stack([a, b]))


def _entropy(values: Floats) -> float:
    _, counts = np.unique(values, axis=0, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
