"""The logged model as the rest of the package sees it: its own decision, and how favourable a row is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.features import CodedTable, ColumnName, FeatureSpace, Floats
from mlflow_cf.model.remote import Remote

if TYPE_CHECKING:
    from mlflow_cf.model.steps import ModelStep
    from mlflow_cf.structures.structure import Structure

MOST_LABEL = 2**31  # whole numbers up to here are compared as an array of any type
TRIED = 500  # background rows on which two ways to the labels are compared
Label = int | str | bool | float
Rows = pd.DataFrame | CodedTable  # in the model's own raw columns
Decide = Callable[[pd.DataFrame], NDArray[np.generic]]
ScoreRows = Callable[[pd.DataFrame], NDArray[np.float64]]
Both = Callable[[pd.DataFrame], tuple[NDArray[np.generic], NDArray[np.float64]]]
ScoreKind = Literal["probability", "score", "margin", "none"]
Steps = Callable[[FeatureSpace, pd.DataFrame], "Sequence[ModelStep]"]
Compile = Callable[[FeatureSpace, pd.DataFrame], "Structure"]
Levels = Callable[[FeatureSpace, pd.DataFrame], Mapping[str, frozenset[str]]]
ByCodes = Callable[[FeatureSpace, pd.DataFrame], "CodedCalls | None"]
Imitate = Callable[[FeatureSpace, pd.DataFrame, "Outcome"], "Structure"]
Told = tuple[NDArray[np.generic], NDArray[np.float64] | None]  # labels or values, and scores if there are some
Given = TypeVar("Given")  # rows
Said = TypeVar("Said")


class CodedCalls(NamedTuple):
    """How a model is asked about coded rows of some features, mostly without the table that it takes.

    Attributes:
        told: rows (n, d) -> (n,) labels or values, and (n, classes) scores if it has them.
        score: rows (n, d) -> the scores alone; None if it has none, or that saves nothing.
    """

    told: Callable[[CodedTable], Told]
    score: Callable[[CodedTable], NDArray[np.float64]] | None


@dataclass(frozen=True)
class OpenModel:
    """What a flavor delivers when it opens a logged model. Every callable is thread-safe.

    Attributes:
        flavor: name of the flavor that opened it, e.g. ``sklearn``.
        classes: the labels the model can answer, in the order of the score columns; empty for regression.
        decide: rows (n, d) as a table in the model's own raw columns -> (n,) labels (regression: values);
            the logged model's own decision.
        score: the same rows -> (n, len(classes)) float64, one column per class; None if the model has labels only.
        score_kind: ``probability`` (columns sum to 1), ``score`` (like it, but not kept inside [0, 1], and so no
            probability), ``margin`` (any real number, larger is likelier) or ``none``.
        columns: the raw input columns in the model's order if it knows them, else empty; numbers where it knows these.
        notes: facts for `describe()`.
        both: `decide` and `score` in one pass, where that is cheaper than one after the other.
        compile: features and some background rows -> the structure inside the model; None: not opened.
        tolerance: how far the structure's scores may be from the model's own.
        steps: features and some background rows -> its steps, each opened or not, for `describe()`; None: it has none.
        steady: what it says of a row is the same whatever rows stand beside it.
        levels: features and some background rows -> by name, the levels of a feature that the model tells apart; it
            reads all others alike, and so does its structure. Features of which this is not known are left out.
        imitate: features, background rows, and what the model says of them -> a structure that guides searches of a
            model that is not opened; it decides nothing.
        remote: how it is asked, where another server answers.
        by_codes: features and some background rows -> how it is asked about codes in less time, so that it says what it
            says of the decoded rows, to the last bit; None where it is not.
    """

    flavor: str
    classes: tuple[Label, ...]
    decide: Decide
    score: ScoreRows | None = None
    score_kind: ScoreKind = "none"
    columns: tuple[ColumnName, ...] = ()
    notes: tuple[str, ...] = ()
    both: Both | None = None
    compile: Compile | None = None
    tolerance: float = 1e-6
    steady: bool = False
    steps: Steps | None = None
    levels: Levels | None = None
    imitate: Imitate | None = None
    remote: Remote | None = None
    by_codes: ByCodes | None = None

    @cached_property
    def regression(self) -> bool:
        """Whether the model predicts a number instead of a label."""
        return not self.classes

    def codes_of(self, labels: Iterable[object]) -> NDArray[np.intp]:
        """Return the position (m,) of each label among the classes, -1 for one that is not among them."""
        if self._numbers is None or not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu":
            return np.fromiter(map(self._positions.get, labels, repeat(-1)), dtype=np.intp)
        known, position = self._numbers
        place = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        return np.where(known[place] == labels, position[place], -1)

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.intp]] | None:
        """The classes in ascending order, and their positions, if all are whole numbers."""
        if not self.classes or not all(type(label) is int and abs(label) < MOST_LABEL for label in self.classes):
            return None
        position = np.argsort(self.classes, kind="stable")
        return np.array(self.classes, dtype=np.int64)[position], position

    @cached_property
    def _positions(self) -> dict[object, int]:
        return {label: position for position, label in enumerate(self.classes)}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the model says about m rows.

    Attributes:
        codes: (m,) position of each row's label among the model's classes, -1 for a label it did not announce.
        scores: (m, len(classes)) as `OpenModel.score` gives them, or None.
        values: (m,) predictions of a regression; empty for labels.
        further: what the judges of further requirements say about these rows, in their order.
    """

    codes: NDArray[np.intp]
    scores: NDArray[np.float64] | None = None
    values: NDArray[np.float64] = field(default_factory=partial(np.empty, 0))
    further: tuple[Outcome, ...] = ()

    def take(self, rows: NDArray[np.intp] | slice) -> Outcome:
        """Return the outcome of some of the rows."""
        scores = None if self.scores is None else self.scores[rows]
        values = self.values[rows] if len(self.values) else self.values
        further = tuple(other.take(rows) for other in self.further) if self.further else ()
        return Outcome(self.codes[rows], scores, values, further)

    def withheld(self, rows: NDArray[np.bool_]) -> Outcome:
        """Return the outcome without what was said about some of the rows (m,): no label, and no value."""
        values = np.where(rows, np.nan, self.values) if len(self.values) else self.values
        further = tuple(other.withheld(rows) for other in self.further)
        return Outcome(np.where(rows, -1, self.codes), self.scores, values, further)


