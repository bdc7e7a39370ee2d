"""What a comparison hands over to its report: the newest version's rows, and all versions beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.measure.result import Evaluation
from mlflow_cf.reporting.data import Material, Versions
from mlflow_cf.reporting.groups import spoken_group
from mlflow_cf.reporting.shapes import HeatMap, Table, percent, short

SHARES: Final = ("accuracy", "coverage", "survival")
CALLED: Final = {
    "mixed": "mean distance",
    "n_changed": "changed features",
    "coverage": "with an answer",
    "probability_lost": "probability lost",
}
TIMED: Final = "seconds"  # metrics that no two runs share
MOST_FEATURES, MOST_DIFFERENCES, MOST_GROUPS = 12, 20, 12  # shown


def material_of_versions(
    comparison: Comparison, evaluations: Mapping[str, Evaluation], columns: list[str]
) -> Material | None:
    """Return what the report of a comparison is made of; None where nothing is known of any version.

    Args:
        comparison: all versions.
        evaluations: of each version, oldest first; the rows on the page are those of the last one with a report.
        columns: by which rows are grouped.
    """
    known = {name: one.material for name, one in evaluations.items() if one.material is not None}
    if not known:
        return None
    newest, material = list(known.items())[-1]
    several = len(set(comparison.aggregates["explainer"])) > 1
    tables = {
        "Side by side": _overview(comparison),
        "Who bears what": _burden(comparison, columns, several=several),
        "What answers change": _advice(comparison, several=several),
        "Differences on the same rows": _differences(comparison, several=several),
    }
    versions = Versions(
        names=comparison.versions,
        newest=newest,
        survival=_heat(comparison.survival_matrix()) if len(comparison.survival) else None,
        tables={name: table for name, table in tables.items() if table is not None},
        failed=comparison.failed,
    )
    title = f"{comparison.versions[0]} to {comparison.versions[-1]}" if len(comparison.versions) > 1 else newest
    return replace(material, title=title, notes=tuple(dict.fromkeys(comparison.notes)), versions=versions)


def _heat(matrix: pd.DataFrame) -> HeatMap:
    shares = tuple(
        tuple(None if np.isnan(value) else float(value) for value in line) for line in matrix.to_numpy(np.float64)
    )
    return HeatMap(tuple(map(str, matrix.columns)), shares)


def _overview(comparison: Comparison) -> Table:
    frame = comparison.overview()
    metrics = [str(name) for name in frame.columns if not str(name).startswith(TIMED)]
    head = ("version", "explainer", *(CALLED.get(name, name.replace("_", " ")) for name in metrics))
    lines = [
        (*map(str, key), *(_told(name, value) for name, value in zip(metrics, line, strict=True)))
        for key, line in zip(frame.index.tolist(), frame[metrics].to_numpy(np.float64), strict=True)
    ]
    return Table(head, tuple(lines), names=2)


def _burden(comparison: Comparison, columns: list[str], *, several: bool) -> Table | None:
    """Return the mean distance of each group's answers under each version, with its interval."""
    burden = comparison.burden
    if not len(burden):
        return None
    burden = burden[burden["measure"] == "distance"]
    cells = {
        (line["group"], _whose(line, several=several)): _interval(line) for line in burden.to_dict("records")
    }  # fmt: skip
    whose = list(dict.fromkeys(name for _, name in cells))
    groups = list(dict.fromkeys(group for group, _ in cells))[: MOST_GROUPS + 1]
    lines = [
        (spoken_group(group, columns) if group else "all rows", *(cells.get((group, name), "") for name in whose))
        for group in groups
    ]
    return Table(("mean distance of answers", *whose), tuple(lines))


def _advice(comparison: Comparison, *, several: bool) -> Table | None:
    """Return the share of answers that change each feature, for those that are changed most."""
    advice = comparison.advice
    if not len(advice) or not advice["share"].notna().any():
        return None
    shares = {
        (str(line["feature"]), _whose(line, several=several)): float(line["share"])
        for line in advice.to_dict("records")
        if pd.notna(line["share"])
    }
    whose = list(dict.fromkeys(name for _, name in shares))
    most: dict[str, float] = {}
    for (feature, _), share in shares.items():
        most[feature] = max(most.get(feature, 0.0), share)
    features = [name for name in sorted(most, key=lambda name: -most[name]) if most[name] > 0][:MOST_FEATURES]
    lines = [
        (name.replace("_", " "), *(percent(shares[name, who]) if (name, who) in shares else "" for who in whose))
        for name in features
    ]
    return Table(("share of answers that change it", *whose), tuple(lines)) if lines else None


def _differences(comparison: Comparison, *, several: bool) -> Table | None:
    """Return the paired differences that are no chance."""
    table = comparison.differences
    if not len(table):
        return None
    sure = table[(table["verdict"] != "") & ~table["metric"].str.startswith(TIMED)]
    lines = []
    for line in sure.head(MOST_DIFFERENCES).to_dict("records"):
        base = {"version": line["base_version"], "explainer": line["base_explainer"]}
        pair = f"{_whose(base, several=several)} to {_whose(line, several=several)}"
        metric = str(line["metric"])
        interval = f"{short(line['low'])} to {short(line['high'])}"
        told = (_told(metric, line["before"]), _told(metric, line["after"]), interval)
        lines.append((pair, CALLED.get(metric, metric.replace("_", " ")), line["verdict"], *told, f"{line['rows']:,}"))
    head = ("compared", "metric", "verdict", "before", "after", "difference (95%)", "rows")
    return Table(head, tuple(lines), names=3) if lines else None


def _whose(line: Mapping[str, object] | Mapping[object, object], *, several: bool) -> str:
    known = dict(line)
    return f"{known['version']} {known['explainer']}" if several else str(known["version"])


def _interval(line: Mapping[object, object] | Mapping[str, object]) -> str:
    known = {str(key): value for key, value in line.items()}
    mean, low, high = (float(str(known[name])) for name in ("mean", "low", "high"))
    if np.isnan(mean):
        return ""
    return short(mean) if np.isnan(low) else f"{short(mean)} ({short(low)} to {short(high)})"


def _told(metric: str, value: float) -> str:
    if np.isnan(value):
        return ""
    return percent(value) if metric in SHARES and 0 <= value <= 1 else short(value)
