"""How good the counterfactuals of a logged model are, and the table of them that people read in the MLflow UI."""

from __future__ import annotations

from collections.abc import Sequence

import mlflow
import numpy as np
import pandas as pd
from tables import Label

from mlflow_cf import Explanation

PREDICTIONS_ONLY = {"counterfactual": {"explain": "none"}}


def measure(
    model_uri: str,
    asked: pd.DataFrame,
    explanations: Sequence[Explanation],
    *,
    background: pd.DataFrame,
    favourable: Label,
) -> dict[str, float]:
    """Return the metrics of the nearest counterfactual of each row, means over the rows that have one.

    cf/coverage: share of the rows with a counterfactual; cf/validity: share of those that the logged model itself,
    loaded and asked anew, decides favourably; cf/n_changed and cf/l0: changed features, as a number and as a share;
    cf/gower: mean over the features of |difference| / range, or 1 where levels differ.

    Args:
        model_uri: the logged model.
        asked: rows that were explained (m, d).
        explanations: one per row, in order.
        background: rows that give the ranges (n, d).
        favourable: the label the rows should reach.
    """
    found = [position for position, explanation in enumerate(explanations) if explanation.counterfactuals]
    metrics = {"cf/coverage": len(found) / len(explanations)}
    if not found:
        return metrics
    before = asked.iloc[found].reset_index(drop=True)
    after = pd.DataFrame([dict(explanations[position].counterfactuals[0].row) for position in found])
    after = after[list(before.columns)].astype(before.dtypes.to_dict())
    answers = mlflow.pyfunc.load_model(model_uri).predict(_as_sent(after), params=PREDICTIONS_ONLY)
    differences = _differences(before, after, background)
    return metrics | {
        "cf/validity": float((answers["prediction"] == favourable).mean()),
        "cf/n_changed": float((differences > 0).sum(axis=1).mean()),
        "cf/l0": float((differences > 0).mean()),
        "cf/gower": float(differences.mean()),
    }


def explained_rows(asked: pd.DataFrame, explanations: Sequence[Explanation]) -> pd.DataFrame:
    """Return one line per row to explain: decision, status, sentence and changes, then the row itself."""
    lines = []
    for explanation in explanations:
        best = explanation.counterfactuals[0] if explanation.counterfactuals else None
        lines.append(
            {
                "decision": explanation.prediction,
                "status": str(explanation.status),
                "sentence": best.text if best else explanation.reason,
                "changes": ", ".join(f"{c.feature}: {c.old} -> {c.new}" for c in best.changes) if best else "",
            }
        )
    return pd.concat([pd.DataFrame(lines), _as_sent(asked.reset_index(drop=True))], axis=1)


def _as_sent(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with levels as plain text, as they come over HTTP; MLflow refuses pandas' categories."""
    return rows.astype(dict.fromkeys(rows.select_dtypes("category"), "str"))


def _differences(before: pd.DataFrame, after: pd.DataFrame, background: pd.DataFrame) -> np.ndarray:
    """Return the distance of each feature between two tables with the same rows, (m, d) from 0 to about 1."""
    columns = []
    for name in before:
        old, new, known = before[name], after[name], background[name]
        if isinstance(old.dtype, pd.CategoricalDtype) and old.cat.ordered:
            old, new, known = old.cat.codes, new.cat.codes, known.cat.codes
        if pd.api.types.is_numeric_dtype(old) and not pd.api.types.is_bool_dtype(old):
            distance = (new - old).abs() / (known.max() - known.min())
            distance = distance.mask(old.isna() & new.notna(), 1.0).fillna(0.0)
        else:
            distance = ((old != new) & ~(old.isna() & new.isna())).astype(float)
        columns.append(distance.to_numpy(np.float64))
    return np.column_stack(columns)
