"""What UFCE learns from the background once, as arrays: mutual information, predictors, vectors (UFCE section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.explainers.learned import Facts, Learned, Learning, known_labels
from mlflow_cf.explainers.ufce.predictors import fit_predictors
from mlflow_cf.features import UNIT_MISMATCH, Embedding, Feature, FeatureSpace, Floats
from mlflow_cf.metrics.outliers import Inliers
from mlflow_cf.stepwise import Steps

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
        embedding, inliers = _under(EMBEDDING, arrays), _under(INLIERS, arrays)
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


def _under(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


NEIGHBOURS: Final = 3  # of the estimators for numbers
MOST_ROWS: Final = 5_000
FEWEST_ROWS: Final = 500
MOST_WORK: Final = 400_000  # rows of all pairs together: 2 s, however many features there are
AT_ONCE: Final = 4_000  # of these: 20 ms
PARTS: Final = 8  # of a number's values, about equally many rows in each, where too many pairs wait to be estimated


def mutual_information(space: FeatureSpace, background: Floats, seed: int) -> Steps[Floats]:
    """Return the mutual information (d, d) of every two features over coded background rows (n, d), in nats.

    Between numbers, and between a number and levels, it is estimated by nearest neighbours (Kraskov 2004, Ross 2014);
    levels are counted. A missing value counts as the median or the most frequent level; what never varies tells
    nothing. The diagonal is 0. Where there are more than 800 pairs only those are estimated that tell most of each
    other with numbers counted in eight parts; the others come after all of these, in the order of what they tell so,
    with negative figures.
    """
    d = len(space)
    least = np.clip(MOST_WORK // max(d * (d - 1) // 2, 1), FEWEST_ROWS, MOST_ROWS)
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
    size = max(1, AT_ONCE // max(len(rows), 1))
    for start in range(0, len(numbers) if len(rows) > NEIGHBOURS + 1 else 0, size):
        estimate = mutual_info_regression if feature.has_order else mutual_info_classif
        part = numbers[start : start + size]
        known[part, second] = estimate(
            rows[:, part],
            rows[:, second],
            discrete_features=False,
            n_neighbors=NEIGHBOURS,
            random_state=seed % 2**32,
        )
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
