"""The tables of a comparison: measured versions side by side, and what the advice costs each group of people.

Survival is what other versions say of the counterfactuals that one version has issued.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.compare.paired import Bootstrap, changes, differences, means
from mlflow_cf.evaluation.compare.versions import LoadedVersion
from mlflow_cf.evaluation.measure.aggregates import COLUMNS, Figure
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.metrics import METRICS
from mlflow_cf.model.judge import Label, Outcome
from mlflow_cf.policy import Target
from mlflow_cf.request.request import CodedRows, Row, read_rows

Key = tuple[str, str]  # names of a version and of an explainer


@dataclass(frozen=True, eq=False)
class MeasuredExplainer:
    """What one explainer of one version has answered.

    Attributes:
        version: the version.
        explainer: name of the explainer; place: its number among those that are compared.
        table: one line per row that was measured, numbered from 0.
    """

    version: LoadedVersion
    explainer: str
    place: int
    table: pd.DataFrame

    @property
    def key(self) -> Key:
        """Names of the version and of the explainer."""
        return self.version.name, self.explainer


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Measurements of the same rows.

    Attributes:
        measured: in the order of the versions, then of the explainers.
        rows: (m, c) the rows, numbered from 0.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of all intervals.
    """

    measured: Sequence[MeasuredExplainer]
    rows: pd.DataFrame
    groups: pd.DataFrame
    bootstrap: Bootstrap

    @cached_property
    def versions(self) -> tuple[LoadedVersion, ...]:
        """The versions that were measured."""
        return tuple({one.version.name: one.version for one in self.measured}.values())

    def before(self, one: MeasuredExplainer) -> MeasuredExplainer | None:
        """Return the measurement of the version before, with the explainer at the same place."""
        at = self.versions.index(one.version)
        same = (other for other in self.measured if at and other.version is self.versions[at - 1])
        return next((other for other in same if other.place == one.place), None)

    def table(self) -> pd.DataFrame:
        """Return all measured lines: version, explainer, row, then what was measured."""
        return _stacked({one.key: one.table.rename_axis("row").reset_index() for one in self.measured})

    def differences(self) -> pd.DataFrame:
        """Return the paired differences of all metrics between neighbours."""
        found = []
        for one in self.measured:
            first = next(other for other in self.measured if other.version is one.version)
            for base in dict.fromkeys((self.before(one), None if first is one else first)):
                if base is not None:
                    compared = differences(base.table[list(METRICS)], one.table[list(METRICS)], self.bootstrap)
                    names = ("base_version", "base_explainer", "version", "explainer")
                    found.append(_labelled(compared[compared["rows"] > 0], names, (*base.key, *one.key)))
        return _joined(found)

    def burden(self) -> pd.DataFrame:
        """Return the burden of every group under every version and explainer, and how it moved."""
        return _stacked(
            {one.key: burden(one.table, self._before(one), self.groups, self.bootstrap) for one in self.measured}
        )

    def advice(self) -> pd.DataFrame:
        """Return which features the answers of every version and explainer change, and how that moved."""
        names = list(dict.fromkeys(name for version in self.versions for name in version.explained.space.names))
        return _stacked({one.key: advice(one.table, self._before(one), names, self.bootstrap) for one in self.measured})

    def survival(self) -> tuple[pd.DataFrame, list[str]]:
        """Return how the counterfactuals of every version fare under every version, and notes on who cannot judge."""
        found, notes = [], []
        for one in self.measured:
            issued = Issued.of(one.version.explained, one.table, self.rows)
            for judge in self.versions:
                try:
                    verdict = judged(issued, judge.explained, len(self.rows))
                except InputError as error:
                    notes.append(f"{judge.name} cannot judge the answers of {one.version.name}: {error.message}")
                    continue
                names = ("issued", "explainer", "judged")
                table = survival(verdict, self.groups, self.bootstrap)
                found.append(_labelled(table, names, (*one.key, judge.name)))
        return _joined(found), list(dict.fromkeys(notes))

    def survivors(self, survivals: pd.DataFrame, version: LoadedVersion) -> pd.DataFrame:
        """Return how the answers of the version before fare under a version, as figures of an evaluation."""
        figures = []
        for one in self.measured:
            before = self.before(one) if one.version is version else None
            asked = None if before is None else (*before.key, version.name)
            for line in survivals.to_dict("records"):
                if asked == (line["issued"], line["explainer"], line["judged"]):
                    values = {name: line[name] for name in ("survival", "probability_lost")}
                    figures += [
                        Figure(one.explainer, line["group"], name, value, None, line["answers"])
                        for name, value in values.items()
                        if np.isfinite(value)
                    ]
        return pd.DataFrame(figures, columns=list(COLUMNS))

    def _before(self, one: MeasuredExplainer) -> pd.DataFrame | None:
        other = self.before(one)
        return None if other is None else other.table


