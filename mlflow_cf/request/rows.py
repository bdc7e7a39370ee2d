"""The rows of a request: coded, and predicted by the model before anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.model.judge import Decides, Label, Outcome


@dataclass(frozen=True, eq=False)
class CodedRows:
    """The rows of a request as codes.

    Attributes:
        frame: the rows (m, d); space: covers them.
        codes: (m, d); faults: why a row has none, by its position.
    """

    frame: pd.DataFrame
    space: FeatureSpace
    codes: Floats
    faults: Mapping[int, str]

    @classmethod
    def of(cls, known: FeatureSpace, frame: pd.DataFrame) -> CodedRows:
        """Code rows by the `known` features, which are extended by levels that the background does not have."""
        codes, faults = known.encode_rows(frame)
        space = known.covering(frame) if faults else known
        if space is not known:
            codes, faults = space.encode_rows(frame)
        return cls(frame, space, codes, faults)


@dataclass(frozen=True, eq=False)
class Row:
    """A row with its codes (d,) and the model's prediction; `fault` is why it cannot be explained, or ""."""

    codes: Floats
    fault: str
    prediction: Label | None
    outcome: Outcome | None

    @property
    def expected(self) -> bool:
        """Whether the outcome is a prediction of the opened model; the logged one was not asked yet."""
        return self.prediction is None and self.outcome is not None and int(self.outcome.codes[0]) >= 0


def check_rows(rows: object, most: int) -> None:
    """Refuse a table of more rows than `most`, before anything is done with it.

    Raises:
        InputError: there are more.
    """
    if isinstance(rows, Sized) and len(rows) > most:
        raise InputError("rows", f"{len(rows):,} are more than the policy's {most:,}", "send fewer at a time")


def read_rows(judge: Decides, coded: CodedRows) -> list[Row]:
    """Predict all rows at once; rows that make the model fail are predicted one by one and marked."""
    frame, space, codes, faults = coded.frame, coded.space, coded.codes, coded.faults
    good = np.array([row for row in range(len(frame)) if row not in faults], dtype=np.intp)
    rows: dict[int, Row] = {}
    try:
        labels, outcome = judge.predict(space.decode(codes[good]))
        for position, row in enumerate(good.tolist()):
            rows[row] = Row(codes[row], "", labels[position], outcome.take(np.array([position])))
    except Exception:  # noqa: BLE001  any model, any error: the rows it can predict must still be answered
        for row in good.tolist():
            rows[row] = _single(judge, space.decode(codes[[row]]), codes[row], "")
    for row, fault in faults.items():
        rows[row] = _single(judge, frame.iloc[[row]].reset_index(drop=True), codes[row], fault)
    if not any(row.outcome for row in rows.values()):
        fault = rows[0].fault
        raise InputError("rows", f"the model can predict none of them ({fault})", "check the values of the rows")
    return [rows[row] for row in range(len(frame))]


def _single(judge: Decides, frame: pd.DataFrame, codes: Floats, fault: str) -> Row:
    try:
        labels, outcome = judge.predict(frame)
    except Exception as error:  # noqa: BLE001  see above; the message may quote the row, so only the type is kept
        return Row(codes, fault or f"the model cannot predict this row ({type(error).__name__})", None, None)
    return Row(codes, fault, labels[0], outcome)
