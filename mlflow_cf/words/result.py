"""What an explanation answers, as objects and as the records of a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd

from mlflow_cf.features import FeatureSpace, Level
from mlflow_cf.features.feature import Feature
from mlflow_cf.words import factors
from mlflow_cf.words.changes import Change, RegionSide, Step
from mlflow_cf.words.factors import Reasons
from mlflow_cf.words.phrases import Language

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Status = Literal["found", "already", "infeasible", "not_found", "budget", "busy", "skipped", "invalid"]
Proof = Literal["optimal", "bounded", "none"]
LeverStatus = Literal["found", "implied", "infeasible", "not_found", "budget"]
FACTS: Final = (
    "prediction",
    "probability",
    "distance",
    "n_changed",
    "proof",
)  # of a counterfactual, behind its row in a table


@dataclass(frozen=True)
class Optimum:
    """What a solver says of an answer by the objective that it minimised, which is another one than the distance.

    Attributes:
        objective: what is minimised, such as ``l2 + 10000 * features``.
        value: of the answer.
        bound: no row that meets the target by the explainer's margin, and all that is asked, has less; None: not known.
        proof: ``optimal`` if the value is the bound, up to 0.1 % and what the solver tells apart; ``bounded`` with any
            other bound; else ``none``.
    """

    objective: str
    value: float
    bound: float | None = None
    proof: Proof = "none"


@dataclass(frozen=True)
class Survived:
    """How surely an answer holds under models that retraining may give; see `mlflow_cf.policy.survival`.

    Attributes:
        holds: the share of these models under which it is expected to hold.
        at_least: a share under which it holds with the `confidence` that was asked for.
        confidence: how probable that is.
        agreeing: how many of the retrained `models` accept it.
    """

    holds: float
    at_least: float
    confidence: float
    agreeing: int
    models: int


@dataclass(frozen=True)
class Counterfactual:
    """A row that the logged model predicts as wanted and that meets every constraint.

    Attributes:
        row: every feature's value.
        changes: what differs from the query row, in column order.
        prediction: the model's own prediction for it.
        probability: probability of the wanted label; None if the model gives none.
        distance: distance from the query row.
        n_changed: number of changed features.
        proof: ``optimal``, ``bounded`` or ``none``; `bound`: no counterfactual is nearer than this, if known.
        plan: ordered steps that end at `row`, for explainers that make plans; what lies between is not proved.
        text: the changes in a sentence; below it the steps of the plan, one a line.
        solver: what is proved of another objective than the distance, where a solver minimised one.
        region: a box around it in which every admissible row is a counterfactual; None: not asked for, or none known.
        region_reason: why there is none although it was asked for; else "".
        rung: the rung (1, 2, ...) of the target's ladder that it meets; None without a ladder.
        survival: how surely it holds under models that retraining may give; None: that is not required of it.
        space: the model's features; known where the counterfactual comes from a model.
    """

    row: Mapping[str, Level | None]
    changes: tuple[Change, ...]
    prediction: Level
    probability: float | None
    distance: float
    n_changed: int
    proof: Proof = "none"
    bound: float | None = None
    plan: tuple[Step, ...] = ()
    text: str = ""
    solver: Optimum | None = None
    region: tuple[RegionSide, ...] | None = None
    region_reason: str = ""
    rung: int | None = None
    survival: Survived | None = None
    space: FeatureSpace | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        return {
            "row": dict(self.row),
            "changes": [change.to_dict() for change in self.changes],
            "prediction": self.prediction,
            "probability": self.probability,
            "distance": self.distance,
            "n_changed": self.n_changed,
            "proof": self.proof,
            "bound": self.bound,
            "solver": None if self.solver is None else asdict(self.solver),
            "text": self.text,
            "plan": [step.to_dict() for step in self.plan],
            "region": None if self.region is None else [side.to_dict() for side in self.region],
            "region_reason": str(self.region_reason),
            "rung": self.rung,
            "survival": None if self.survival is None else asdict(self.survival),
        }


@dataclass(frozen=True)
class LeverSet:
    """What changes of some features alone can do for a row.

    Attributes:
        features: those that may change; all others stay as they are.
        status: found; implied: a smaller set in it works, so that it was not searched; infeasible (proved); not_found
            (no proof) or budget (a limit ended it).
        by: the features of the smaller set that works, where the status is implied.
        counterfactual: the nearest answer that changes nothing else, if there is one.
        reason: what stands in the way of a proof, else "".
    """

    features: tuple[str, ...]
    status: LeverStatus
    by: tuple[str, ...] = ()
    counterfactual: Counterfactual | None = None
    reason: str = ""

    @property
    def works(self) -> bool | None:
        """Whether the set turns the decision; None: not known."""
        return self.status in ("found", "implied") if self.status in ("found", "implied", "infeasible") else None

    @property
    def changes(self) -> tuple[Change, ...]:
        """What its answer changes; nothing without one."""
        return () if self.counterfactual is None else self.counterfactual.changes

    @property
    def distance(self) -> float | None:
        """How far its answer is from the row."""
        return None if self.counterfactual is None else self.counterfactual.distance

    @property
    def proof(self) -> Proof | None:
        """What is proved of its answer."""
        return None if self.counterfactual is None else self.counterfactual.proof

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        found = self.counterfactual
        return {
            "features": list(self.features),
            "status": self.status,
            "by": list(self.by),
            "distance": self.distance,
            "probability": None if found is None else found.probability,
            "proof": self.proof,
            "bound": None if found is None else found.bound,
            "changes": [change.to_dict() for change in self.changes],
            "text": "" if found is None else found.text,
            "reason": str(self.reason),
        }


@dataclass(frozen=True)
class Share:
    """The share of the lawful changes of some features that turn the decision, while all others stay as they are.

    Attributes:
        features: those that change; each change is of one of them at least.
        share: of the lawful changes; 0 where none is lawful.
        weighted_share: the same, every value as often as the background has it; None: not known, or not told.
        changes: how many were scored.
        low, high: the interval (95 %) of the share where changes were drawn; None: all were counted.
    """

    features: tuple[str, ...]
    share: float
    weighted_share: float | None = None
    changes: int = 0
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        return {**vars(self), "features": list(self.features)}


@dataclass(frozen=True)
class Responsiveness:
    """Whether a person can turn the decision, and how much each feature does towards it.

    Attributes:
        responsive: whether some lawful action turns the decision; False is proved; None: not known, or nothing to turn.
        shares: of every feature group that may change, then of every set of levers asked for that has several.
        reason: why there are no shares, else "".
    """

    responsive: bool | None = None
    shares: tuple[Share, ...] = ()
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply."""
        shares = [share.to_dict() for share in self.shares]
        return {"responsive": self.responsive, "shares": shares, "reason": str(self.reason)}