def _stacked(tables: Mapping[Key, pd.DataFrame]) -> pd.DataFrame:
    return _joined([_labelled(table, ("version", "explainer"), key) for key, table in tables.items()])


def _labelled(table: pd.DataFrame, names: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Return the table with columns of one value each in front."""
    facts = pd.DataFrame(dict(zip(names, values, strict=True)), index=table.index)
    return pd.concat([facts, table], axis=1)


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


# measure of the burden -> metric that it is the mean of
MEASURES: Final[Mapping[str, str]] = MappingProxyType(
    {"coverage": "coverage", "distance": "mixed", "changed_features": "n_changed", "effort": "sequence_cost"}
)
MOVED: Final = ("change", "change_low", "change_high")


def burden(
    measured: pd.DataFrame, before: pd.DataFrame | None, groups: pd.DataFrame | None, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return the burden of each group.

    Args:
        measured: (m, ..) the measured table of one version.
        before: (m, ..) that of the version before it, for the same rows.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.

    Returns:
        One line per group and measure: group, measure (coverage, distance, changed_features, and effort where plans
        exist), rows, mean, low, high, and since the version before: change, change_low, change_high.
    """
    old = None if before is None else _measures(before)
    return moved(_measures(measured), old, groups, bootstrap)


def advice(
    measured: pd.DataFrame, before: pd.DataFrame | None, features: Sequence[str], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return which features the advice leans on: the share of the nearest answers that change each of them.

    Args:
        measured, before, bootstrap: as in `burden`; features: their names.

    Returns:
        One line per feature: feature, answers, share, low, high, change, change_low, change_high.
    """
    old = None if before is None else _leanings(before, features)
    table = moved(_leanings(measured, features), old, None, bootstrap).drop(columns="group")
    return table.rename(columns={"measure": "feature", "rows": "answers", "mean": "share"})


def moved(
    values: pd.DataFrame, before: pd.DataFrame | None, groups: pd.DataFrame | None, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return the means of columns (m, k) by group, and how they moved since the measurement before."""
    table = means(values, groups, bootstrap)
    if before is None:
        table[list(MOVED)] = np.nan
        return table.reset_index(drop=True)
    since = changes(before.reindex(columns=values.columns), values, groups, bootstrap)
    return table.merge(since, on=["group", "measure"])


def _measures(measured: pd.DataFrame) -> pd.DataFrame:
    table = pd.DataFrame({name: measured[metric] for name, metric in MEASURES.items()})
    return table.drop(columns="effort") if table["effort"].isna().all() else table


def _leanings(measured: pd.DataFrame, features: Sequence[str]) -> pd.DataFrame:
    """Return (m, d) whether the nearest answer of each row changes each feature; NaN for rows without one."""
    table = pd.DataFrame(np.nan, index=measured.index, columns=list(features))
    found = measured["counterfactual"].notna()
    for name in features:
        table.loc[found, name] = [float(name in changed) for changed in measured.loc[found, "changed"]]
    return table


@dataclass(frozen=True, eq=False)
class Issued:
    """The nearest counterfactuals that a model has found for a table.

    Attributes:
        places: (k,) numbers of the rows they were found for, among m.
        table: (k, c) the rows of the table with what they change, in the columns of the table and of the model.
        target: what was promised; how sure it was to be is no part of that.
        predictions: (k,) what the model said of the rows themselves.
        probability: (k,) of the wanted outcome, as the model gave it with each counterfactual; NaN if it gave none.
    """

    places: NDArray[np.intp]
    table: pd.DataFrame
    target: Target
    predictions: tuple[Label, ...]
    probability: Floats

    @classmethod
    def of(cls, explained: ExplainedModel, measured: pd.DataFrame, rows: pd.DataFrame) -> Issued:
        """Return what was issued, according to the measured table, for `rows` (m, c); both are numbered from 0."""
        found = measured[measured["counterfactual"].notna()]
        values = explained.space.from_values([json.loads(text) for text in found["counterfactual"]])
        kept = rows.loc[found.index, [name for name in rows.columns if name not in values.columns]]
        return cls(
            found.index.to_numpy(np.intp),
            pd.concat([values.set_axis(found.index, axis=0), kept], axis=1),
            explained.policy.target.model_copy(update={"min_probability": None}),
            tuple(found["prediction"]),
            found["target_probability"].to_numpy(np.float64),
        )


def judged(issued: Issued, judge: ExplainedModel, rows: int) -> pd.DataFrame:
    """Ask another model about issued counterfactuals.

    Features that the issuing model does not know are the row's own.

    Returns:
        (rows, 2), numbered from 0: ``survival``, 1 where the model predicts what was promised, else 0; and
        ``probability_lost``, by how much less likely it finds that. NaN where nothing was issued or cannot be asked.

    Raises:
        InputError: the model can never predict what was promised, or lacks a column.
    """
    issued.target.check(judge.model)
    survived, lost = np.full((2, rows), np.nan)
    frame = judge.space.select(issued.table).reset_index(drop=True)
    answered = read_rows(judge.judge, CodedRows.of(judge.space, frame)) if len(frame) else []
    # the class of what was said of each row, where the promise was any other
    own = judge.model.codes_of(issued.predictions) if issued.target.differs else np.full(len(issued.places), -1)
    for label in np.unique(own):
        places = [at for at in np.flatnonzero(own == label) if answered[at].outcome is not None]
        outcome = _together([answered[at] for at in places])
        target = BoundTarget(issued.target, judge.model, int(label))
        likely = np.array(target.probability(outcome), dtype=np.float64)
        survived[issued.places[places]] = target.met(outcome)
        lost[issued.places[places]] = issued.probability[places] - likely
    return pd.DataFrame({"survival": survived, "probability_lost": lost})


def survival(verdict: pd.DataFrame, groups: pd.DataFrame | None, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the survival of one version's counterfactuals under another one.

    Args:
        verdict: what `judged` returns.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.

    Returns:
        One line per group: group, answers, survival (share) with low and high, probability_lost (mean) with lost_low
        and lost_high.
    """
    table = means(verdict, groups, bootstrap)
    kept, lost = (table[table["measure"] == name].reset_index(drop=True) for name in verdict.columns)
    return pd.DataFrame(
        {
            "group": kept["group"],
            "answers": kept["rows"],
            "survival": kept["mean"],
            "low": kept["low"],
            "high": kept["high"],
            "probability_lost": lost["mean"],
            "lost_low": lost["low"],
            "lost_high": lost["high"],
        }
    )


def _together(rows: Sequence[Row]) -> Outcome:
    outcomes = [row.outcome for row in rows if row.outcome is not None]
    codes = np.concatenate([np.empty(0, np.intp), *(one.codes for one in outcomes)])
    scores = [one.scores for one in outcomes if one.scores is not None]
    values = np.concatenate([np.empty(0), *(one.values for one in outcomes)])
    return Outcome(codes, np.vstack(scores) if scores else None, values)
