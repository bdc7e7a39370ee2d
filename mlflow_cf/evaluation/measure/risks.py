"""What answers give away, measured: who was in the training data, and the model itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.evaluation.measure.aggregates import Figure
from mlflow_cf.evaluation.measure.measured import Measuring, measured_table
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.metrics import Labelled, extraction_fidelity, membership_auc
from mlflow_cf.model.remote import UnavailableError

QUERIES: Final = (100, 1_000)  # of an attacker who copies the model
MOST_MEMBERS: Final = 1_000  # rows of the background that are explained beside the others


def risk_figures(
    name: str, explained: ExplainedModel, rows: pd.DataFrame, path: Path, measuring: Measuring
) -> Iterator[Figure]:
    """Yield the risks of an explainer whose lines for `rows` (m, d) are in the file `path`.

    ``risk/membership_auc`` tells rows of the background from `rows`, which should not be in it; there is none where no
    rows are kept. ``risk/extraction_fidelity_100`` is the share of background rows that a copy of the model decides
    as the model does, which has learned from the first 100 rows and their counterfactuals;
    ``risk/extraction_baseline_100`` is that of a copy from these rows alone. Likewise of 1,000, if there are as many.
    """
    known = pd.read_parquet(path, columns=["mixed", "counterfactual"])
    if explained.policy.privacy.keeps_rows:
        seed = explained.policy.seed if measuring.seed is None else measuring.seed
        members = explained.background.sample(min(MOST_MEMBERS, len(explained.background)), random_state=seed)
        inside = measured_table(explained, members, replace(measuring, lof=False))["mixed"].to_numpy()
        area = membership_auc(inside, known["mixed"].to_numpy())
        if area is not None:
            yield Figure(name, "", "risk/membership_auc", area, None, len(inside) + len(known))
    if explained.model.regression:
        return
    found = known["counterfactual"]
    for queries in (n for n in QUERIES if n <= len(known)):
        asked = explained.space.select(rows.iloc[:queries])
        answers = explained.space.from_values([json.loads(one) for one in found[:queries].dropna()])
        for figure, tables in {"fidelity": [asked, answers], "baseline": [asked]}.items():
            share = _fidelity(explained, tables)
            if share is not None:
                yield Figure(name, "", f"risk/extraction_{figure}_{queries}", share, None, queries)


def _fidelity(explained: ExplainedModel, tables: list[pd.DataFrame]) -> float | None:
    """Return how well a copy that learns from tables (m, d) decides the background; None: of none, or not answered."""
    codes, labels = [], []
    for table in tables:
        space, found, faults = explained.space.encode_covered(table)
        good = np.delete(found, list(faults), axis=0)
        if len(good):
            codes.append(good)
            try:
                labels.append(explained.judge.verdict(space.decode(good)).codes)
            except UnavailableError:
                return None
    if not codes:
        return None
    held_out = Labelled(explained.bound_policy.background, explained.outcome.codes)
    return extraction_fidelity(Labelled(np.concatenate(codes), np.concatenate(labels)), held_out)
