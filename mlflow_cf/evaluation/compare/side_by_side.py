"""The tables of a comparison: measured versions side by side, and what the advice costs each group of people.

Survival is what other versions say of the counterfactuals that one version has issued. How sure means over the same
rows are is told by a bootstrap that draws rows once for everything compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.aggregates import Figure, figures_table
from mlflow_cf.evaluation.measure.lines import members_of
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.metrics import METRICS
from mlflow_cf.model.judge import Label
from mlflow_cf.policy import Target
from mlflow_cf.policy.survival import share_held
from mlflow_cf.proof.verify import joined_outcomes
from mlflow_cf.request.rows import CodedRows, read_rows


@dataclass(frozen=True, eq=False)
class MeasuredExplainer:
    """What one explainer of one version has answered.

    Attributes:
        version, explainer: their names.
        table: one line per row that was measured, numbered from 0.
        before: what the explainer at the same place of the version before has answered, if there is one.
    """

    version: str
    explainer: str
    table: pd.DataFrame
    before: MeasuredExplainer | None

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the version and of the explainer."""
        return self.version, self.explainer

    @property
    def earlier(self) -> pd.DataFrame | None:
        """The table of the version before."""
        return None if self.before is None else self.before.table


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Measurements of the same rows.

    Attributes:
        versions: the models that were measured, by name.
        measured: in the order of the versions, then of the explainers.
        rows: (m, c) the rows, numbered from 0.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of all intervals.
    """

    versions: Mapping[str, ExplainedModel]
    measured: Sequence[MeasuredExplainer]
    rows: pd.DataFrame
    groups: pd.DataFrame
    bootstrap: Bootstrap

    def table(self) -> pd.DataFrame:
        """Return all measured lines: version, explainer, row, then what was measured."""
        return stacked({one.key: one.table.rename_axis("row").reset_index() for one in self.measured}, *NAMES)

    def differences(self) -> pd.DataFrame:
        """Return the paired differences of all metrics between neighbours."""
        found = {}
        for one in self.measured:
            first = next(other for other in self.measured if other.version == one.version)
            for base in dict.fromkeys((one.before, None if first is one else first)):
                if base is not None:
                    compared = differences(base.table[list(METRICS)], one.table[list(METRICS)], self.bootstrap)
                    found[*base.key, *one.key] = compared[compared["rows"] > 0]
        return stacked(found, "base_version", "base_explainer", *NAMES)

    def burden(self) -> pd.DataFrame:
        """Return the burden of every group under every version and explainer, and how it moved."""
        found = {one.key: burden(one.table, one.earlier, self.groups, self.bootstrap) for one in self.measured}
        return stacked(found, *NAMES)

    def advice(self) -> pd.DataFrame:
        """Return which features the answers of every version and explainer change, and how that moved."""
        names = list(dict.fromkeys(name for explained in self.versions.values() for name in explained.space.names))
        found = {one.key: advice(one.table, one.earlier, names, self.bootstrap) for one in self.measured}
        return stacked(found, *NAMES)

    def survival(self) -> tuple[pd.DataFrame, list[str]]:
        """Return how the counterfactuals of every version fare under every version, and notes on who cannot judge."""
        found, notes = {}, []
        for one in self.measured:
            issued = Issued.of(self.versions[one.version], one.table, self.rows)
            for name, judge in self.versions.items():
                try:
                    verdict = judged(issued, judge, len(self.rows))
                except InputError as error:
                    notes.append(f"{name} cannot judge the answers of {one.version}: {error.message}")
                    continue
                found[*one.key, name] = survival(verdict, self.groups, self.bootstrap)
        return stacked(found, "issued", "explainer", "judged"), list(dict.fromkeys(notes))

    def survivors(self, survivals: pd.DataFrame, version: str) -> pd.DataFrame:
        """Return how the answers of the version before fare under a version, as figures of an evaluation."""
        figures = []
        for one in self.measured:
            asked = (*one.before.key, version) if one.before and one.version == version else None
            for line in survivals.to_dict("records"):
                if asked == (line["issued"], line["explainer"], line["judged"]):
                    figures += [
                        Figure(one.explainer, line["group"], name, line[name], None, line["answers"])
                        for name in VERDICT
                        if np.isfinite(line[name])
                    ]
        return figures_table(figures)


NAMES: Final = ("version", "explainer")
VERDICT: Final = ("survival", "probability_lost", "promised")  # what other versions say of an answer, and what was said


def stacked(tables: Mapping[tuple[str, ...], pd.DataFrame], *names: str) -> pd.DataFrame:
    """Return tables as one, with what each is called by in columns of these names in front."""
    if not tables:
        return pd.DataFrame()
    return pd.concat(tables, names=[*names, None]).reset_index(list(names)).reset_index(drop=True)


# measure of the burden -> metric that it is the mean of
MEASURES: Final[Mapping[str, str]] = MappingProxyType(
    {"coverage": "coverage", "distance": "mixed", "changed_features": "n_changed", "effort": "sequence_cost"}
)


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
    return means(_measures(measured), groups, bootstrap, None if before is None else _measures(before))


def advice(
    measured: pd.DataFrame, before: pd.DataFrame | None, features: Sequence[str], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return which features the advice leans on: the share of the nearest answers that change each of them.

    Args:
        measured, before, bootstrap: as in `burden`; features: their names.

    Returns:
        One line per feature: feature, answers, share, low, high, change, change_low, change_high.
    """
    old = None if before is None else leanings(before, features)
    return advice_of(means(leanings(measured, features), None, bootstrap, old))


