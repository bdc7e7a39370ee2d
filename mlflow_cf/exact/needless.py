"""Changes that are certainly needless: what is left without one of them meets the target as well.

Where several answers are wanted, none of them has such a change. The nearest answer with one more change, however
small, comes right behind it, and so do a thousand others; an exact search has to drop them in boxes.
"""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.exact.losing import undoable
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.search.choices import Choices


class Needless:
    """Tells which changes of candidates are certainly needless."""

    def __init__(self, problem: Problem, choices: Choices, doubt: float) -> None:
        """Set up for boxes of `choices`; scores may be off by `doubt`."""
        self.problem, self.choices, self.doubt = problem, choices, doubt
        self.free = undoable(problem, choices)

    def stays(self, box: Bools) -> Bools:
        """Return (G,) which groups a box (choices,) allows to stay as they are."""
        own = self.choices.own
        return (own >= 0) & box[own]

    def back(self, box: Bools) -> Codes:
        """Return the groups that all candidates of a box (choices,) change beside another one, and may put back."""
        changed = ~self.stays(box)
        back: Codes = np.flatnonzero(changed & self.free) if changed.sum() > 1 else np.empty(0, dtype=np.intp)
        return back

    def optional(self, box: Bools) -> Bools:
        """Return (G,) the groups that some candidates of a box (choices,) change beside another one that all change."""
        stays = self.stays(box)
        return stays & self.free & (not stays.all())

    def of(self, codes: Codes, checked: Bools) -> Bools:
        """Return (m,) which candidates (m, G) have a certainly needless change of a group not `checked` (G,) yet."""
        found = np.zeros(len(codes), dtype=np.bool_)
        if self.problem.rater is None or not (codes != self.problem.own)[:, ~checked].any():
            return found
        owner, undone = self.problem.undone_codes(codes)
        held = self.problem.held(undone) & ((undone != codes[owner]) & ~checked).any(axis=1)
        owner, undone = owner[held], undone[held]
        if len(owner):
            rater = self.problem.rater
            _, sure = rater.verdicts(rater.structure.sums(self.problem.tokens(undone)), self.doubt)
            found[owner[sure]] = True
        return found
