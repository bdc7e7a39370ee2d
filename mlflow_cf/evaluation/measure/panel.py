"""Models and explainers that are measured on the same rows, block by block: of each block nothing is left but sums.

Blocks may lie in any number of processes; sums are put together in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.aggregates import FACTS, MEANS, Summed, figures_of, shares
from mlflow_cf.evaluation.measure.measured import Measuring, columns_of, measure_block
from mlflow_cf.evaluation.measure.moments import Moments, Quantiles, Shared, Sums, Tally
from mlflow_cf.evaluation.measure.result import Standing, ranked
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import FeatureSpace

Key = tuple[str, str]  # names of a model and of one of its explainers
SECONDS: Final = (0.5, 0.95)  # quantiles that are told
NO_FACTS: Final = pd.DataFrame({name: pd.Series(dtype="str") for name in FACTS}).astype({"answers": "int64"})


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the rows.

    Attributes:
        rows: returns them as a table (m, d) for a model's features, numbered from 0.
        groups: (m, ..) the group of each in one or more columns.
        labels: (m,) true targets, or None.
    """

    rows: Callable[[FeatureSpace], pd.DataFrame]
    groups: pd.DataFrame
    labels: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of a block.

    Attributes:
        lines: of each explainer that could do it, as `measure_block` returns them, with what labels say of them.
        failures: who could not, and why.
    """

    lines: Mapping[Key, pd.DataFrame]
    failures: Mapping[Key, str]


@dataclass(frozen=True, eq=False)
class Panel:
    """Who is measured, and by which groups.

    Attributes:
        models: by name, in the order of versions.
        explainers: of each of them, by name.
        measuring: how rows of each are measured; its `lof` is known.
        groups: (column, label) of all groups there may be.
        labelled: whether there are labels.
    """

    models: Mapping[str, ExplainedModel]
    explainers: Mapping[str, Mapping[str, ExplainerSource]]
    measuring: Mapping[str, Measuring]
    groups: Sequence[tuple[str, str]] = ()
    labelled: bool = False

    @property
    def keys(self) -> list[Key]:
        """Names of all models with each of their explainers, in order."""
        return [(model, explainer) for model in self.models for explainer in self.explainers[model]]

    @property
    def names(self) -> list[str]:
        """Names of all groups; the first one is "", all rows."""
        return ["", *(f"{column}.{label}" for column, label in self.groups)]

    def members(self, groups: pd.DataFrame) -> list[Bools]:
        """Return which of the rows (m,) are in each group."""
        texts = {str(name): column.to_numpy() for name, column in groups.items()}
        return [np.ones(len(groups), np.bool_), *(texts[column] == label for column, label in self.groups)]

    def measure(self, block: Block, without: Mapping[Key, str]) -> Measured:
        """Let every explainer explain the rows of a block, but those who failed before."""
        found: dict[Key, pd.DataFrame] = {}
        failures = dict(without)
        for name, explained in self.models.items():
            rows = block.rows(explained.space)
            beside = lines.Beside.of(rows, block.labels, {}, explained)
            for key in (key for key in self.keys if key[0] == name and key not in without):
                how = replace(self.measuring[name], explainer=self.explainers[name][key[1]])
                try:
                    found[key] = beside.joined(measure_block(explained, rows, how))
                except Exception as error:  # noqa: BLE001  whatever an explainer raises, the others go on
                    failures[key] = f"{type(error).__name__}: {error}"
        return Measured(found, failures)

    def sums(self, measured: Measured, members: Sequence[Bools]) -> Iterator[tuple[str, Sums]]:
        """Yield the sums of a measured block that evaluations are made of, by their names in a `Tally`."""
        for key, own in measured.lines.items():
            values = own[self._means(key[0])].to_numpy(np.float64)
            counted = shares(own[list(FACTS)]).to_numpy(np.float64)
            yield named("moments", *key), Moments.of(np.hstack([values, counted]), members)
            yield named("quantiles", *key), Quantiles.of(own["seconds"].to_numpy(np.float64), members)
        for name in self.models:
            keys = [key for key in self.keys if key[0] == name]
            known = {key: own["mixed"].to_numpy(np.float64) for key, own in measured.lines.items()}
            nothing = np.full(len(members[0]), np.nan)
            yield named("shared", name), Shared.of(np.column_stack([known.get(key, nothing) for key in keys]))

    def _means(self, model: str) -> list[str]:
        """Return the columns of lines of a model that are means."""
        explained = self.models[model]
        own = set(columns_of(explained))
        if self.labelled:
            own.add(lines.ABSOLUTE_ERROR if explained.model.regression else lines.CORRECT)
        return [name for name in MEANS if name in own]

    def summed(self, tally: Tally, key: Key) -> Summed:
        """Return what the figures of an explainer are made of."""
        seconds: Quantiles = tally.sums[named("quantiles", *key)]  # type: ignore[assignment]
        moments: Moments = tally.sums[named("moments", *key)]  # type: ignore[assignment]
        columns = [*self._means(key[0]), *shares(NO_FACTS).columns]
        return Summed(self.names, columns, moments, np.column_stack([seconds.at(share) for share in SECONDS]))

    def failures(self, tally: Tally) -> dict[Key, str]:
        """Return who could not do it, and why."""
        told = {key: tally.failures.get(named("failure", *key)) for key in self.keys}
        return {key: why for key, why in told.items() if why is not None}

    def whole(self, tally: Tally, model: str) -> Whole:
        """Return what is known of all rows under one model.

        Raises:
            InputError: no explainer could do it.
        """
        failures = {name: why for (own, name), why in self.failures(tally).items() if own == model}
        names = list(self.explainers[model])
        alive = [name for name in names if name not in failures]
        if not alive:
            said = "; ".join(f"{name}: {why}" for name, why in failures.items())
            raise InputError("explainers", f"none could do it ({said})", "choose others")
        summed = {name: self.summed(tally, (model, name)) for name in alive}
        shared: Shared = tally.sums[named("shared", model)]  # type: ignore[assignment]
        distances = dict(zip(names, shared.means(np.isin(names, alive)).tolist(), strict=True))
        columns = list(dict.fromkeys(column for column, _ in self.groups))
        table = pd.concat([figures_of(one, name, columns) for name, one in summed.items()], ignore_index=True)
        order = ranked({name: _standing(one, distances[name]) for name, one in summed.items()})
        rows = int(summed[alive[0]].of("rows")[0])
        return Whole(rows, table, order, failures)


@dataclass(frozen=True, eq=False)
class Whole:
    """What was measured of all rows, where those at hand are a sample of them.

    Attributes:
        rows: how many there are.
        figures: of all explainers, as `aggregates` returns them.
        ranking: the explainers, best first.
        failures: explainers that could not do it, with what they said.
    """

    rows: int
    figures: pd.DataFrame
    ranking: tuple[str, ...]
    failures: Mapping[str, str]


def named(kind: str, *names: str) -> str:
    """Return the name of sums in a `Tally`: their kind and whom they are about."""
    return "/".join([kind, *(quote(name, safe=" ") for name in names)])


def _standing(summed: Summed, distance: float) -> Standing:
    checked = [summed.of(name) for name in ("validity", "constraint_satisfaction")]
    lawful = all(count == 0 or (least == 1 and largest == 1) for count, _, least, largest in checked)
    count, coverage, _, _ = summed.of("coverage")
    return Standing(lawful, coverage if count else np.nan, distance, float(summed.seconds[0, 0]))
