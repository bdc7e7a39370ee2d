"""The table to learn from: the generated applications, or any CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from applications import applications

Label = int | float | str | bool


@dataclass(frozen=True)
class Table:
    """Feature rows and what happened to them.

    Attributes:
        rows: feature columns (n, d) as they are; strings are nominal, ordered categoricals ordinal.
        labels: the target column (n,), two labels.
        favourable: the label an applicant hopes for, of the labels' own type.
        source: where the rows come from, for people.
    """

    rows: pd.DataFrame
    labels: pd.Series
    favourable: Label
    source: str

    @property
    def share(self) -> float:
        """How many of the rows have the favourable label, 0 to 1."""
        return float((self.labels == self.favourable).mean())


def read_table(file: str, rows: int, seed: int) -> tuple[pd.DataFrame, str]:
    """Return the CSV file's first `rows` rows (0: all), or generated applications when `file` is empty; and the source.

    Raises:
        SystemExit: the file cannot be read.
    """
    if not file:
        return applications(rows or 10_000, seed), "the generator"
    try:
        return pd.read_csv(file, nrows=rows or None), Path(file).name
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise SystemExit(f"--data: cannot read {file}: {error}") from error


def learn_from(frame: pd.DataFrame, source: str, target: str, favourable: str, drop: str) -> Table:
    """Split `frame` into features and target.

    Args:
        frame: all columns (n, d + 1).
        source: where they come from, for people.
        target: column to predict; the last one when empty.
        favourable: the label hoped for, as it is written in the file.
        drop: columns to leave out, separated by commas.

    Raises:
        SystemExit: with a message for the terminal when columns or labels do not fit.
    """
    target = target or str(frame.columns[-1])
    dropped = [name.strip() for name in drop.split(",") if name.strip()]
    for option, names in (("--target", [target]), ("--drop", dropped)):
        unknown = [name for name in names if name not in frame.columns]
        if unknown:
            raise SystemExit(f"{option}: no column {unknown[0]!r} in {source}; it has {', '.join(frame.columns)}")
    labels = frame[target]
    known = {str(label): label for label in labels.unique().tolist()}
    if labels.isna().any():
        raise SystemExit(f"--target: column {target!r} has missing values; remove those rows first")
    if len(known) != 2 or favourable not in known:
        found = ", ".join(list(known)[:9]) + (", ..." if len(known) > 9 else "")
        raise SystemExit(f"--favourable: {target!r} needs two labels, one of them {favourable!r}; it has {found}")
    return Table(frame.drop(columns=[target, *dropped]), labels, known[favourable], source)
