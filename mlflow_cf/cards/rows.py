"""Explained rows as the lines of a table: their values, and those of the nearest answer beside what it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from mlflow_cf.cards.render import macros
from mlflow_cf.cards.row import Record, Text, changes_of, cut, proof_of
from mlflow_cf.words.changes import Change
from mlflow_cf.words.sentences import Speaker

MOST_COLUMNS: Final = 8  # features with a column of their own
LONGEST_CELL, LONGEST_REASON = 24, 160  # characters

Cell = tuple[Text, Text | None]


class Line(NamedTuple):
    """One row: what it is called; per column its value, and the new one where it changes; distance and probability.

    Without an answer, there is a reason in place of all these; `proof` is what is proved, or the status.
    """

    label: Text
    reason: str | None
    cells: tuple[Cell, ...]
    facts: tuple[str, ...]
    proof: str


def answers(told: str, records: Sequence[tuple[str, Record]], speaker: Speaker, left: int) -> Markup:
    """Return a table of rows, those with answers first; features that no answer changes have no column.

    Args:
        told: what stands above it.
        records: what each row is called, and the record of its reply.
        speaker: the words.
        left: how many more rows there are.
    """
    found = [(label, record) for label, record in records if record["counterfactuals"]]
    rest = [(label, record) for label, record in records if not record["counterfactuals"]]
    changed = {one["feature"] for _, record in found for one in record["counterfactuals"][0]["changes"]}
    order = [name for name in (found[0][1]["counterfactuals"][0]["row"] if found else ()) if name in changed]
    names = order[:MOST_COLUMNS]
    more = ["other changes"] if len(order) > len(names) else []
    columns = ["", *map(speaker.name, names), *more, "distance", "probability", "proof"]
    lines = [*(_line(label, record, names, speaker) for label, record in found)]
    lines += [
        Line(
            cut(label, LONGEST_CELL), cut(record["reason"], LONGEST_REASON).short, (), (), speaker.say(record["status"])
        )
        for label, record in rest
    ]
    heads = [cut(name, LONGEST_CELL) for name in columns]
    rendered: Markup = macros().answers(told, heads, lines, f"and {left:,} more" if left else "")
    return rendered


def _line(label: str, record: Record, names: Sequence[str], speaker: Speaker) -> Line:
    found = record["counterfactuals"][0]
    changes = {change.feature: change for change in changes_of(found, speaker.features)}
    cells = [*_cells(found["row"], changes, names, speaker)]
    others = [change for name, change in changes.items() if name not in names]
    if others:
        cells.append((cut(speaker.changes(others), LONGEST_REASON), None))
    known = (record["probability"], found["probability"])
    likely = "" if None in known else " → ".join(map(speaker.likely, known))
    facts = (speaker.cost(found["distance"]), likely)
    return Line(cut(label, LONGEST_CELL), None, tuple(cells), facts, proof_of(record, found, speaker))


def _cells(row: Record, changes: dict[str, Change], names: Sequence[str], speaker: Speaker) -> Iterator[Cell]:
    for name in names:
        if name in changes:
            old, new = (cut(text, LONGEST_CELL) for text in speaker.pair(changes[name]))
            yield old, new
        else:
            yield cut(speaker.value(row.get(name), name), LONGEST_CELL), None