def advice_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return `means` of `leanings` as `advice` does."""
    return table.drop(columns="group").rename(columns={"measure": "feature", "rows": "answers", "mean": "share"})


def _measures(measured: pd.DataFrame) -> pd.DataFrame:
    table = pd.DataFrame({name: measured[metric] for name, metric in MEASURES.items()})
    return table.drop(columns="effort") if table["effort"].isna().all() else table


def leanings(measured: pd.DataFrame, features: Sequence[str]) -> pd.DataFrame:
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
        promised: (k,) the share of retrained models under which each is expected to hold; NaN without such models.
    """

    places: NDArray[np.intp]
    table: pd.DataFrame
    target: Target
    predictions: tuple[Label, ...]
    probability: Floats
    promised: Floats

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
            _promised(explained, values, found["prediction"].tolist()),
        )


def _promised(explained: ExplainedModel, rows: pd.DataFrame, predictions: Sequence[Label]) -> Floats:
    """Return the share (k,) of retrained models under which counterfactuals are expected to hold; NaN without any."""
    future, promised = explained.extra_models.future, np.full(len(rows), np.nan)
    if future is None or not len(rows):
        return promised
    target, outcome = explained.policy.target, future.requirement.judge.outcome(rows)
    own = explained.model.codes_of(predictions) if target.differs else np.full(len(rows), -1)
    for label in np.unique(own):
        some = np.flatnonzero(own == label)
        wanted = future.requirement.bound(explained.context.model.bound(target, int(label)))
        agreeing = wanted.agreeing(outcome.take(some)).tolist()
        promised[some] = [share_held(count, future.count) for count in agreeing]
    return promised


def judged(issued: Issued, judge: ExplainedModel, rows: int) -> pd.DataFrame:
    """Ask another model about issued counterfactuals.

    Features that the issuing model does not know are the row's own.

    Returns:
        (rows, 3), numbered from 0: ``survival``, 1 where the model predicts what was promised, else 0;
        ``probability_lost``, by how much less likely it finds that; and ``promised``, the share of retrained models
        under which the issuing model expects it to hold. NaN where nothing was issued or cannot be asked.

    Raises:
        InputError: the model can never predict what was promised, or lacks a column.
    """
    issued.target.check(judge.model)
    survived, lost, promised = np.full((3, rows), np.nan)
    frame = judge.space.select(issued.table).reset_index(drop=True)
    answered = read_rows(judge.judge, CodedRows.of(judge.space, frame)) if len(frame) else []
    # the class of what was said of each row, where the promise was any other
    own = judge.model.codes_of(issued.predictions) if issued.target.differs else np.full(len(issued.places), -1)
    for label in np.unique(own):
        told = {
            at: outcome for at in np.flatnonzero(own == label).tolist() if (outcome := answered[at].outcome) is not None
        }
        if not told:
            continue
        places, outcome = list(told), joined_outcomes(list(told.values()))
        target = BoundTarget(issued.target, judge.model, int(label))
        likely = np.array(target.probability(outcome), dtype=np.float64)
        survived[issued.places[places]] = target.met(outcome)
        lost[issued.places[places]] = issued.probability[places] - likely
        promised[issued.places[places]] = issued.promised[places]
    return pd.DataFrame(dict(zip(VERDICT, (survived, lost, promised), strict=True)))