UNASKED: Final = Responsiveness()


@dataclass(frozen=True)
class Explanation:
    """The answer for one row.

    Attributes:
        status: found, already (the target holds), infeasible (proved, for the chosen values), not_found, budget,
            busy, skipped (not asked for) or invalid (this row cannot be explained).
        reason: why there is no counterfactual, or no certificate where one was wanted; else "".
        prediction: the model's prediction for the row; None only if the model cannot predict it.
        probability: probability of the wanted label; None if the model gives none.
        counterfactuals: distinct sets of changed features first, the nearest of each; or in the explainer's own order.
        evaluations: rows scored for this explanation.
        explainer, seed: how to repeat it.
        diagnostics: facts about the run (seconds, generations, ...); not part of a reply.
        levers: what each set of levers asked for can do; empty where none was, or the row needs no counterfactual.
        responsiveness: whether, and by how many changes, the decision can be turned.
        record: the record of the answer as JSON, where one was asked for, else "".
        asked: the options that were asked for, and whether by a request; known where the explanation comes from a
            model.
        reasons: the principal factors behind the decision, where they were asked for.
        language: of its sentences.
        space: the model's features, which make tables of rows; known where the explanation comes from a model.
        judge_calls, judged_rows: of a model that another server answers for, the calls of the whole request and the
            rows asked about in them, without those that notice another model; 0 for models at hand.
    """

    status: Status
    reason: str
    prediction: Level | None
    probability: float | None
    counterfactuals: tuple[Counterfactual, ...] = ()
    evaluations: int = 0
    explainer: str = ""
    seed: int = 0
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    levers: tuple[LeverSet, ...] = ()
    responsiveness: Responsiveness = UNASKED
    record: str = ""
    asked: tuple[object, bool] | None = field(default=None, repr=False, compare=False)
    reasons: Reasons = factors.UNASKED
    language: Language = field(default="en", repr=False)
    space: FeatureSpace | None = field(default=None, repr=False, compare=False)
    judge_calls: int = 0
    judged_rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a reply (one object per row)."""
        return {
            "prediction": self.prediction,
            "probability": self.probability,
            "status": self.status,
            "reason": str(self.reason),
            "counterfactuals": [found.to_dict() for found in self.counterfactuals],
            "levers": [lever.to_dict() for lever in self.levers],
            "responsiveness": self.responsiveness.to_dict(),
            "record": self.record,
            "reasons": self.reasons.to_dict(),
            "explainer": self.explainer,
            "seed": self.seed,
            "evaluations": self.evaluations,
            "judge_calls": self.judge_calls,
            "judged_rows": self.judged_rows,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per counterfactual: its features in the model's own types, then what is known of it.

        These columns are counterfactual (1, 2, ...), prediction, probability, distance, n_changed and proof; one whose
        name is a feature's gets an underscore behind it. ``model.predict(found.to_frame()[features])`` works as it
        stands.
        """
        return counterfactual_table(self.space, [self.counterfactuals])

    def __str__(self) -> str:
        lines = [f"{self.status}: {self.reason}" if self.reason else self.status]
        return "\n  ".join([*lines, *(cf.text.replace("\n", "\n    ") for cf in self.counterfactuals)])

    def _repr_html_(self) -> str:
        """Return a card for notebooks: each counterfactual, drawn on what the background holds."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        return cards.page(cards.card(self.to_dict(), cards.Pictures(self._features), self.language), cards=True)

    def plot(self, counterfactual: int = 1) -> Figure:
        """Return a figure for a slide: what changes on the distribution of each feature, the probability, the proof.

        Args:
            counterfactual: its number, from 1.

        Raises:
            InputError: there is no counterfactual of this number.
        """
        from mlflow_cf.cards import Pictures  # noqa: PLC0415  as above
        from mlflow_cf.cards.figure import figure  # noqa: PLC0415  a second of matplotlib

        return figure(self.to_dict(), Pictures(self._features), self.language, counterfactual)

    @property
    def _features(self) -> Sequence[Feature]:
        """The model's features, with their domains unless this is a copy."""
        space = self.space if self.space is None or self.space.whole is None else self.space.whole
        return () if space is None else space.features


def counterfactual_table(space: FeatureSpace | None, found: Sequence[Sequence[Counterfactual]]) -> pd.DataFrame:
    """Return the counterfactuals of several rows as one table, in order; without `space` in types guessed by pandas."""
    all_found = [counterfactual for several in found for counterfactual in several]
    rows = [counterfactual.row for counterfactual in all_found]
    table = pd.DataFrame(rows) if space is None else space.from_values(rows)
    numbers = [number for several in found for number, _ in enumerate(several, start=1)]
    told = (*FACTS, "rung") if any(counterfactual.rung for counterfactual in all_found) else FACTS
    facts = {key: [getattr(counterfactual, key) for counterfactual in all_found] for key in told}
    return with_facts(table, {"counterfactual": numbers, **facts})


def with_facts(table: pd.DataFrame, facts: Mapping[str, list[Any]]) -> pd.DataFrame:
    """Add columns to a table of rows; one whose name is a feature's gets an underscore behind it."""
    for key, values in facts.items():
        while key in table.columns:
            key += "_"  # noqa: PLW2901  a feature keeps its name
        table[key] = pd.Series(values, index=table.index, dtype=None if values else object)
    return table
