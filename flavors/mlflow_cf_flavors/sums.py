"""Models before they are compiled: with additive raw scores, and combinations of several.

A linear combination of additive raw scores can be one model of trees, or of layers. Any other combination keeps its
models apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from scipy.special import expit

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures import (
    Activation,
    Column,
    Combination,
    Combined,
    Forest,
    Increasing,
    Layers,
    Link,
    Structure,
    TreeEnsemble,
    WeightedScores,
)

ROUNDING: Final = 1e-9  # of the sum of shares


@dataclass(frozen=True, eq=False)
class TreeModel:
    """A forest and the encoded columns that its nodes test."""

    columns: Sequence[Column]
    forest: Forest

    @property
    def link(self) -> Link:
        """How raw scores become scores."""
        return self.forest.link

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return len(self.forest.base)

    def compile(self, space: FeatureSpace) -> TreeEnsemble:
        """Return the structure for the features of `space`."""
        return TreeEnsemble.compile(_halved(self.forest), self.columns, space)


def _halved(forest: Forest) -> Forest:
    """Return a forest of shares of two classes with the second share alone; the first is one minus it."""
    if forest.link != "identity" or forest.outputs[0] >= 0 or forest.value.shape[1] != 2:
        return forest
    leaves = forest.column < 0
    both = forest.value.sum(axis=1)[leaves]
    tree = np.searchsorted(forest.roots, np.flatnonzero(leaves), side="right") - 1
    first = both[np.searchsorted(tree, np.arange(len(forest.roots)))]  # of every tree
    if np.abs(both - first[tree]).max() > ROUNDING or abs(first.sum() + forest.base.sum() - 1.0) > ROUNDING:
        return forest
    return replace(forest, value=np.ascontiguousarray(forest.value[:, 1:]), base=forest.base[1:], link="share")


@dataclass(frozen=True, eq=False)
class DenseModel:
    """A linear model or a network.

    Attributes:
        columns: what its first layer takes.
        weights, biases: of all layers, (inputs, outputs) and (outputs,).
        activation: between layers; link: turns raw scores, the last layer, into scores.
    """

    columns: Sequence[Column]
    weights: Sequence[Floats]
    biases: Sequence[Floats]
    activation: Activation
    link: Link

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return len(self.biases[-1])

    def compile(self, space: FeatureSpace) -> Layers:
        """Return the structure for the features of `space`."""
        return Layers.compile(self.columns, space, self.weights, self.biases, self.activation, self.link)


@dataclass(frozen=True, eq=False)
class MadeOf:
    """One model whose raw scores another combines.

    Attributes:
        name: what combines them, for `describe()`.
        model: the model inside.
        how: what makes raw scores of its own; link: turns the result into scores.
    """

    name: str
    model: Sums
    how: Combination
    link: Link = "identity"

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return self.how.outputs

    def compile(self, space: FeatureSpace) -> Combined:
        """Return the structure for the features of `space`."""
        return Combined.of(self.name, [self.model.compile(space)], len(space), self.how, self.link)


EXP: Final = Increasing("exp", np.exp)
EXPIT: Final = Increasing("expit", expit)


def made(model: Sums, function: Increasing | None) -> Sums:
    """Return a regressor whose values are a `function` of the raw scores of `model`, or these themselves."""
    return model if function is None else MadeOf(function.name, model, function)


@dataclass(frozen=True, eq=False)
class MixedModel:
    """Models whose scores, times weights, are added up.

    Attributes:
        name: what adds them up, for `describe()`.
        terms: the models, and the weights (scores, k) of their scores; a regressor has one score.
        bias: (k,) added to the sum; link: turns the result into scores.
    """

    name: str
    terms: Sequence[Term]
    bias: Floats
    link: Link

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return len(self.bias)

    def compile(self, space: FeatureSpace) -> Combined:
        """Return the structure for the features of `space`."""
        structures: list[Structure] = [term.model.compile(space) for term in self.terms]
        weights, bias = [], self.bias.astype(np.float64)
        for structure, (_, matrix) in zip(structures, self.terms, strict=True):
            if structure.outputs == 1 and len(matrix) == 2:  # the first score is one minus the second
                bias = bias + matrix[0]
                weights.append(matrix[1:] - matrix[:1])
            else:
                weights.append(matrix)
        links = tuple(structure.link for structure in structures)
        counts = tuple(structure.outputs for structure in structures)
        how = WeightedScores(links, counts, np.concatenate(weights), bias)
        return Combined.of(self.name, structures, len(space), how, self.link)


Sums = TreeModel | DenseModel | MixedModel | MadeOf


class Term(NamedTuple):
    """The raw scores of one model times a `matrix` (its raw scores, new raw scores)."""

    model: Sums
    matrix: Floats


def scores_of(model: Sums) -> int:
    """Return how many scores a model has: one raw score with a link stands for two classes."""
    return 2 if model.outputs == 1 and model.link != "identity" else model.outputs


def unlinked(model: Sums) -> Sums:
    """Return a model whose scores are its raw scores."""
    if isinstance(model, TreeModel):
        return replace(model, forest=replace(model.forest, link="identity"))
    return replace(model, link="identity")


def added(terms: Sequence[Term], offset: Floats, link: Link) -> Sums:
    """Return a model whose raw scores (k,) are the sum of `terms` and `offset` (k,), turned into scores by `link`.

    Trees and layers together, several networks, and trees with different comparisons stay apart.
    """
    one = _as_one(terms, offset, link)
    return one or MixedModel("sum", [Term(unlinked(model), matrix) for model, matrix in terms], offset, link)


def _as_one(terms: Sequence[Term], offset: Floats, link: Link) -> TreeModel | DenseModel | None:
    trees = [
        TreeModel(model.columns, _times(model.forest, matrix))
        for model, matrix in terms
        if isinstance(model, TreeModel)
    ]
    dense = [_last_times(model, matrix) for model, matrix in terms if isinstance(model, DenseModel)]
    if len(trees) < len(terms) and len(dense) < len(terms):
        return None
    return _one_forest(trees, offset, link) if trees else _one_layer(dense, offset, link)


def _times(forest: Forest, matrix: Floats) -> Forest:
    """Return a forest with its raw scores times `matrix`; every leaf holds a value per new raw score."""
    sizes = np.diff([*forest.roots.tolist(), len(forest.column)])
    every = forest.outputs[0] < 0
    value = forest.value @ matrix if every else forest.value * matrix[np.repeat(forest.outputs, sizes)]
    return replace(forest, value=value, base=forest.base @ matrix, outputs=np.full_like(forest.outputs, -1))


def _last_times(model: DenseModel, matrix: Floats) -> DenseModel:
    weights, biases = [*model.weights[:-1], model.weights[-1] @ matrix], [*model.biases[:-1], model.biases[-1] @ matrix]
    return replace(model, weights=weights, biases=biases)


def _one_forest(trees: Sequence[TreeModel], offset: Floats, link: Link) -> TreeModel | None:
    forests = [part.forest for part in trees]
    first = forests[0]
    if len(forests) > 1 and any(forest.subsets is not None or forest.rule != first.rule for forest in forests):
        return None
    columns, places = _columns([part.columns for part in trees])
    starts = np.cumsum([0, *(len(forest.column) for forest in forests)])[:-1]
    tested = [np.where(f.column >= 0, place[f.column], -1) for f, place in zip(forests, places, strict=True)]
    joined = replace(
        first,
        roots=_shifted([forest.roots for forest in forests], starts),
        outputs=np.concatenate([forest.outputs for forest in forests]),
        column=np.concatenate(tested).astype(np.int32),
        threshold=np.concatenate([forest.threshold for forest in forests]),
        missing_left=np.concatenate([forest.missing_left for forest in forests]),
        left=_shifted([forest.left for forest in forests], starts),
        right=_shifted([forest.right for forest in forests], starts),
        value=np.ascontiguousarray(np.concatenate([forest.value for forest in forests])),
        base=np.sum([forest.base for forest in forests], axis=0) + offset,
        link=link,
        steady=all(forest.steady for forest in forests),
    )
    return TreeModel(columns, joined)


def _shifted(nodes: Sequence[np.ndarray[tuple[int], np.dtype[np.int32]]], starts: Floats) -> np.ndarray:
    """Return node numbers of concatenated forests, which start at `starts`."""
    return np.concatenate([some + start for some, start in zip(nodes, starts, strict=True)]).astype(np.int32)


def _one_layer(models: Sequence[DenseModel], offset: Floats, link: Link) -> DenseModel | None:
    if len(models) == 1:
        one = models[0]
        return replace(one, biases=[*one.biases[:-1], one.biases[-1] + offset], link=link)
    if any(len(model.weights) > 1 for model in models):
        return None
    columns, places = _columns([model.columns for model in models])
    weights = np.zeros((len(columns), len(offset)))
    for model, place in zip(models, places, strict=True):
        np.add.at(weights, place, model.weights[0])
    bias = np.sum([model.biases[0] for model in models], axis=0) + offset
    return DenseModel(columns, [weights], [bias], "identity", link)


def _columns(of_models: Sequence[Sequence[Column]]) -> tuple[list[Column], list[np.ndarray]]:
    """Return the distinct columns of all models, and per model the positions of its own."""
    every = {id(column): column for columns in of_models for column in columns}
    position = {key: place for place, key in enumerate(every)}
    places = [np.array([position[id(column)] for column in columns], dtype=np.intp) for columns in of_models]
    return list(every.values()), places
