"""All candidates of a row, where they are few enough to be listed: the plainest proof there is."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.policy import Query
from mlflow_cf.request.context import RequestContext

MOST: Final = 2_000  # candidates: some tenths of a second


def every_candidate(context: RequestContext, query: Query, row: pd.DataFrame, *, served: bool) -> pd.DataFrame | None:
    """Return all rows that differ from a row by admissible actions and that every rule accepts.

    None where there are more than 2,000 combinations, or numbers that may take any value.

    Args:
        context, query: the policy, and what a request adds to it.
        row: (1, d); served: whether requests may see fewer actions than the owner.
    """
    shared = context.shared_by(query)
    known = shared.for_requests if served else shared.owners
    space = known.space.covering(row)
    bound_policy = known.tightened(query.constraints).covering(space)
    x0 = space.encode(row)[0]
    domains = bound_policy.domains
    if any(domain.interval is not None for domain in domains):
        return None
    if prod(len(domain.actions) + 1 for domain in domains) > MOST:
        return None
    rows = x0[None]
    for domain in domains:
        columns = list(domain.columns)
        parts = [rows]
        for action in domain.actions:
            other = rows.copy()
            other[:, columns] = action
            parts.append(other)
        rows = np.concatenate(parts)
    differs = ~((rows == x0) | (np.isnan(rows) & np.isnan(x0)))
    rows = np.unique(rows[differs.any(axis=1)], axis=0)
    return space.decode(rows[bound_policy.accepts(rows, x0)])
