"""What every opened model must do, whatever it predicts; certificates are checked by trying every row there is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from pandas.testing import assert_frame_equal

from mlflow_cf.artifact.publish.log import load_model, save_model
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.reasons.game import Game, contributions_of, encode_all
from mlflow_cf.structures import Structure
from mlflow_cf.testing.checker import Checker, Row, Ruler, absent, plain_rows, table_of
from mlflow_cf.testing.goals import GOALS
from mlflow_cf.testing.models import CLOSE, TRAINING_SEED, Fitted, Kind, values_of
from mlflow_cf.wrapping import wrap

THREADS: Final = 8
REFERENCES: Final = 5  # rows that a row's contributions are compared with


@dataclass(frozen=True, eq=False)
class Opening:
    """A fitted model, opened.

    Attributes:
        kind, goal: what it is.
        fitted: the model with a way to ask it without the package.
        model: the same, opened.
        rows: raw rows it was not fitted on.
    """

    kind: Kind
    goal: str
    fitted: Fitted
    model: OpenModel
    rows: pd.DataFrame

    @classmethod
    def of(cls, kind: Kind, goal: str) -> Opening:
        """Fit and open a model of a kind for a goal."""
        rows = kind.rows(TRAINING_SEED)
        fitted = kind.fit(GOALS[goal], rows, values_of(rows))
        other = kind.rows(TRAINING_SEED + 1)
        return cls(kind, goal, fitted, open_native(fitted.model, output=fitted.output, rows=other), other)

    def ask(self, rows: pd.DataFrame) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return decisions and scores, the latter empty where there are none."""
        decided = np.asarray(self.model.decide(rows))
        scores = np.empty((len(rows), 0)) if self.model.score is None else self.model.score(rows)
        return decided, scores

    def check_same(self, rows: pd.DataFrame, expected: tuple[NDArray[Any], NDArray[Any]]) -> None:
        """Check that rows are answered as expected: labels exactly, numbers but for their last digits."""
        decided, scores = self.ask(rows)
        same = partial(assert_allclose, rtol=self.kind.close, atol=self.kind.close / 1000)
        if self.model.regression:
            same(decided, expected[0])
        else:
            assert_array_equal(decided, expected[0])
        same(scores, expected[1])


def check_own_decision(opening: Opening) -> None:
    """Labels or values are the model's own, and its probabilities are what it says itself."""
    replies = opening.fitted.replies(opening.rows)
    decided, scores = opening.ask(opening.rows)
    own = np.array([reply.prediction for reply in replies])
    if opening.model.regression:
        assert_allclose(decided, own, rtol=CLOSE, atol=CLOSE / 1000)
    else:
        assert_array_equal(decided, own)
    if opening.model.score_kind == "probability":
        assert_allclose(scores, np.array([reply.probabilities for reply in replies]), rtol=CLOSE, atol=CLOSE / 10)


def check_shapes(opening: Opening) -> None:
    """Answers have one row per row, known labels of their own type, float64 scores, and probabilities add up."""
    model = opening.model
    for rows in (opening.rows, opening.rows.iloc[:1]):
        decided, scores = opening.ask(rows)
        assert decided.shape == (len(rows),)
        if model.regression:
            assert decided.dtype == np.float64
            assert model.score is None
            continue
        assert len(model.classes) == GOALS[opening.goal].n_labels
        assert set(decided.tolist()) <= set(model.classes)
        assert {type(label) for label in decided.tolist()} <= {type(label) for label in model.classes}
        assert (model.score is None) == (model.score_kind == "none")
        if model.score is not None:
            assert scores.shape == (len(rows), len(model.classes))
            assert scores.dtype == np.float64
            assert np.isfinite(scores).all()
        if model.score_kind == "probability":
            assert_allclose(scores.sum(axis=1), 1.0, rtol=1e-6)
            assert scores.min() >= 0


def check_both(opening: Opening) -> None:
    """Asked for labels and scores at once, the model answers as when it is asked for each."""
    both = opening.model.both
    if both is None:
        return
    for rows in (opening.rows, opening.rows.iloc[:1]):
        decided, scores = opening.ask(rows)
        labels, found = both(rows)
        assert_array_equal(labels, decided)
        assert_allclose(found, scores, rtol=CLOSE, atol=CLOSE / 1000)


def check_scores_decide(opening: Opening) -> None:
    """The label is the one with the largest score wherever it leads clearly."""
    model = opening.model
    if model.score is None:
        return
    decided, scores = opening.ask(opening.rows)
    order = np.sort(scores, axis=1)
    clear = order[:, -1] - order[:, -2] > 1e-6
    assert clear.any()
    assert_array_equal(decided[clear], np.array(model.classes)[scores.argmax(axis=1)][clear])


