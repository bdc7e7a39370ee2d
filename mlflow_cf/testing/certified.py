"""What certificates of an opened model must say, found again by trying every row there is."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from mlflow_cf.testing.checker import Checker, Row, Ruler, absent, plain_rows, table_of
from mlflow_cf.testing.goals import GOALS
from mlflow_cf.testing.opened import Opening
from mlflow_cf.testing.worlds import ORDERS, overrides
from mlflow_cf.wrapping import wrap

ROWS: Final = 5  # that are explained
FREE: Final = ("age", "grade", "member")  # all other features are immutable, so that every row can be tried


def check_certified(opening: Opening) -> None:
    """A structure is found where there should be one, and what is proved by it is what trying every row finds.

    Raises:
        AssertionError: no structure or an unexpected one, an answer that is not optimal, or one that is not nearest.
    """
    fitted, goal = opening.fitted, GOALS[opening.goal]
    target, features = goal.target(fitted.labels), overrides("observed")
    names = list(opening.model.columns or opening.rows.columns)
    background = opening.rows[names]
    known = {name: features[name] for name in features if name in names}
    explained = wrap(fitted.model, background, target=target, features=known, output=fitted.output)
    description = explained.describe()
    assert description["opened"] == opening.kind.opened, description["structure"]
    if not opening.kind.opened:
        return
    assert description["parity"]["rows"] > len(background)
    fixed = {"immutable": [name for name in names if name not in FREE]}
    answers = explained.explain(background.iloc[:ROWS], constraints=fixed, certify=True)
    checker, ruler = Checker(background, (fixed,), ORDERS), Ruler(background, orders=ORDERS)
    for query, answer in zip(plain_rows(background.iloc[:ROWS]), answers, strict=True):
        status, nearest = _tried(opening, query, checker, ruler)
        assert answer.status == status
        for found in answer.counterfactuals:
            assert found.proof == "optimal"
            assert found.distance == pytest.approx(nearest, abs=1e-9)


def _tried(opening: Opening, query: Row, checker: Checker, ruler: Ruler) -> tuple[str, float | None]:
    """Return the status of a row by asking the model about all rows, and the distance of the nearest one."""
    fitted, background, met = opening.fitted, checker.background, GOALS[opening.goal].met
    seen = [{v for v in background[name].astype(object).tolist() if not absent(v)} for name in FREE]
    tried = product(*({*values, query[name]} for name, values in zip(FREE, seen, strict=True)))
    rows = [{**query, **dict(zip(FREE, values, strict=True))} for values in tried]
    rows = [row for row in rows if checker.accepts(query, row)]
    own, *replies = fitted.replies(table_of([query, *rows], background))
    if met(fitted.labels, own, own):
        return "already", None
    pairs = zip(rows, replies, strict=True)
    distances = [ruler.distance(query, row) for row, reply in pairs if met(fitted.labels, own, reply)]
    return ("found", min(distances)) if distances else ("infeasible", None)
