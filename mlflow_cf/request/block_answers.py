"""Answers of blocks of rows: they stay in arrays until their explanation is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.explainers.geco.members import Members
from mlflow_cf.features import Floats, Level
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Outcome
from mlflow_cf.problem import Codes
from mlflow_cf.request.expected import Predictions
from mlflow_cf.request.replies import bare, costed, predicted, survived_by
from mlflow_cf.request.rows import PredictedRows, Row
from mlflow_cf.words.arrays import AnswerArrays
from mlflow_cf.words.changes import changes_between
from mlflow_cf.words.result import Counterfactual, Explanation, Proof, Survived


@dataclass(frozen=True, eq=False)
class BlockAnswers:
    """Answers of few changes each, as arrays.

    Attributes:
        predictions: of all rows of the request; targets: what all judges must say, the model's own first.
        numbers: (m,) of the rows, each of which has k answers; Z: (m * k, d) the codes of these, row after row.
        distance: (m * k,) from the rows; outcome: what the model says of the answers.
        changed: (m * k,) how many features each changes.
        searched, evaluations: (m,) what the search counts of each row, and what all that was asked.
        seconds: that each took.
        cells: (m,) the values of rows that `searched` stands for.
        proof: what is proved of each answer: nothing of several, unless it is asked for.
    """

    predictions: Predictions
    targets: tuple[BoundTarget, ...]
    numbers: Codes
    Z: Floats
    distance: Floats
    outcome: Outcome
    changed: Codes
    searched: Codes
    evaluations: Codes
    seconds: float
    cells: Codes
    proof: Proof

    @property
    def target(self) -> BoundTarget:
        """What the model must say."""
        return self.targets[0]

    @cached_property
    def survived(self) -> Sequence[Survived | None]:
        """(m * k,) how surely each answer holds under models that retraining may give; None: that is not required."""
        known = survived_by(self.predictions.request.requirements, self.targets[1:], self.outcome)
        return known or [None] * len(self.Z)

    @property
    def count(self) -> int:
        """The number of answers of each row."""
        return len(self.Z) // max(len(self.numbers), 1)

    @property
    def answered(self) -> Codes:
        """The number of the row that each of the answers is for."""
        return np.repeat(self.numbers, self.count)

    def take(self, some: Codes, outcome: Outcome) -> BlockAnswers | None:
        """Return the only answers of some rows, with what the model says of these; None of none."""
        if not len(some):
            return None
        parts = ("numbers", "Z", "distance", "changed", "searched", "evaluations", "cells")
        return replace(self, outcome=outcome, **{key: getattr(self, key)[some] for key in parts})

    def explanation(self, at: int) -> Explanation:
        """Return the explanation of one of the rows."""
        request, space = self.predictions.request, self.predictions.space
        row = self.predictions.rows[int(self.numbers[at])]
        plain, old, count = bare(request, row), space.values(row.codes), self.count
        found = tuple(self._counterfactual(one, row.codes, old, plain) for one in range(at * count, (at + 1) * count))
        statistics = self._statistics(at)
        return replace(
            plain,
            status="found",
            counterfactuals=found,
            evaluations=int(self.evaluations[at]),
            diagnostics={**statistics, "cut": "", "seconds": self.seconds},
        )

    def _statistics(self, at: int) -> dict[str, Any]:
        """Return what the search of a single row tells of itself, where few changes settle it."""
        searched, operators = int(self.searched[at]), dict.fromkeys((f"{one}_s" for one in Members.PHASES), 0.0)
        cells = {"cells_naive": searched * len(self.predictions.space), "cells_delta": int(self.cells[at])}
        return {"generations": 0, "candidates": searched, **cells, **operators, "sweep_s": self.seconds}

    def _counterfactual(
        self, at: int, x0: Floats, old: Mapping[str, Level | None], plain: Explanation
    ) -> Counterfactual:
        """Return one of the answers, of a row x0 (d,) that has the values `old`."""
        space, target, outcome = self.predictions.space, self.target, self.outcome.take(slice(at, at + 1))
        new = space.values_beside(self.Z[at], x0, old)
        changes, prediction = changes_between(old, new), target.prediction(outcome, 0)
        distance, speaker = float(self.distance[at]), self.predictions.request.speaker
        return Counterfactual(
            row=new,
            changes=changes,
            prediction=prediction,
            probability=target.probability(outcome)[0],
            distance=distance,
            n_changed=len(changes),
            proof=self.proof,
            bound=distance if self.proof == "optimal" else None,
            text=speaker.surviving(speaker.answer(changes, prediction), self.survived[at]),
            survival=self.survived[at],
            space=plain.space,
        )


class SettledBlock(NamedTuple):
    """Rows that were tried together, and the answers of those that few changes settle."""

    numbers: Codes
    answers: Sequence[BlockAnswers]

    @property
    def left(self) -> list[int]:
        """The numbers of the rows that must be explained by themselves."""
        settled = np.concatenate([part.numbers for part in self.answers] or [self.numbers[:0]])
        left: list[int] = self.numbers[~np.isin(self.numbers, settled, kind="table")].tolist()
        return left


@dataclass(frozen=True)
class Found:
    """The explanations of a request so far.

    Attributes:
        single: of rows that were explained by themselves, by number.
        blocks: of all others.
    """

    single: dict[int, Explanation] = field(default_factory=dict)
    blocks: list[BlockAnswers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.single) + sum(len(block.numbers) for block in self.blocks)

    def places(self, rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (m,) the block that each of so many rows was explained in, -1: in none, and (m,) its place there."""
        block, place = (np.full(rows, -1, dtype=np.int32) for _ in range(2))
        for number, one in enumerate(self.blocks):
            block[one.numbers] = number
            place[one.numbers] = np.arange(len(one.numbers))
        return block, place

    def arrays(self, predictions: Predictions, rows: PredictedRows) -> AnswerArrays:
        """Return what blocks have found, and what is said of rows that nothing was searched for, as arrays."""
        request, blocks, none = predictions.request, self.blocks, np.empty(0, dtype=np.intp)
        explained = np.concatenate([none, *(block.numbers for block in blocks)])
        answered = np.concatenate([none, *(block.answered for block in blocks)])
        known = rows.place >= 0
        known[list(self.single)] = False
        known[explained] = True
        numbers, order = np.flatnonzero(known), np.argsort(answered, kind="stable")
        answered = answered[order]
        evaluations = np.zeros(len(rows), dtype=np.intp)
        evaluations[explained] = np.concatenate([none, *(block.evaluations for block in blocks)])
        said = [one for block in blocks for one in block.target.predictions(block.outcome)]
        told = [one for block in blocks for one in block.target.probability(block.outcome)]
        proofs = [block.proof for block in blocks for _ in block.Z]
        survived = [one for block in blocks for one in block.survived]
        distance = np.concatenate([np.empty(0), *(block.distance for block in blocks)])[order]
        before = rows.codes[answered]
        codes = np.concatenate([rows.codes[:0], *(block.Z for block in blocks)])[order]
        np.copyto(codes, before, where=codes == before)  # 0.0 and -0.0 are equal
        labels, likely = predicted(request, rows, numbers)
        places = order.tolist()
        return AnswerArrays(
            rows=numbers,
            predictions=labels,
            probabilities=likely,
            evaluations=evaluations[numbers],
            owner=np.searchsorted(numbers, answered),
            before=before,
            codes=codes,
            outcomes=[said[at] for at in places],
            likely=np.array(told, dtype=np.float64)[order],
            distance=distance,
            proofs=[proofs[at] for at in places],
            bounds=np.where([proofs[at] == "optimal" for at in places], distance, np.nan),
            survived=[survived[at] for at in places],
            bare=costed(bare(request, Row(rows.codes[:0], "", None, None)), request.session),
            space=predictions.space,
            speaker=request.speaker,
        )
