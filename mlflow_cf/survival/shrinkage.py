"""Draws of a linear model, moved to where the weights of a later one are to be expected.

Draws of the rows at hand lie around the weights that these rows teach. A search for the nearest answer leans on the
weights that chance made large, and a later model has them smaller (the winner's curse): it is where draws lie that is
wrong, not how far they lie apart. What is to be expected of the weights w of all rows of the kind follows by Bayes'
rule, which no choice of an answer biases. With the weights u at hand, their variance C, which the draws show, and a
normal prior of variance t^2,

    w ~ N(0, t^2 I), u ~ N(w, C): E[w | u] = t^2 (t^2 I + C)^-1 u, and u ~ N(0, t^2 I + C) tells t,

which is how Efron and Morris (1973) shrink means, here with correlated ones: weights of columns that tell nearly the
same are known together, but not apart. All draws are moved by E[w | u] - u; how they differ stays as it is.

Sources: Efron and Morris, Stein's estimation rule and its competitors, JASA 1973; Efron, Tweedie's formula and
selection bias, JASA 2011; Ledoit and Wolf, A well-conditioned estimator for large-dimensional covariance matrices,
Journal of Multivariate Analysis 2004 (C, of fewer draws than weights).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeGuard

import numpy as np
from scipy.optimize import minimize_scalar

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import Layers, Structure
from mlflow_cf.structures.layers.merged import LinearModels

MOST_EFFECTS: Final = 2_000  # of a score: the eigenvectors of so many take 2 s; more stay as they are
LEAST_DRAWS: Final = 20  # of fewer, variances are off by half and more
LEAST_SPREAD, MOST_SPREAD = 1e-3, 10.0  # of the prior, beside the least deviation of an effect and the largest effect


class Effects(NamedTuple):
    """What the features of linear models do to their raw scores, in units that can be compared.

    Attributes:
        values: (p, k) what a standard deviation of a number adds, and each level beyond the mean of all rows.
        scale: (p,) what a unit of the raw feature is worth in these; 0: nothing is known of it.
        mean: (p,) of a number, over all rows; of a level, the share of the rows that have it.
    """

    values: Floats
    scale: Floats
    mean: Floats

    @classmethod
    def of(cls, models: LinearModels, space: FeatureSpace, codes: Floats) -> Effects:
        """Return the effects of all features, as coded rows (n, d) have them."""
        values, scale, mean = list[Floats](), list[Floats](), list[Floats]()
        for column, (feature, added) in enumerate(zip(space.features, models.added, strict=True)):
            known = codes[~np.isnan(codes[:, column]), column]
            if feature.numeric:
                spread = float(known.std()) if len(known) else 0.0
                values.append(added[:1] * spread)
                scale.append(np.array([1.0 / spread if spread > 0.0 else 0.0]))
                mean.append(np.array([known.mean() if len(known) else 0.0]))
                continue
            shares = np.bincount(known.astype(np.intp), minlength=len(added) - 2)[: len(added) - 2] / max(len(known), 1)
            values.append(added[:-2] - shares @ added[:-2])
            scale.append(np.ones(len(shares)))
            mean.append(shares)
        return cls(np.concatenate(values), np.concatenate(scale), np.concatenate(mean))


def shrinks(structure: Structure, of: int) -> TypeGuard[Layers]:
    """Whether so many models are linear in numbers and levels, few enough of them, and enough to show how they vary."""
    if not isinstance(structure, Layers) or not structure.linear:
        return False
    return len(structure.first.table) <= MOST_EFFECTS and of >= LEAST_DRAWS


def shrunk(structure: Layers, space: FeatureSpace, codes: Floats, of: int, chance: float) -> Layers:
    """Return draws of a linear model around the weights that are to be expected of it.

    The mean raw score of the rows stays as it is.

    Args:
        structure: one that `shrinks`, with as many raw scores of each model; of: their number.
        space: the features; codes: (n, d) coded rows.
        chance: the variance of a fit to all rows, as a share of that of the draws.
    """
    models = LinearModels.read(structure, space)
    effects, each = Effects.of(models, space, codes), len(models.bias) // of
    moves = np.stack([_move(effects.values[:, one::each], chance) for one in range(each)], axis=1)
    return _moved(models, space, effects, np.tile(moves, of)).structure(space)


def _move(draws: Floats, chance: float) -> Floats:
    """Return by how much (p,) effects (p, k) of k draws are moved."""
    from sklearn.covariance import ledoit_wolf  # noqa: PLC0415  half a second that no server needs

    deviation, at_hand = draws.std(axis=1, ddof=1), draws.mean(axis=1)
    move = np.zeros(len(draws))
    differ = np.flatnonzero(deviation > 0.0)
    if not len(differ):
        return move
    deviation, at_hand = deviation[differ], at_hand[differ]
    correlations, _ = ledoit_wolf(((draws[differ] - at_hand[:, None]) / deviation[:, None]).T, assume_centered=True)
    variance, vectors = np.linalg.eigh(chance * correlations * np.outer(deviation, deviation))
    variance, along = np.maximum(variance, 0.0), vectors.T @ at_hand
    prior = _prior(variance, along, float(deviation.min()), float(np.abs(at_hand).max()))
    move[differ] = vectors @ (along * prior / (prior + variance)) - at_hand
    return move


def _prior(variance: Floats, along: Floats, least: float, most: float) -> float:
    """Return the variance of the prior under which effects `along` (p,) axes of that `variance` (p,) are likeliest."""

    def unlikely(log_spread: float) -> float:
        whole = np.exp(2.0 * log_spread) + variance
        return float((np.log(whole) + along**2 / whole).sum())

    low, high = np.log(LEAST_SPREAD * least), np.log(MOST_SPREAD * max(most, least))
    return float(np.exp(2.0 * minimize_scalar(unlikely, bounds=(low, high), method="bounded").x))


def _moved(models: LinearModels, space: FeatureSpace, effects: Effects, moves: Floats) -> LinearModels:
    """Return the models with effects that are moved by (p, k); what unseen levels and missing values add is not."""
    added, bias, at = list[Floats](), models.bias.copy(), 0
    for feature, before in zip(space.features, models.added, strict=True):
        count = 1 if feature.numeric else len(before) - 2
        part, mean = slice(at, at + count), effects.mean[at : at + count]
        move, rows = moves[part] * effects.scale[part, None], before.copy()
        if feature.numeric:
            rows += move * np.array([[1.0], [mean[0]]])  # a missing value stays where it was beside the others
            bias -= move[0] * mean[0]
        else:
            rows[:-2] += move - mean @ move
        added.append(rows)
        at += count
    return LinearModels(tuple(added), bias, models.link)
