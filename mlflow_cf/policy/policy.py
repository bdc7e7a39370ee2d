"""The policy that an owner logs with a model, and the options of one request under it."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
)
from pydantic_core import PydanticCustomError

from mlflow_cf.constraints import Constraints, Values
from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.model.judge import Label, OpenModel
from mlflow_cf.policy.distance import Distance
from mlflow_cf.policy.further import MOST_VERSIONS, Margin, Plausible, Plausibly, RobustTo
from mlflow_cf.policy.levers import LeversAsked
from mlflow_cf.policy.limits import (
    LEAST_DIFFERENCE,
    WHOLE,
    Diversity,
    LeastDifference,
    Limits,
    QueryLimits,
    Seconds,
    Variety,
    check_extent,
)
from mlflow_cf.policy.privacy import Privacy
from mlflow_cf.policy.reasons import ReasonsAsked, Wording
from mlflow_cf.policy.survival import Survival, SurvivalAsked
from mlflow_cf.policy.target import Target
from mlflow_cf.validation import validated
from mlflow_cf.words.phrases import Language

Explain = Literal["unfavourable", "all", "none"]
Sealable = Literal["target"]
MAX_OPTIONS = 64  # of an explainer
Trace = Literal["off", "rows", "digests"]
WhyNotAsked = Literal[False, "quick", "full"]
RegionAsked = Literal[False, True, "all"]


class Policy(BaseModel):
    """Constraints, target and limits of an explained model; a request can only tighten them.

    Attributes:
        target: the wanted outcome.
        constraints: what every counterfactual must respect.
        distance: how near a counterfactual is.
        values: which values may be proposed: observed in the background, on a feature's grid, or continuous.
        limits: most a request may ask for.
        seed: seed of requests that name none.
        certify: whether answers are always proved to be the nearest, as far as the limits allow.
        privacy: what requests may see of the background.
        seal: what requests cannot change at all.
        trace: whether each served explanation becomes an MLflow trace: with its rows, or with digests of them.
        robust_to: other models in the artifact under which answers must meet the same target.
        plausible: how much answers must look like the background; None: that was not learned.
        survival: under which share of retrained models answers must hold; None: no model was retrained.
        margin: what the probability of the wanted label must exceed the target's by, or one half where that has none.
        diversity: which of several answers come first: the best of every set of changed features, or the nearest.
        min_difference: several answers differ by a level, or in a number by this share of its range.
        why_not: how much is found out about rows without counterfactual where a request does not say: all (``full``),
            what takes a tenth of the time and evaluations (``quick``), or nothing; false also forbids requests to ask.
        language: of sentences.
        reasons: the owner's codes and texts of reasons, by feature.
        protected: features that are to carry no weight: where one does, reasons raise an alarm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Target
    constraints: Constraints = Constraints()
    distance: Distance = Distance()
    values: Values = "observed"
    limits: Limits = Limits()
    seed: Annotated[StrictInt, Field(ge=0)] = 0
    certify: StrictBool = False
    privacy: Privacy = Privacy()
    seal: tuple[Sealable, ...] = ("target",)
    trace: Trace = "off"
    robust_to: Annotated[tuple[RobustTo, ...], Field(max_length=MOST_VERSIONS)] = ()
    plausible: Plausible | None = None
    survival: Survival | None = None
    margin: Margin = 0.0
    diversity: Diversity = "sets"
    min_difference: LeastDifference = LEAST_DIFFERENCE
    why_not: WhyNotAsked = "quick"
    language: Language = "en"
    reasons: dict[StrictStr, Wording] = {}
    protected: tuple[StrictStr, ...] = ()

    @field_validator("robust_to")
    @classmethod
    def _named_apart(cls, versions: tuple[RobustTo, ...]) -> tuple[RobustTo, ...]:
        names = [version.name.casefold() for version in versions]  # of folders, which some file systems tell no better
        if len(set(names)) < len(names):
            raise PydanticCustomError("robust_to", "Two models have the same name, give each its own")
        return versions

    def check_private(self, query: Query, own: str) -> None:
        """Refuse what requests to a model, which has its `own` explainer, may not ask for.

        Raises:
            InputError: what the policy's privacy forbids.
        """
        if query.explainer is not None:
            self.privacy.check_asked(query.explainer.name, own)
        if query.region:
            self.privacy.check_region()
        if query.record:
            self.privacy.check_record()
        self.privacy.check_levers({"levers": query.levers, "responsiveness": query.responsiveness})
        if query.reasons:
            self.privacy.check_reasons()

    def margin_for(self, asked: float | None) -> float:
        """Return the margin on the probability for a request that asks for `asked`.

        Raises:
            InputError: it is smaller than the policy's.
        """
        if asked is not None and asked < self.margin:
            raise InputError("margin", f"{asked} is less than the policy's {self.margin}", "ask for more")
        return float(self.margin if asked is None else asked)

    def variety_for(self, diversity: Diversity | None, min_difference: float | None) -> Variety:
        """Return how several answers to a request must differ.

        Raises:
            InputError: by less than the policy's least difference.
        """
        if min_difference is not None and min_difference < self.min_difference:
            fact = f"{min_difference} is less than the policy's {self.min_difference}"
            raise InputError("min_difference", fact, "ask for more, or leave it out")
        least = self.min_difference if min_difference is None else min_difference
        return Variety(diversity or self.diversity, float(least))

    def why_not_for(self, asked: WhyNotAsked | None, *, owner: bool = False) -> WhyNotAsked:
        """Return how many reasons are searched for a request, or for the `owner`, who asks for `asked`.

        Raises:
            InputError: a request asks for reasons where the policy gives none.
        """
        if asked and not self.why_not and not owner:
            raise InputError("why_not", f"{asked!r} is more than the policy's false", "leave it out")
        return self.why_not if asked is None else asked

    def target_for(
        self, asked: Target | Mapping[str, Any] | Label | None, model: OpenModel, *, owner: bool = False
    ) -> Target:
        """Return the target of a request, or of the `owner`, that asks for `asked`.

        Raises:
            InputError: a target the model cannot meet, one that asks for less than the policy's, or another one where
                the policy seals its own.
        """
        if asked is None:
            return self.target
        wanted = Target.read(asked, model)
        if "target" in self.seal and not owner:
            self.target.check_same(wanted, model)
        return self.target.tightened(wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain JSON values."""
        return {
            **self.model_dump(mode="json", exclude={"target", "constraints"}),
            "target": self.target.to_dict(),
            "constraints": self.constraints.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Rebuild a policy from `to_dict`."""
        return validated(cls, dict(data), "policy")


class NamedExplainer(BaseModel):
    """An explainer by name, with options.

    Attributes:
        name: one of ours, or of an installed package.
        options: those left out have the explainer's defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: StrictStr
    options: Annotated[dict[StrictStr, Any], Field(max_length=MAX_OPTIONS)] = {}


class Query(BaseModel):
    """The options of one request; everything that is left out comes from the policy.

    Attributes:
        explain: which rows: those that miss the target (default), all of them, or none.
        count: counterfactuals per row.
        constraints: more constraints; the policy's hold as well.
        target: another wanted outcome.
        explainer: another explainer, by name or as ``{"name": ..., "options": {...}}``.
        seed: same artifact, rows, options and seed give the same answer.
        time_limit_s: seconds for all explanations together.
        max_evaluations: rows scored per explained row.
        certify: prove that nothing is nearer, as far as the limits allow.
        robust_to: names of other models in the artifact under which answers must hold as well, or true for all.
        plausible: whether answers must look like the background, or ``{"quantile": ...}`` for how much.
        survival: whether answers must survive retraining, or ``{"confidence": ..., "holds": ...}`` for how surely.
        margin: by how much the probability must exceed the least one; not less than the policy's.
        diversity: which of several answers come first: the best of every set of changed features (``sets``), or the
            nearest (``near``).
        min_difference: several answers differ by a level, or in a number by this share of its range; not less than the
            policy's.
        why_not: how much to find out about rows without counterfactual: ``quick``, ``full``, or false for nothing.
        region: whether each counterfactual is widened to a box in which every admissible row is one, too: of the
            features that it changes (true), or of all (``all``).
        levers: sets of features, or a number: the nearest answer of each set, or of all sets of up to so many groups.
        responsiveness: whether to tell which share of the lawful changes of each feature group turns the decision.
        language: of sentences, ``en`` or ``de``.
        record: whether the reply has a record of each row, which `mlflow-cf check` verifies later.
        reasons: whether to tell the principal factors behind an unfavourable decision: true, or an object with
            ``reference`` (``approved`` or ``favourable_median``) and ``most``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    explain: Explain = "unfavourable"
    count: Annotated[StrictInt, Field(ge=1)] = 1
    constraints: Constraints = Constraints()
    target: Target | StrictBool | StrictInt | StrictStr | StrictFloat | None = None
    explainer: NamedExplainer | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None
    time_limit_s: Seconds | None = None
    max_evaluations: Annotated[StrictInt, Field(ge=1)] | None = None
    certify: StrictBool = False
    robust_to: StrictBool | Annotated[tuple[StrictStr, ...], Field(max_length=MOST_VERSIONS)] = ()
    plausible: StrictBool | Plausibly = False
    survival: StrictBool | SurvivalAsked = False
    margin: Margin | None = None
    diversity: Diversity | None = None
    min_difference: LeastDifference | None = None
    why_not: WhyNotAsked | None = None
    region: RegionAsked = False
    levers: LeversAsked | None = None
    responsiveness: StrictBool = False
    language: Language | None = None
    record: StrictBool = False
    reasons: ReasonsAsked = False

    @field_validator("region", mode="before")
    @classmethod
    def _no_number(cls, asked: object) -> object:
        if not isinstance(asked, bool | str):
            raise PydanticCustomError("region", "Input should be true, false or 'all'")
        return asked

    @field_validator("explainer", mode="before", json_schema_input_type=StrictStr | NamedExplainer | None)
    @classmethod
    def _name_alone(cls, asked: object) -> object:
        if asked is None or isinstance(asked, Mapping):
            return asked
        if not isinstance(asked, str):
            raise PydanticCustomError("explainer", "Input should be a valid string, or an object with name and options")
        return {"name": asked}

    @classmethod
    def read(cls, options: Mapping[str, Any], limits: QueryLimits | None = None) -> Query:
        """Return the validated options of a request; a null option counts as left out.

        Raises:
            InputError: options larger than `limits`, before anything in them is read; unknown keys or values of the
                wrong form, each with its path.
        """
        if limits is not None:
            check_extent(options, limits)
        default = vars(NOTHING_ASKED)
        data = {key: value for key, value in options.items() if value is not None and value is not default.get(key)}
        return validated(cls, data, "") if data else NOTHING_ASKED

    @classmethod
    def asked(cls, params: Mapping[str, Any] | None, limits: Limits) -> Query:
        """Return the validated options among the params of a request, which are within the policy's limits.

        Raises:
            InputError: another param, options that are no object, as `read`, or beyond the limits.
        """
        options = _params_of(params).get(WHOLE) or {}
        if not isinstance(options, Mapping):
            raise InputError(WHOLE, f"a {type(options).__name__} is not an object", "send {...}")
        if not options:
            return NOTHING_ASKED
        query = cls.read(options, limits.query)
        query.check(limits)
        return query

    def points(self, features: int) -> int:
        """Return how many points next to the decision boundary the reply may tell of a row with so many features."""
        rungs = len(self.target.ladder) if isinstance(self.target, Target) else 0
        answers = max(self.count, rungs) * (1 + (2 * features if self.region else 0))
        sizes = range(1, min(self.levers, features) + 1) if isinstance(self.levers, int) else ()
        named = len(self.levers) if isinstance(self.levers, tuple) else 0
        sets = sum(comb(features, size) for size in sizes) + named
        return 0 if self.explain == "none" else answers + sets + (features if self.responsiveness else 0)

    def check_count(self, limits: Limits) -> None:
        """Refuse, of a caller in Python, more answers than the policy's limit."""
        if self.count > limits.count:
            fact = f"{self.count} is more than the policy's {limits.count}"
            raise InputError("count", fact, f"ask for less, or set limits={{'count': {self.count}}} when wrapping")

    def check(self, limits: Limits) -> None:
        """Refuse what goes beyond the policy's limits."""
        raise_all(
            InputError(key, f"{asked} is more than the policy's {limit}", "ask for less")
            for key in ("count", "time_limit_s", "max_evaluations")
            if (asked := getattr(self, key)) is not None and asked > (limit := getattr(limits, key))
        )


NOTHING_ASKED: Final = Query()


def _params_of(params: object) -> Mapping[str, Any]:
    """Return the params of a request, of which there is one.

    Raises:
        InputError: no object, or a param of another name.
    """
    whole = f'{{"{WHOLE}": {{...}}}}'
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InputError("params", f"a {type(params).__name__} is not an object", f"pass {whole}")
    for name in params:
        if name != WHOLE:
            inside = name in Query.model_fields
            fix = f"write it inside: {whole}" if inside else did_you_mean(name, [WHOLE], "keys")
            raise InputError(f"params.{name}", "not a known key", fix)
    return params