def classes_of(codes: NDArray[np.intp]) -> list[int]:
    """Return which positions of classes are among some (m,), ascending; -1, for no class, is the first."""
    found: list[int] = (np.flatnonzero(np.bincount(codes + 1)) - 1).tolist()
    return found


class CodedModel(NamedTuple):
    """What was learned of a model about codes.

    Attributes:
        model: of which it holds, and of no other; space: of which features; calls: how it is asked.
    """

    model: OpenModel
    space: FeatureSpace
    calls: CodedCalls


@dataclass(frozen=True, eq=False)
class Judge:
    """The model's own decision, and the cheapest way to it.

    Attributes:
        model: the opened model.
        argmax_decides: the largest score was the model's own decision on every background row, so that a search
            needs the scores alone. What leaves the package is decided by `verdict`, never by the scores.
        further: those of further requirements, which are asked about the same rows.
        coded: how the model is asked about coded rows; None: only about tables.
    """

    model: OpenModel
    argmax_decides: bool
    further: tuple[Judge, ...] = ()
    coded: CodedModel | None = None

    @cached_property
    def tolerance(self) -> float:
        """How far the scores of structures may be from the models' own."""
        return max(self.model.tolerance, *(other.tolerance for other in self.further), 0.0)

    @classmethod
    def learn(cls, model: OpenModel, rows: Rows) -> tuple[Judge, Outcome]:
        """Learn on background `rows` whether the largest score decides; return their outcome too.

        Labels that come with the scores are believed only if they are those of `decide` on some of the rows, and so is
        what the model says of codes.
        """
        table = table_of(rows)
        some = table.iloc[:TRIED]
        with model.remote.learning() if model.remote is not None else nullcontext():
            told = None if model.both is None else model.both(some)
            if told is not None and not np.array_equal(told[0], np.asarray(model.decide(some))):
                model, told = replace(model, both=None), None
            coded = _coded(model, rows, told) if isinstance(rows, CodedTable) else None
            outcome = cls(model, argmax_decides=False).verdict(table)
        scores = outcome.scores
        agrees = scores is not None and bool(np.array_equal(scores.argmax(axis=1), outcome.codes))
        return cls(model, agrees, coded=coded), outcome

    def of_another_fit(self, model: OpenModel) -> Judge:
        """Return the judge of another fit of the same estimator, of which the same is known."""
        return Judge(model if self.model.both is not None else replace(model, both=None), self.argmax_decides)

    def predict(self, rows: Rows) -> tuple[list[Label], Outcome]:
        """Return the model's predictions for `rows` (m, d) as plain Python values, and their outcome."""
        calls = self._calls(rows)
        if calls is not None and isinstance(rows, CodedTable):
            labels, scores = calls.told(rows)
        else:
            labels, scores = _told(self.model, table_of(rows))
        if self.model.regression:
            values = np.asarray(labels, dtype=np.float64)
            return values.tolist(), Outcome(np.full(len(values), -1, dtype=np.intp), None, values)
        known = labels.tolist()
        return known, Outcome(self.model.codes_of(labels if labels.dtype.kind in "iu" else known), scores)

    def verdict(self, rows: Rows) -> Outcome:
        """Return the logged model's own decision for `rows` (m, d), with scores if it has them.

        Nothing is said of coded rows that stand for others than meant.
        """
        outcome = self.predict(rows)[1]
        if self.further:
            outcome = replace(outcome, further=tuple(other.verdict(rows) for other in self.further))
        if isinstance(rows, CodedTable) and not rows.plain and not rows.exact.all():
            outcome = outcome.withheld(~rows.exact)
        return outcome

    def outcome(self, rows: Rows) -> Outcome:
        """Return the decision for `rows` (m, d) by the cheapest rule that agrees with the model's own."""
        if not self.argmax_decides or self.model.score is None:
            return self.predict(rows)[1]
        calls, scores = self._calls(rows), None
        if calls is not None and isinstance(rows, CodedTable):
            scores = calls.score(rows) if calls.score is not None else calls.told(rows)[1]
        scores = self.model.score(table_of(rows)) if scores is None else scores
        return Outcome(scores.argmax(axis=1), scores)

    def _calls(self, rows: Rows) -> CodedCalls | None:
        """Return how the model is asked about the codes of rows; None where their table is needed."""
        coded = self.coded
        if coded is None or coded.model is not self.model or not isinstance(rows, CodedTable):
            return None
        return coded.calls if rows.of(coded.space) else None


