"""An ONNX graph, opened into a structure: node by node, from its inputs to the tensor of its scores."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pandas as pd

from mlflow_cf.features import FeatureSpace
from mlflow_cf.structures import NotOpenedError, Structure
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.onnx.graph import Node, graph_of
from mlflow_cf_flavors.onnx.inputs import Inputs
from mlflow_cf_flavors.onnx.operators import OPERATORS
from mlflow_cf_flavors.onnx.values import MISSING, TEXT, Table, Value, refused, sums_of
from mlflow_cf_flavors.sklearn.sources import raw_columns

_SECOND = ("ai.onnx.ml.LinearClassifier", "ai.onnx.ml.TreeEnsembleClassifier")  # the scores are their second output


def compile_onnx(
    source: Path | Any, inputs: Inputs, output: str, form: str, space: FeatureSpace, rows: pd.DataFrame
) -> Structure:
    """Compile a graph for the features of `space`.

    Args:
        source: the model, or its file.
        inputs: what it takes.
        output: the tensor of its scores or values; `form`: see `sums_of`.
        space, rows: see `OpenModel.compile`.

    Raises:
        NotOpenedError: an operator that is not known here, or a graph that is too large.
    """
    del rows  # the graph has all that is needed
    graph = graph_of(source)
    values = _tables(inputs, space)
    nodes = graph.before(output)
    wanted = {output, *(name for node in nodes for name in node.inputs if name)}
    for node in nodes:
        if node.operator not in OPERATORS:
            raise refused(node)
        given = [values.get(name, graph.constants.get(name)) if name else MISSING for name in node.inputs]
        known = [value for value in given if value is not None]
        if len(known) < len(given):
            raise refused(node)
        values[_output(node, wanted)] = OPERATORS[node.operator](node, known)
    if output not in values:
        raise NotOpenedError(say("onnx_no_scores"))
    return sums_of(values[output], form).compile(space)


def _tables(inputs: Inputs, space: FeatureSpace) -> dict[str, Value]:
    """Return the tables of the graph's inputs."""
    sources = raw_columns(space, [str(name) for name in inputs.columns])
    values: dict[str, Value] = {}
    for tensor, part in inputs.parts(sources):
        if tensor.dtype.itemsize == 2 and tensor.dtype.kind == "f":
            raise NotOpenedError(say("onnx_half"))
        table = Table(tuple(part), TEXT)
        values[tensor.name] = table.cast(tensor.dtype, "input")
    return values


def _output(node: Node, wanted: AbstractSet[str]) -> str:
    """Return the output of a node that is read: its first one, or the scores of a classifier.

    Raises:
        NotOpenedError: another one of its outputs is `wanted`, or there are no scores.
    """
    place = 1 if node.operator in _SECOND else 0
    others = node.outputs[:place] + node.outputs[place + 1 :]
    if len(node.outputs) <= place or not wanted.isdisjoint(others):
        raise refused(node)
    return node.outputs[place]
