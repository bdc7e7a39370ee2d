"""Reasons of rows of one explained model: references prepared once, then contributions, wordings and alarms per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import BoundTarget, Requirements
from mlflow_cf.goal.targets import rate_sums
from mlflow_cf.model.judge import Decides, Outcome
from mlflow_cf.policy import Target
from mlflow_cf.policy.reasons import ReferenceName, Wording
from mlflow_cf.reasons.game import Game, Numbers, contributions_of, encode_all
from mlflow_cf.reasons.reference import MOST_EXACT, MOST_SAMPLED, Reference, named
from mlflow_cf.reasons.score import ExplainedScore, explained_score
from mlflow_cf.structures.shapley import Attribution
from mlflow_cf.structures.structure import Structure
from mlflow_cf.words.changes import written
from mlflow_cf.words.factors import Factor, Method, Reasons
from mlflow_cf.words.statements import say

MOST_KEPT: Final = 4  # references of targets; of a forest with a million nodes, each has 40 MB of bits
NOTHING: Final = 1e-9  # of the scores: a contribution up to it is rounding
NOT_FINITE: Final = say("not_finite")
TOO_FEW: Final = say("too_few")


class DecidedRow(NamedTuple):
    """A row that the model refuses.

    Attributes:
        codes: (d,); space: covers it.
        outcome: what the model says of it.
        read: whether an opened model reads all its levels as the model does, which may know more than the background.
    """

    codes: Floats
    space: FeatureSpace
    outcome: Outcome
    read: bool = True


class Effort(NamedTuple):
    """What the sampling of one row may take: so many evaluations, until it is `late`; `seed` decides on orders."""

    evaluations: int
    seed: int
    late: Callable[[], bool]


@dataclass(frozen=True, eq=False)
class Reasoning:
    """What reasons of all rows share.

    Attributes:
        model: the model's own decision, without further requirements.
        background: (n, d) codes.
        player: (d,) the feature group of every column.
        wordings: the owner's codes and texts by feature; protected: features whose weight raises an alarm.
    """

    model: Requirements
    background: Floats
    player: Numbers
    wordings: Mapping[str, Wording]
    protected: frozenset[str]

    def reference(self, name: ReferenceName, target: Target, own: int) -> Reference:
        """Return the named reference for rows that the model predicts as the class at position `own`."""
        return self._kept(name, target, own if target.differs else -1)

    @cached_property
    def _kept(self) -> Callable[[ReferenceName, Target, int], Reference]:
        return lru_cache(MOST_KEPT)(self._named)

    def _named(self, name: ReferenceName, target: Target, own: int) -> Reference:
        met = self.model.bound(target, own).met(self.model.outcome)
        space = self.model.space
        found = named(name, self.background, met, space, MOST_EXACT)
        if found.reason:
            return found
        if name == "favourable_median" and not self.decided(found.rows, target, own):
            return replace(found, reason=say("median_refused"))
        found = self.prepared(found)
        return found if found.contributions else named(name, self.background, met, space, MOST_SAMPLED)

    def prepared(self, reference: Reference) -> Reference:
        """Return a reference with what tells exact contributions against it, if anything does."""
        structure = self.model.opened.structure
        if structure is None:
            return reference
        return replace(reference, contributions=contributions_of(structure, reference.rows, self.player))

    def decided(self, row: Floats, target: Target, own: int) -> bool:
        """Return whether the model decides a coded row (1, d) as wanted."""
        outcome = self.model.judge.verdict(self.model.space.decode(row))
        return bool(self.model.bound(target, own).met(outcome)[0])

    def exact(self, row: DecidedRow, target: BoundTarget, reference: Reference, most: int) -> Reasons | None:
        """Return the reasons of a row where they are exact by the structure of the model; None: they are not.

        Neither are they where the opened model does not read all levels, or decides on the row as it should not.
        """
        structure = self.model.opened.structure
        if reference.reason or reference.contributions is None or structure is None or not row.read:
            return Reasons("none", reason=reference.reason) if reference.reason else None
        encoded = encode_all(structure, row.codes[None])
        sums = structure.sums(encoded)
        over = target.of_sums(structure.link, 0, structure.outputs)
        if not np.isfinite(sums).all() or rate_sums(sums, [over])[0][0]:
            return None
        score = explained_score(over, sums[0], target.model.score_kind)
        found = reference.contributions.of_row(encoded, score.weights)
        return self._told(row, _Found(found, None, score, reference.told), most)

    def sampled(
        self, row: DecidedRow, target: BoundTarget, reference: Reference, most: int, effort: Effort, judge: Decides
    ) -> tuple[Reasons, int]:
        """Return the reasons of a row by scores of rows between it and the references, and how many were scored."""
        if reference.reason:
            return Reasons("none", reason=reference.reason), 0
        score, score_rows = self._scorer(row, target, judge)
        rows = reference.rows
        if len(rows) > MOST_SAMPLED:
            rows = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:MOST_SAMPLED])]
        game = Game(row.codes, rows, self.player, score_rows)
        found = game.solved(effort.evaluations, np.random.default_rng(effort.seed), effort.late)
        if found is None:
            return Reasons("none", reason=TOO_FEW), 0
        told = reference.told
        if len(found.references) < len(reference.rows):
            told = say("of_which", told=told, rows=len(found.references))
        reasons = self._told(row, _Found(found.attribution, found.errors, score, told), most)
        return reasons, found.evaluations

    def _scorer(
        self, row: DecidedRow, target: BoundTarget, judge: Decides
    ) -> tuple[ExplainedScore, Callable[[Floats], Floats]]:
        """Return the score to explain of a row, and what computes it of coded rows: the structure, else the model."""
        structure, model = self.model.opened.structure, target.model
        if structure is not None and row.read:
            sums = structure.sums(encode_all(structure, row.codes[None]))
            over = target.of_sums(structure.link, 0, structure.outputs)
            if np.isfinite(sums).all() and not rate_sums(sums, [over])[0][0]:
                score = explained_score(over, sums[0], model.score_kind)
                return score, lambda Z: _sums(structure, Z) @ score.weights
        if model.regression:
            over = target.of_sums("identity", 0, 1)
            score = explained_score(over, row.outcome.values, model.score_kind)
            return score, lambda Z: judge.predict(row.space.decode(Z))[1].values * score.weights[0]
        if model.score is None or row.outcome.scores is None:
            score = ExplainedScore(np.ones(1), "decision")
            return score, lambda Z: target.met(judge.predict(row.space.decode(Z))[1]).astype(np.float64)
        over = target.of_sums("identity", 0, len(model.classes))
        score = explained_score(over, row.outcome.scores[0].astype(np.float64), model.score_kind)
        return score, lambda Z: _scores(judge.predict(row.space.decode(Z))[1]) @ score.weights

    def _told(self, row: DecidedRow, found: _Found, most: int) -> Reasons:
        """Return contributions as reasons: the largest ones against the row first, at most so many."""
        attribution, score = found.attribution, found.score
        shortfall = attribution.reference - attribution.score
        if not np.isfinite([*attribution.contributions, shortfall]).all():
            return Reasons("none", reason=NOT_FINITE)
        against = -attribution.contributions  # what takes the row below the reference
        rounding = NOTHING * max(1.0, abs(attribution.reference), abs(attribution.score))
        order = np.argsort(-against, kind="stable")
        factors = [self._factor(row, player, found) for player in order.tolist() if abs(against[player]) > rounding]
        principal = [factor for factor in factors if factor.contribution > 0][:most]
        others = sorted(factors[len(principal) :], key=lambda factor: -abs(factor.contribution))
        classes = self.model.judge.model.classes
        method: Method = "exact" if found.errors is None else "sampled"
        alarm = any(factor.protected for factor in factors)
        return Reasons(
            status="alarm" if alarm else "stated",
            scale=score.scale,
            against="" if score.against < 0 else str(written(classes[score.against])),
            score=score.told(attribution.score),
            reference_score=score.told(attribution.reference),
            shortfall=shortfall,
            reference=found.reference,
            method=method,
            factors=tuple(principal),
            others=tuple(others),
        )

    def _factor(self, row: DecidedRow, player: int, found: _Found) -> Factor:
        columns = np.flatnonzero(self.player == player).tolist()
        features = [row.space.features[column] for column in columns]
        names = tuple(feature.name for feature in features)
        worded = [self.wordings[name] for name in names if name in self.wordings]
        return Factor(
            features=names,
            values=tuple(
                written(feature.value(float(row.codes[column])))
                for feature, column in zip(features, columns, strict=True)
            ),
            contribution=float(-found.attribution.contributions[player]),
            error=None if found.errors is None else float(found.errors[player]),
            code=", ".join(dict.fromkeys(one.code for one in worded if one.code)),
            text="; ".join(dict.fromkeys(one.text for one in worded if one.text)),
            protected=not self.protected.isdisjoint(names),
        )


class _Found(NamedTuple):
    """Contributions, their standard errors, the score they are of, and the reference in words."""

    attribution: Attribution
    errors: Floats | None
    score: ExplainedScore
    reference: str


def _sums(structure: Structure, rows: Floats) -> Floats:
    return structure.sums(encode_all(structure, rows))


def _scores(outcome: Outcome) -> Floats:
    """Return the scores (n, classes) of rows; NaN without."""
    return np.full((len(outcome.codes), 1), np.nan) if outcome.scores is None else outcome.scores.astype(np.float64)
