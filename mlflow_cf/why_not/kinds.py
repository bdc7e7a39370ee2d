"""Constraints named in a sentence, those of one kind together."""

from __future__ import annotations

from collections.abc import Sequence

from mlflow_cf.constraints import Origin
from mlflow_cf.words.reasons import several

FEW = 2  # constraints of one kind that are named by their paths


def by_kind(origins: Sequence[Origin]) -> list[str]:
    """Return constraints in words, each kind once if there are many of it."""
    words: list[str] = []
    for section in dict.fromkeys(origin.section for origin in origins):
        kind = list(dict.fromkeys(origin for origin in origins if origin.section == section))
        if len(kind) <= FEW:
            words.extend(origin.path for origin in kind)
        else:
            features = all(origin.position is None and origin.key != "robust_to" for origin in kind)
            words.append(several(section, [origin.place for origin in kind], features=features))
    return words