def check_rows_apart(opening: Opening) -> None:
    """A row is answered the same alone, in another order, under another index and beside unknown columns."""
    rows = opening.rows
    decided, scores = opening.ask(rows)
    for position in range(0, len(rows), 9):
        opening.check_same(rows.iloc[[position]], (decided[[position]], scores[[position]]))
    shuffled = np.random.default_rng(0).permutation(len(rows))
    opening.check_same(rows.iloc[shuffled], (decided[shuffled], scores[shuffled]))
    if opening.model.columns:
        assert set(opening.model.columns) <= set(rows.columns)
        columns = [*reversed(rows.columns)]
        opening.check_same(rows.loc[:, columns].assign(unknown="?"), (decided, scores))


def check_decoded(opening: Opening) -> None:
    """Rows that were coded and decoded, as candidates are, are answered like the rows a user passes."""
    space = FeatureSpace.infer(opening.rows, opening.kind.features)
    decoded = space.decode(space.encode(opening.rows))
    opening.check_same(decoded, opening.ask(opening.rows))


def check_threads(opening: Opening) -> None:
    """Eight threads at once get the answers that one gets."""
    expected = opening.ask(opening.rows)

    def ask(first: int) -> None:
        for _ in range(2):
            opening.check_same(opening.rows.iloc[first:], (expected[0][first:], expected[1][first:]))

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(ask, first) for first in range(THREADS)]:
            done.result()


def check_no_trace(opening: Opening) -> None:
    """Asking changes neither the rows nor what the user's own model answers."""
    before, rows = opening.fitted.predict(opening.rows), opening.rows.copy(deep=True)
    opening.ask(opening.rows)
    opening.ask(opening.rows.iloc[:3])
    assert_frame_equal(opening.rows, rows)
    assert_array_equal(opening.fitted.predict(opening.rows), before)


def check_stored(opening: Opening, tmp_path: Path) -> None:
    """Saved with its explanations and loaded again, the model answers the same."""
    fitted = opening.fitted
    source = fitted.model if fitted.store is None else fitted.store(tmp_path)
    save_model(
        source,
        tmp_path / "saved",
        opening.rows,
        target=GOALS[opening.goal].target(fitted.labels),
        explainer="nearest_row",
        features=opening.kind.features,
        output=fitted.output,
        allow_functions=opening.kind.function,
    )
    loaded = load_model(tmp_path / "saved").model
    expected = opening.ask(opening.rows)
    Opening(opening.kind, opening.goal, fitted, loaded, opening.rows).check_same(opening.rows, expected)


ROWS: Final = 5  # that are explained
FREE: Final = ("age", "grade", "member")  # all other features are immutable, so that every row can be tried


def check_certified(opening: Opening) -> None:
    """A structure is found where there should be one, and what is proved by it is what trying every row finds.

    Raises:
        AssertionError: no structure or an unexpected one, an answer that is not optimal, or one that is not nearest.
    """
    explained = _wrapped(opening)
    background, names = explained.background, list(explained.background)
    description = explained.describe()
    assert description["opened"] == opening.kind.opened, description["structure"]
    if not opening.kind.opened:
        return
    assert description["parity"]["rows"] > len(background)
    fixed = {"immutable": [name for name in names if name not in FREE]}
    answers = explained.explain(background.iloc[:ROWS], constraints=fixed, certify=True)
    orders = opening.kind.orders
    checker, ruler = Checker(background, (fixed,), orders), Ruler(background, orders=orders)
    for query, answer in zip(plain_rows(background.iloc[:ROWS]), answers, strict=True):
        status, nearest = _tried(opening, query, checker, ruler)
        assert answer.status == status
        for found in answer.counterfactuals:
            assert found.proof == "optimal"
            assert found.distance == pytest.approx(nearest, abs=1e-9)


def _wrapped(opening: Opening) -> ExplainedModel:
    """Return a model with the rows that it was not fitted on as its background."""
    fitted, features = opening.fitted, opening.kind.features
    names = list(opening.model.columns or opening.rows.columns)
    known = {name: features[name] for name in features if name in names}
    target = GOALS[opening.goal].target(fitted.labels)
    return wrap(fitted.model, opening.rows[names], target=target, features=known, output=fitted.output)


def check_contributions(opening: Opening) -> None:
    """What a structure says that features contribute to a score is what the scores of all sets of features say.

    Raises:
        AssertionError: contributions differ, or do not add up to the difference between the scores.
    """
    explained = _wrapped(opening)
    structure, codes = explained.opened.structure, explained.bound_policy.background
    if structure is None:
        return
    player, row, references = np.arange(codes.shape[1]), codes[0], codes[1 : 1 + REFERENCES]
    exact = contributions_of(structure, references, player)
    if exact is None:
        return
    for weights in np.eye(structure.outputs):
        scores = partial(_weighted, structure, weights)
        tried = Game(row, references, player, scores).enumerated(player).attribution
        told = exact.of_row(encode_all(structure, row[None]), weights)
        assert_allclose(told.contributions, tried.contributions, rtol=0, atol=CLOSE * max(1.0, abs(tried.score)))
        assert_allclose(
            told.contributions.sum(), told.score - told.reference, rtol=0, atol=1e-9 * max(1.0, abs(told.score))
        )


def _weighted(structure: Structure, weights: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return structure.sums(encode_all(structure, rows)) @ weights


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
