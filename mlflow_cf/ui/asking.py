"""What the page asks: an explanation, a curve, whether answers hold under another version, a card or notice to keep."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mlflow_cf import cards
from mlflow_cf.cards import Pictures
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Feature, Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.policy import Query, Target
from mlflow_cf.reasons.notice import Letter, notice_of
from mlflow_cf.request.reasons import outcome_words
from mlflow_cf.ui.facts import pictures_of, snapped, threshold_of, told_levels
from mlflow_cf.ui.rows import table_of
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.sentences import Speaker

POINTS: Final = 120  # of a curve, at most
OPTIONS: Final = "counterfactual"


@dataclass(frozen=True, eq=False)
class Asked:
    """A model as the page asks it; safe to share between threads.

    Attributes:
        explained: the model; name: what the page calls it.
        pictures: the distributions that may be shown.
    """

    explained: ExplainedModel
    name: str
    pictures: Pictures

    @classmethod
    def of(cls, explained: ExplainedModel, name: str) -> Asked:
        """Return a model with what the page shows of it."""
        return cls(explained, name, pictures_of(explained))

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a request in MLflow's form, with its answers as HTML.

        Raises:
            InputError: a row or options that cannot be used, each with its path.
        """
        started = time.perf_counter()
        one = self._explained(body)
        record = one.to_dict()
        speaker = Speaker(one.language, self.pictures.known)
        return {
            "record": record,
            "word": speaker.say(record["status"]),
            "predicted": None if one.prediction is None else speaker.value(one.prediction),
            "answers": [str(html) for html in cards.answers_of(record, self.pictures, one.language)],
            "threshold": threshold_of(self.explained, self._target(body)),
            "seconds": round(time.perf_counter() - started, 4),
        }

    def curve(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the model says of a row along one feature, everything else as it is.

        The model is asked once, about all values.

        Returns:
            ``points``, each with its value, place on the axis (codes; levels are numbered), score (probability of what
            is wanted, or the predicted number; None without) and whether the target is met; and which of them is the
            row's ``own``.

        Raises:
            InputError: an unknown feature, or a row that cannot be used.
        """
        space, name = self.explained.space, body.get("feature")
        if not isinstance(name, str) or name not in space.index:
            raise InputError("feature", f"{str(name)[:60]!r} is not a feature", did_you_mean(str(name), space.names))
        table = table_of(space, body.get("dataframe_records"))
        space = space.covering(table)
        (row,) = space.encode(table)
        column = space.index[name]
        codes, own = self._along(space.features[column], float(row[column]))
        rows = np.tile(row, (len(codes), 1))
        rows[:, column] = codes
        outcome = self.explained.judge.verdict(space.decode(rows))
        target, model = self._target(body), self.explained.model
        bound = BoundTarget(target, model, own=-1 if model.regression else int(outcome.codes[own]))
        predictions = bound.predictions(outcome)
        scores = predictions if model.regression else bound.probability(outcome)
        met = bound.met(outcome).tolist()
        feature = space.features[column]
        points = [
            {
                "value": feature.value(float(code)),
                "at": place if not feature.numeric else None if np.isnan(code) else float(code),
                "score": None if score is None else float(score),
                "prediction": prediction,
                "met": wanted,
            }
            for place, (code, score, prediction, wanted) in enumerate(zip(codes, scores, predictions, met, strict=True))
        ]
        ends = [target.low, target.high] if model.regression else [threshold_of(self.explained, target)]
        return {"points": points, "own": own, "thresholds": [end for end in ends if end is not None]}

    def survival(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return of answers for a row, given by another version, which hold under this one.

        Raises:
            InputError: rows that do not fit.
        """
        space, given = self.explained.space, body.get("counterfactuals")
        table = table_of(space, body.get("dataframe_records"))
        if not isinstance(given, list) or not given:
            raise InputError("counterfactuals", "is no list of rows", "send the rows of answers")
        rows = [table_of(space, [row]) for row in given[: self.explained.policy.limits.count]]
        told = []
        for row in rows:
            (one,) = self.explained.verify(table, row, target=self._target(body), minimality=False)
            told.append(
                {
                    "valid": one.valid,
                    "prediction": one.prediction,
                    "probability": one.probability,
                    "broken": [*one.broken, *one.unmet],
                    "fault": one.fault,
                }
            )
        return {"answers": told}

    def kept(self, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """Return an answer as a document to keep: its card as a page that stands by itself, or a notice.

        Raises:
            InputError: as `answer`, or reasons that the policy does not give.
        """
        if kind == "notice":
            options = {**_options(body), "reasons": _options(body).get("reasons") or True}
            body = {**body, "params": {OPTIONS: options}}
        one = self._explained(body)
        if kind == "card":
            html = cards.page(cards.card(one.to_dict(), self.pictures, one.language, heading=self.name), cards=True)
            head = f'<!DOCTYPE html><html lang="{one.language}"><meta charset="utf-8"><title>mlflow-cf</title>'
            return {"name": "counterfactual.html", "text": f"{head}{html}</html>"}
        row = table_of(self.explained.space, body.get("dataframe_records"))
        record = self.explained.record(row, one)
        wanted = outcome_words(self._target(body))
        notice = notice_of(one, one.reasons, wanted, record, Letter(), one.language)
        return {"name": "notice.html", "text": notice.html}

    def _explained(self, body: Mapping[str, Any]) -> Explanation:
        row = table_of(self.explained.space, body.get("dataframe_records"))
        seconds = self.explained.policy.limits.time_limit_s
        (one,) = self.explained.request(row, {OPTIONS: _options(body)}, within_s=seconds)
        return one

    def _target(self, body: Mapping[str, Any]) -> Target:
        query = Query.read({"target": _options(body).get("target")})
        return self.explained.policy.target_for(query.target, self.explained.model)

    def _along(self, feature: Feature, own: float) -> tuple[Floats, int]:
        """Return the values (m,) of a curve in order, and which of them is the row's own."""
        if feature.numeric:
            drawing = self.pictures.drawing(feature.name)
            axis = np.linspace(drawing.low, drawing.high, POINTS) if drawing.bars else np.empty(0)
            codes = [snapped(feature, float(code)) for code in axis]
        else:
            least = self.pictures.least
            codes = [float(feature.code_of[level]) for level in told_levels(feature, least)]
        if np.isnan(own):
            return np.array([*codes, own]), len(codes)
        ordered = np.unique([*codes, own]) if feature.numeric else np.array(list(dict.fromkeys([*codes, own])))
        return ordered, int(np.flatnonzero(ordered == own)[0])


def _options(body: Mapping[str, Any]) -> Mapping[str, Any]:
    params = body.get("params") or {}
    options = params.get(OPTIONS) if isinstance(params, Mapping) else None
    if options is not None and not isinstance(options, Mapping):
        raise InputError(OPTIONS, f"a {type(options).__name__} is not an object", "send {...}")
    return options or {}


def prepared(models: Sequence[tuple[str, ExplainedModel]]) -> tuple[Asked, ...]:
    """Return models by name as the page asks them, once they have answered what pages ask."""
    for _, explained in models:
        explained.warm_up()
        if explained.opened.structure is not None:
            _try(explained)
    return tuple(Asked.of(explained, name) for name, explained in models)


def _try(explained: ExplainedModel) -> None:
    """Ask for regions, levers and the reason of a row without answer: what the first one to ask would wait for.

    Each is asked twice, because compiling may use up the time of the first one.
    """
    policy, space = explained.policy, explained.space
    target = BoundTarget(policy.target, explained.model)
    row = explained.background.iloc[[int(target.met(explained.outcome).argmin())]]
    varying = [feature.name for feature in space.features if not feature.constant]
    questions: list[dict[str, Any]] = [
        {"constraints": {"immutable": sorted({*varying, *policy.constraints.immutable})}}
    ]
    questions += [{"region": True, "count": min(2, policy.limits.count)}] if policy.privacy.regions else []
    questions += [{"levers": 1}] if policy.privacy.levers else []
    for options in questions * 2:
        with suppress(InputError):  # whoever asks so is told why not
            explained.request(row, {OPTIONS: options}, within_s=policy.limits.time_limit_s)