def survival(verdict: pd.DataFrame, groups: pd.DataFrame | None, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the survival of one version's counterfactuals under another one.

    Args:
        verdict: what `judged` returns.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.

    Returns:
        One line per group: group, answers, survival (share) with low and high, probability_lost (mean) with lost_low
        and lost_high, and promised (mean), the survival that was to be expected.
    """
    return survival_of(means(verdict, groups, bootstrap))


def survival_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return `means` of what `judged` returns as `survival` does."""
    table = table.set_index("group")
    kept, lost, promised = (table[table["measure"] == name] for name in VERDICT)
    kept = kept.rename(columns={"rows": "answers", "mean": "survival"})
    lost = lost.rename(columns={"mean": "probability_lost", "low": "lost_low", "high": "lost_high"})
    promised = promised.rename(columns={"mean": "promised"})
    shown = [kept[["answers", "survival", "low", "high"]], lost[["probability_lost", "lost_low", "lost_high"]]]
    return pd.concat([*shown, promised[["promised"]]], axis=1).reset_index()


ALL: Final = ""  # the group of all rows; others are called by column and value, such as "sex.F"
FEWEST: Final = 5  # values below which nobody should believe an interval
CELLS: Final = 4_000_000  # drawn at once
COLUMNS: Final = ("group", "measure", "rows", "mean", "low", "high", "change", "change_low", "change_high")
SIGNS: Final = {"up": 1.0, "down": -1.0, "relative": 0.0}


@dataclass(frozen=True)
class Bootstrap:
    """Percentile intervals of means over rows that are drawn again and again.

    Tables of as many rows are drawn alike, so that what is measured on the same rows can be compared draw by draw.

    Attributes:
        seed: of the draws.
        draws: how many.
        level: share of the draws inside an interval.
    """

    seed: int = 0
    draws: int = 1_000
    level: float = 0.95

    def counts(self, rows: int) -> Iterator[Floats]:
        """Yield (b, rows) how often each draw has each row, until all draws are made."""
        rng = np.random.default_rng(self.seed)
        for start in range(0, self.draws, step := max(1, CELLS // max(rows, 1))):
            drawn = rng.integers(0, rows, (min(step, self.draws - start), rows))
            places = drawn + rows * np.arange(len(drawn))[:, None]
            yield np.bincount(places.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)

    def means(self, values: Floats) -> Floats:
        """Return the means (draws, k) of values (m, k) over the drawn rows that have one; NaN where none has."""
        known = ~np.isnan(values)
        filled, counted = np.where(known, values, 0.0), known.astype(np.float64)
        with np.errstate(invalid="ignore"):
            means = [(counts @ filled) / (counts @ counted) for counts in self.counts(len(values))]
        return np.vstack(means)

    def ends(self, means: Floats, sure: Floats) -> tuple[Floats, Floats]:
        """Return both ends (k,) of the interval of drawn means (draws, k); NaN where `sure` (k,) values are too few."""
        ends = np.full((2, means.shape[1]), np.nan)
        enough = (sure >= FEWEST) & ~np.isnan(means).all(axis=0)
        outside = 50 * (1 - self.level)
        if enough.any():
            ends[:, enough] = np.nanpercentile(means[:, enough], [outside, 100 - outside], axis=0)
        return ends[0], ends[1]


def means(
    values: pd.DataFrame, groups: pd.DataFrame | None, bootstrap: Bootstrap, before: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the means of columns (m, k) for all rows and each group, and how they moved since a measurement before.

    Each mean is over the rows that have a value in its own measurement. Groups of fewer than five such rows have no
    interval.

    Args:
        values: (m, k) what was measured.
        groups: (m, ..) the group of every row in one or more columns.
        bootstrap: of the intervals.
        before: (m, ..) the measurement before of the same rows; None: nothing has moved.

    Returns:
        One line per group and column: group, measure, rows (that have a value), mean, low, high, change, change_low,
        change_high.
    """
    found = []
    for group, rows in members_of(groups, len(values)).items():
        new = values[rows].to_numpy(np.float64)
        counted, drawn = (~np.isnan(new)).sum(axis=0), bootstrap.means(new)
        low, high = bootstrap.ends(drawn, counted)
        facts = {"measure": values.columns, "rows": counted, "mean": _mean(new), "low": low, "high": high}
        if before is not None:
            old = before[rows].reindex(columns=values.columns).to_numpy(np.float64)
            sure = np.minimum(counted, (~np.isnan(old)).sum(axis=0))
            low, high = bootstrap.ends(drawn - bootstrap.means(old), sure)
            facts |= {"change": _mean(new) - _mean(old), "change_low": low, "change_high": high}
        found.append(pd.DataFrame({"group": group, **facts}))
    return pd.concat(found, ignore_index=True).reindex(columns=COLUMNS)


def differences(before: pd.DataFrame, after: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the paired differences of metrics (m, k) over the rows that both measurements have a value for.

    Returns:
        One line per metric: metric, rows (pairs), before, after, difference (mean of after - before), low, high,
        verdict: ``better`` or ``worse`` where the interval leaves 0 out, else "".
    """
    pairs = (after - before).to_numpy(np.float64)
    both = ~np.isnan(pairs)
    counted = both.sum(axis=0)
    low, high = bootstrap.ends(bootstrap.means(pairs), counted)
    old, new = (_mean(np.where(both, table, np.nan)) for table in (before, after))
    return difference_table(list(after.columns), counted, (old, new, _mean(pairs)), (low, high))


def difference_table(
    metrics: Sequence[str],
    counted: NDArray[np.intp],
    means: tuple[Floats, Floats, Floats],
    interval: tuple[Floats, Floats],
) -> pd.DataFrame:
    """Return `differences` of metrics (k,): pairs, means before and after, of after - before, and its interval."""
    (before, after, moved), (low, high) = means, interval
    signs = np.array([SIGNS[METRICS[name].better] for name in metrics])
    clear = signs * (np.sign(low) + np.sign(high))
    return pd.DataFrame(
        {
            "metric": metrics,
            "rows": counted,
            "before": before,
            "after": after,
            "difference": moved,
            "low": low,
            "high": high,
            "verdict": np.select([clear == 2, clear == -2], ["better", "worse"], ""),
        }
    )


def _mean(values: Floats) -> Floats:
    """Return the means (k,) of values (m, k) that are there."""
    counted = (~np.isnan(values)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(values, axis=0) / counted)