def table_of(rows: Rows) -> pd.DataFrame:
    """Return the table that rows are."""
    return rows.table if isinstance(rows, CodedTable) else rows


def _told(model: OpenModel, rows: pd.DataFrame) -> Told:
    """Return the labels or values of rows (m, d), and the scores if there are some."""
    if model.both is not None and not model.regression:
        return model.both(rows)
    scores = None if model.regression or model.score is None else model.score(rows)
    return np.asarray(model.decide(rows)), scores


def _coded(model: OpenModel, rows: CodedTable, told: Told | None) -> CodedModel | None:
    """Return how a model is asked about coded rows; None if it says anything else of some of them than of a table.

    Args:
        model: the model; rows: those of the background.
        told: what it says of the first ones, in one pass; None: not known.
    """
    asked = CodedTable(rows.space, rows.codes[:TRIED])
    calls = None if model.by_codes is None or not asked.plain else model.by_codes(rows.space, asked.table)
    if calls is None:
        return None
    (labels, scores), (expected, rated) = calls.told(asked), told or _told(model, asked.table)
    said = [(labels, expected)] if rated is None else [(labels, expected), (scores, rated)]
    if rated is not None and calls.score is not None:
        said.append((calls.score(asked), rated))
    same = all(one is not None and np.array_equal(one, other) for one, other in said)
    return CodedModel(model, rows.space, calls) if same else None


@dataclass(eq=False)
class CountedJudge:
    """A judge that counts its calls; belongs to one request, whose threads may share it.

    Attributes:
        judge: who decides.
        calls: how often it was asked; seconds: of wall clock that this took, added up over threads.
    """

    judge: Judge
    calls: int = 0
    seconds: float = 0.0
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def tolerance(self) -> float:
        """How far the scores of structures may be from the models' own."""
        return self.judge.tolerance

    def predict(self, rows: Rows) -> tuple[list[Label], Outcome]:
        """Return the model's predictions for `rows` (m, d) as plain Python values, and their outcome."""
        return self.counted(self.judge.predict, rows)

    def verdict(self, rows: Rows) -> Outcome:
        """Return the decision for `rows` (m, d) of the model and all further judges."""
        return self.counted(self.judge.verdict, rows)

    def counted(self, ask: Callable[[Given], Said], rows: Given) -> Said:
        """Return what a function says that asks the judge about rows, counted as a call."""
        started = time.perf_counter()
        try:
            return ask(rows)
        finally:
            with self._lock:
                self.calls += 1
                self.seconds += time.perf_counter() - started


Decides = Judge | CountedJudge


@dataclass(frozen=True, eq=False)
class AskedAlone:
    """Rows (m, d) that the judge is asked about one by one, as long as it is not `late`; the others stay unanswered."""

    rows: Floats
    late: Callable[[], bool]


Asked = Floats | AskedAlone
