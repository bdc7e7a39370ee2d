"""Candidates without the changes that they can do without, as the opened model says."""

from __future__ import annotations

import numpy as np

from mlflow_cf.problem import Codes, Problem, Rater


def minimal(problem: Problem, rater: Rater, codes: Codes) -> Codes:
    """Return favourable candidates (m, G) with change after change put back, the dearest first, while they stay so."""
    codes = codes.copy()
    waiting = np.arange(len(codes))
    while len(waiting):
        owner, undone = problem.undone_codes(codes[waiting])
        if not len(owner):
            break
        kept = np.flatnonzero(rater.margins(problem.tokens(undone))[0])  # few are, so that rules are checked for few
        kept = kept[problem.held(undone[kept])]
        owner, undone = waiting[owner[kept]], undone[kept]
        order = np.lexsort((problem.distance(undone), owner))
        waiting, first = np.unique(owner[order], return_index=True)
        codes[waiting] = undone[order[first]]
    return codes
