"""Several ensembles of trees as one whose raw scores stand side by side, over cells that all of them share.

One walk then scores, sweeps and bounds all models, and a row is encoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.trees import (
    CUT,
    FEATURE,
    LEFT,
    MISSING_LEFT,
    TEST,
    Features,
    Nodes,
    Trees,
    bits_of,
    flags_of,
    walk_of,
)
from mlflow_cf.structures.trees.cells import Lookup, Table
from mlflow_cf.structures.trees.ensemble import TreeEnsemble

Tests = NDArray[np.int32]


def merged_trees(ensembles: Sequence[TreeEnsemble]) -> TreeEnsemble:
    """Return ensembles over the same features, with the same link, as one; its trees stand in their order."""
    parts = [_one_output(ensemble.trees) for ensemble in ensembles]
    outputs, starts = _starts([len(part.base) for part in parts]), _starts([len(part.nodes.tests) for part in parts])
    tests = np.concatenate([part.nodes.tests for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part.nodes.tests) for part in parts])
    tests[:, LEFT] += starts[owner].astype(np.int32)
    ordered = np.logical_and.reduce([part.features.ordered for part in parts])
    lookups, tables = [], [np.zeros((1, 1), dtype=np.bool_)]
    for feature in range(len(ordered)):
        lookup, table = _shared(
            ensembles, tests, owner, feature, ordered=bool(ordered[feature]), at=sum(map(len, tables))
        )
        lookups.append(lookup)
        tables.append(table)
    nodes = Nodes(
        roots=np.concatenate([part.nodes.roots + start for part, start in zip(parts, starts, strict=True)]),
        outputs=np.concatenate([part.nodes.outputs + start for part, start in zip(parts, outputs, strict=True)]),
        tests=tests,
        value=np.concatenate([part.nodes.value for part in parts]),
    )
    nodes = nodes._replace(roots=nodes.roots.astype(np.int32), outputs=nodes.outputs.astype(np.int32))
    features = Features(_starts([lookup.size for lookup in lookups], whole=True), ordered, bits_of(_wide(tables)))
    base, deepest = np.concatenate([part.base for part in parts]), max(part.deepest for part in parts)
    trees = Trees(nodes, features, walk_of(nodes, features), base, deepest)
    steady = all(ensemble.steady for ensemble in ensembles)
    return replace(ensembles[0], lookups=tuple(lookups), trees=trees, steady=steady)


def _starts(sizes: Sequence[int], *, whole: bool = False) -> NDArray[np.int64]:
    """Return where each of several parts begins, and where the last ends if the `whole` is wanted."""
    ends = np.cumsum([0, *sizes])
    return ends if whole else ends[:-1]


def _wide(tables: Sequence[Table]) -> Table:
    """Return tables of which cells go left one below the other, padded to the same number of cells."""
    most = max(table.shape[1] for table in tables)
    return np.concatenate([np.pad(table, ((0, 0), (0, most - table.shape[1]))) for table in tables])


def _one_output(trees: Trees) -> Trees:
    """Return trees that add to one output each: those with a value per output stand there once for each."""
    count, nodes = len(trees.base), trees.nodes
    if not (nodes.outputs < 0).any():
        return trees._replace(nodes=nodes._replace(tests=nodes.tests.copy()))
    tests = np.tile(nodes.tests, (count, 1))
    shift = np.repeat(np.arange(count) * len(nodes.tests), len(nodes.tests))
    tests[:, LEFT] += shift.astype(np.int32)
    roots = np.concatenate([nodes.roots + at * len(nodes.tests) for at in range(count)])
    value = np.concatenate([nodes.value[:, [at]] for at in range(count)])
    outputs = np.repeat(np.arange(count), len(nodes.roots))
    return trees._replace(nodes=Nodes(roots.astype(np.int32), outputs.astype(np.int32), tests, value))


def _shared(
    ensembles: Sequence[TreeEnsemble], tests: Tests, owner: NDArray[np.intp], feature: int, *, ordered: bool, at: int
) -> tuple[Lookup, Table]:
    """Return the cells of one feature that all ensembles share, and the tests that are tables; rewrite its `tests`.

    Missing values have a cell of their own: ensembles may impute different numbers. Tables get the rows from `at` on.
    """
    lookups = [ensemble.lookups[feature] for ensemble in ensembles]
    cuts = np.unique(np.concatenate([lookup.cuts for lookup in lookups]))
    tables: list[Table] = [np.zeros((0, len(cuts) + 1), dtype=np.bool_)]
    for number, (ensemble, lookup) in enumerate(zip(ensembles, lookups, strict=True)):
        mine = np.flatnonzero((owner == number) & (tests[:, FEATURE] == feature))
        if not len(mine):
            continue
        if not ordered:
            table, rows = _table(ensemble, lookup, tests[mine], cuts, feature)
            tests[mine, TEST] = at + sum(map(len, tables)) + rows
            tables.append(table)
            continue
        if lookup.missing < lookup.size - 1:  # imputed: it goes where its number goes
            tests[mine, MISSING_LEFT] = lookup.missing <= tests[mine, CUT]
        tests[mine, CUT] = cuts.searchsorted(lookup.cuts[tests[mine, CUT]])
    return Lookup.of(cuts), np.concatenate(tables)


def _table(
    ensemble: TreeEnsemble, lookup: Lookup, tests: Tests, cuts: Floats, feature: int
) -> tuple[Table, NDArray[np.intp]]:
    """Return the distinct tests of a feature over shared cells (tests, cells), and the row of each node's test."""
    old = np.append(lookup.place[lookup.cuts.searchsorted(cuts)], lookup.missing)  # the cell that a shared one lies in
    if not ensemble.trees.features.ordered[feature]:
        used, rows = np.unique(tests[:, TEST], return_inverse=True)
        return flags_of(ensemble.trees.features.bits)[used][:, old], rows
    used, rows = np.unique(tests[:, [CUT, MISSING_LEFT]], axis=0, return_inverse=True)
    table = old <= used[:, :1]
    if lookup.missing == lookup.size - 1:
        table[:, -1] = used[:, 1] != 0
    return table, rows.ravel()
