"""The wanted outcome: a label, any other label than now, or an interval of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, StrictBool, StrictStr

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features.codec import plain
from mlflow_cf.model.judge import Label, OpenModel
from mlflow_cf.validation import Number, UserModel, validated

MOST_LABELS = 12  # named in a message
MOST_MEANT = 200  # characters of what an outcome means
MOST_RUNGS = 20  # of a ladder; each may take a search of its own
EVEN = 0.5  # the probability that a margin is added to, where the target has no least one
Share = Annotated[Number, Field(ge=0, le=1)]
Interval = tuple[Number | None, Number | None]
Rungs = Annotated[tuple[Number | Interval, ...], Field(max_length=MOST_RUNGS)]


class Target(UserModel):
    """The prediction that a counterfactual must have: ``Target(label=1)``, ``Target.other()`` or ``Target(low=5)``.

    Attributes:
        label: the wanted label.
        differs: any label but the row's own (``{"other": true}`` in requests).
        min_probability: inclusive; comes on top of the model's own decision for the label.
        low, high: wanted interval of a regression, inclusive; None leaves an end open.
        means: what that outcome is, in words that end a sentence: ``the loan is approved``.
        ladder: in requests, rising least probabilities, or intervals of a regression each inside the one before, of
            which each is answered by itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    label: StrictBool | StrictStr | Number | None = None
    differs: StrictBool = Field(default=False, alias="other")
    min_probability: Share | None = None
    low: Number | None = None
    high: Number | None = None
    means: Annotated[StrictStr, Field(max_length=MOST_MEANT)] = ""
    ladder: Rungs = ()

    @classmethod
    def other(cls, min_probability: float | None = None) -> Target:
        """Return the target of any label but the row's own, of at least `min_probability` where that is given."""
        return cls(other=True, min_probability=min_probability)

    @property
    def interval(self) -> bool:
        """Whether the target is an interval of values."""
        return self.low is not None or self.high is not None or any(isinstance(rung, tuple) for rung in self.ladder)

    @property
    def rungs(self) -> tuple[Target, ...]:
        """The target of every rung of the ladder; none without one."""
        told = [
            {"low": rung[0], "high": rung[1]} if isinstance(rung, tuple) else {"min_probability": rung}
            for rung in self.ladder
        ]
        return tuple(self.model_copy(update={"ladder": (), **one}) for one in told)

    @property
    def _outcome(self) -> tuple[Any, ...]:
        """What is wanted, however surely."""
        return self.label, self.differs, self.interval

    @classmethod
    def read(cls, source: Target | Mapping[str, Any] | Label | None, model: OpenModel) -> Target:
        """Return a target the model can meet.

        Args:
            source: a target, its dict, a bare label, or None to infer the favourable label (1 or True of two classes).
            model: whose labels count.

        Raises:
            InputError: nothing to infer from, a label the model does not know, or a probability it cannot give.
        """
        if source is None:
            target = cls(label=_favourable(model))
        elif isinstance(source, Target):
            target = source
        else:
            data = dict(source) if isinstance(source, Mapping) else {"label": plain(source)}
            target = validated(cls, data, "target")
        target.check(model)
        return target

    def check(self, model: OpenModel) -> None:
        """Refuse a target `model` cannot meet.

        Raises:
            InputError: as `read`.
        """
        kinds = [self.label is not None, self.differs, self.interval]
        if sum(kinds) != 1:
            raise InputError("target", "name one of label, other, or low and high", "for example target=1")
        if self.differs and self.means:
            raise InputError("target.means", "any label but the row's own may be meant", "leave it out")
        if model.regression:
            self._check_interval()
            return
        if self.interval:
            raise InputError("target", "the model predicts labels, not numbers", _name_one(model))
        if self.label is not None:
            self.column(model)
        if self.min_probability is not None and model.score_kind != "probability":
            raise InputError("target.min_probability", "the model gives no probabilities", "leave it out")
        if self.ladder and model.score_kind != "probability":
            raise InputError("target.ladder", "the model gives no probabilities", "leave it out")
        self._check_ladder()

    def check_single(self) -> None:
        """Refuse a ladder where one outcome is needed.

        Raises:
            InputError: there is one.
        """
        if self.ladder:
            raise InputError("target.ladder", "one outcome is wanted here, not several", "name a single rung")

    def _check_ladder(self) -> None:
        """Refuse a ladder that falls, and what it says already."""
        for key in ("min_probability", "low", "high") if self.ladder else ():
            if getattr(self, key) is not None:
                raise InputError(f"target.{key}", "the ladder says it for each of its rungs", "leave it out")
        for place, rung in enumerate(self.ladder):
            path, before = f"target.ladder[{place}]", self.ladder[place - 1] if place else None
            if isinstance(rung, tuple):
                _check_inside(path, rung, before if isinstance(before, tuple) else (None, None))
            elif not 0 <= rung <= 1:
                raise InputError(path, f"{rung} is no probability", "give numbers from 0 to 1")
            elif isinstance(before, int | float) and rung <= before:
                raise InputError(path, f"{rung} does not exceed {before} before it", "let the probabilities rise")

    def _check_interval(self) -> None:
        if not self.interval:
            fix = "give pairs [low, high]" if self.ladder else "give low, high or both"
            raise InputError(
                "target.ladder" if self.ladder else "target", "the model predicts numbers, not labels", fix
            )
        if not all(isinstance(rung, tuple) for rung in self.ladder):
            raise InputError("target.ladder", "the model predicts numbers, not labels", "give pairs [low, high]")
        self._check_ladder()
        if self.min_probability is not None:
            raise InputError("target.min_probability", "a regression has no probabilities", "leave it out")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InputError("target", f"low {self.low} exceeds high {self.high}", "give low <= high")

    def column(self, model: OpenModel) -> int:
        """Return the position of the wanted label among the model's classes.

        Raises:
            InputError: a label the model does not know.
        """
        same = (c == self.label and isinstance(c, str) == isinstance(self.label, str) for c in model.classes)
        column = next((position for position, found in enumerate(same) if found), None)
        if column is None:
            fact = f"the model does not know {self.label!r}"
            raise InputError("target.label", fact, did_you_mean(self.label, model.classes, "labels"))
        return column

    def check_margin(self, margin: float, model: OpenModel) -> None:
        """Refuse a margin if `model` gives no probability, or if the probability asked for would be 1.

        Raises:
            InputError: one of both is so.
        """
        for rung in self.rungs:
            rung.check_margin(margin, model)
        if margin and self.interval:
            raise InputError("margin", "a regression has no probabilities", "narrow low and high of the target instead")
        if margin and model.score_kind != "probability":
            raise InputError("margin", "the model gives no probabilities", "leave it out")
        if margin and (self.with_margin(margin).min_probability or 0.0) >= 1:
            fact = f"{margin} on top of min_probability {self.min_probability} asks for a probability of 1 or more"
            raise InputError("margin", fact, "both together must stay below 1")

    def with_margin(self, margin: float) -> Target:
        """Return the target with a least probability that is higher by `margin`."""
        if not margin:
            return self
        least = EVEN if self.min_probability is None else self.min_probability
        return self.model_copy(update={"min_probability": round(least + margin, 12)})

    def check_same(self, asked: Target, model: OpenModel) -> None:
        """Refuse another outcome where this target is sealed; the least probability may differ.

        Args:
            asked: a target that `model` can meet.
            model: whose labels count.

        Raises:
            InputError: `asked` wants another outcome.
        """
        labels = [None if one.label is None else one.column(model) for one in (self, asked)]
        if labels[0] != labels[1] or self.differs != asked.differs:
            wanted = "any label but the row's own" if self.differs else repr(self.label)
            fix = "leave it out, or keep it and ask for a higher min_probability"
            raise InputError("target", f"sealed by the policy, which wants {wanted}", fix)

    def tightened(self, asked: Target) -> Target:
        """Return the target of a request that asks for `asked` under this target of the policy.

        Raises:
            InputError: a lower probability or a wider interval than this one.
        """
        if asked.ladder:
            return asked.model_copy(
                update={"ladder": tuple(self._rung(place, asked) for place in range(len(asked.ladder)))}
            )
        floor = self.min_probability
        if floor is not None and asked.min_probability is not None and asked.min_probability < floor:
            fact = f"{asked.min_probability} is less than the policy's {floor}"
            raise InputError("target.min_probability", fact, "ask for more, or leave it out")
        low, high = (-np.inf if self.low is None else self.low), (np.inf if self.high is None else self.high)
        for key in ("low", "high"):
            wanted = getattr(asked, key)
            if wanted is not None and not low <= wanted <= high:
                fact = f"{wanted} is outside the policy's [{self.low}, {self.high}]"
                raise InputError(f"target.{key}", fact, "stay inside, or leave it out")
        inherited: dict[str, Any] = {"min_probability": floor, "low": self.low, "high": self.high}
        update = {key: value for key, value in inherited.items() if getattr(asked, key) is None}
        if self._outcome == asked._outcome and not asked.means:  # a label may be written as 1 or as True
            update["means"] = self.means
        return asked.model_copy(update=update)

    def _rung(self, place: int, asked: Target) -> float | Interval:
        """Return a rung of the ladder that a request asks for under this target."""
        try:
            rung = self.tightened(asked.rungs[place])
        except InputError as error:
            raise InputError(f"target.ladder[{place}]", error.fact, error.fix) from None
        return (rung.low, rung.high) if rung.min_probability is None else rung.min_probability

    def to_dict(self) -> dict[str, Any]:
        """Return the target as plain JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _check_inside(path: str, interval: Interval, before: Interval) -> None:
    """Refuse an interval that is empty, or not inside the one before it and narrower."""
    low, high = (-np.inf if interval[0] is None else interval[0]), (np.inf if interval[1] is None else interval[1])
    floor, ceiling = (-np.inf if before[0] is None else before[0]), (np.inf if before[1] is None else before[1])
    if low > high:
        raise InputError(path, f"low {low} exceeds high {high}", "give [low, high]")
    if not (floor <= low and high <= ceiling and (low, high) != (floor, ceiling)):
        raise InputError(path, f"{list(interval)} is not inside {list(before)} before it", "let the intervals narrow")


def _favourable(model: OpenModel) -> Label:
    if model.regression:
        raise InputError("target", "the model predicts numbers", "name what is wanted: Target(low=..., high=...)")
    if len(model.classes) == 2 and set(model.classes) == {0, 1}:  # False and True compare equal to 0 and 1
        return model.classes[model.classes.index(1)]
    raise InputError("target", "the favourable label cannot be inferred", _name_one(model))


def _name_one(model: OpenModel) -> str:
    """Return the fix that lists the labels of a model; it suggests none, as that might be the unwanted one."""
    labels = ", ".join(map(repr, model.classes[:MOST_LABELS])) + (", ..." if len(model.classes) > MOST_LABELS else "")
    return f"name the wanted label, target=...; labels: {labels}"
