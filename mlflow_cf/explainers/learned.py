"""What an explainer learns from, and what it has learned: arrays and JSON values, the same in memory and stored."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Outcome
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.stepwise import Steps
from mlflow_cf.structures.structure import Structure

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
KINDS: Final = "biufU"  # of arrays: booleans, integers, numbers, text of a fixed length


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known when a model is wrapped, before any row to explain.

    Attributes:
        bound_policy: features, domains, rules and distance of the policy; a request may bring more rules.
        labels: (n,) training target of the background rows as given, or None.
        outcome: what the judge says about the background rows.
        target: the policy's target; a request may name another.
        structure: the white box inside the model, if it could be opened.
        seed: the policy's seed.
    """

    bound_policy: BoundPolicy
    labels: NDArray[np.generic] | None
    outcome: Outcome
    target: BoundTarget
    structure: Structure | None
    seed: int

    @property
    def space(self) -> FeatureSpace:
        """The features."""
        return self.bound_policy.space

    @property
    def background(self) -> Floats:
        """(n, d) coded background rows."""
        return self.bound_policy.background


@dataclass(frozen=True, eq=False)
class Learned:
    """What an explainer has learned; an artifact gives it back bit for bit.

    Attributes:
        arrays: name -> array of booleans, numbers or text; kept as read-only copies in C order.
        plain: JSON values by name; kept as JSON has them, so tuples become lists.

    Raises:
        ValueError: a name that is no identifier, an array of objects, or a value that JSON cannot hold.
    """

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", {name: _read_only(name, array) for name, array in self.arrays.items()})
        try:
            plain = json.loads(json.dumps(dict(self.plain), allow_nan=False))
        except TypeError as error:
            raise ValueError(f"plain values that JSON cannot hold: {error}") from error
        object.__setattr__(self, "plain", plain)


Learning = Steps[Learned]


def steps_of(learning: Learned | Learning) -> Learning:
    """Return the steps in which something is learned; there are none left of what is learned already."""
    return learning if isinstance(learning, Generator) else _without_steps(learning)


def _without_steps(learned: Learned) -> Learning:
    yield from ()
    return learned


def _read_only(name: str, array: NDArray[Any]) -> NDArray[Any]:
    kept = np.array(array, order="C")
    if not NAME.fullmatch(name) or kept.dtype.kind not in KINDS:
        raise ValueError(f"an array {name!r} of type {kept.dtype}")
    kept.flags.writeable = False
    return kept


def known_labels(facts: Facts) -> Floats:
    """Return (n,) the value of every row, or the position of its label among the model's, -1 where it has none.

    The labels are those of training as given, or else what the model says.
    """
    model = facts.target.model
    if facts.labels is None:
        return np.asarray(facts.outcome.values if model.regression else facts.outcome.codes, dtype=np.float64)
    if model.regression:
        return np.asarray(facts.labels, dtype=np.float64)
    place = {label: float(at) for at, label in enumerate(model.classes)}
    return np.array([place.get(label, -1.0) for label in facts.labels.tolist()])
