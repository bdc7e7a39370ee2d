"""How many retrained models must accept an answer so that it will probably survive the next retraining.

Somebody acts on advice for months, and the model is retrained meanwhile. Let p be the share of all models that
retraining may give under which an answer holds. Each retrained model accepts the answer with probability p, so of `of`
models that are drawn alike `agreeing` accept it with the binomial probability, and by Bayes' rule a uniform prior of p,
Beta(1, 1), becomes Beta(1 + agreeing, 1 + of - agreeing). The answer is promised to survive if the probability of
p >= holds under it is at least `confidence`. With all models agreeing that is 1 - holds ** (of + 1) >= confidence.

That is true of one row that is looked at. A search looks at many, and stops at the nearest that enough models accept:
of rows with a smaller p, some are accepted by luck, and these are found. As with any test that is made several times,
the chance of an error is therefore divided by how many rows are taken to be compared (Bonferroni): with 10 of them,
0.95 and 0.9 need 89 models that all agree, where a single row needs 44. Rows beside each other are accepted by the same
models, so that these are far fewer than the rows a search goes through.

Source: Stepka, Stefanowski and Lango, Counterfactual Explanations with Probabilistic Guarantees on their Robustness to
Model Change, KDD 2025 (BetaRCE), section 3, with the same prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from scipy.special import betainc

from mlflow_cf.errors import InputError
from mlflow_cf.validation import Number, validated

Share = Annotated[Number, Field(gt=0, lt=1)]
How = Literal["bootstrap", "folds"]
Labels = Literal["kept", "drawn"]
WHERE: Final = "survival"
MOST_MODELS: Final = 256
MOST_MISSES: Final = 32
MOST_COMPARED: Final = 1_000_000
Margin = Annotated[Number, Field(ge=0, lt=0.5)]
HALF: Final = 0.5  # of the rows: a bootstrap of so many varies as the next model does beside the present one
Count = Annotated[StrictInt, Field(ge=1, le=MOST_MODELS)]


def confidence_of(agreeing: int, of: int, holds: float) -> float:
    """Return how probable it is that an answer holds under a share `holds` of all models, if so many of some agree."""
    return float(1.0 - betainc(1 + agreeing, 1 + of - agreeing, holds))


def share_held(agreeing: int, of: int) -> float:
    """Return the expected share of all models under which an answer holds: the mean of the posterior."""
    return (1 + agreeing) / (2 + of)


def needed_of(of: int, holds: float, confidence: float) -> int | None:
    """Return the fewest of some models that must agree; None: all of them are too few to show it."""
    return next((k for k in range(of + 1) if confidence_of(k, of, holds) >= confidence), None)


def models_for(holds: float, confidence: float, misses: int = 0) -> int:
    """Return the fewest models that show it although so many of them refuse the answer.

    Raises:
        InputError: more than `MOST_MODELS`.
    """
    for of in range(misses + 1, MOST_MODELS + 1):
        if confidence_of(of - misses, of, holds) >= confidence:
            return of
    fact = f"a share of {holds} needs more than {MOST_MODELS} models to be shown"
    raise InputError(WHERE, fact, "ask for a smaller share, for less confidence, or for fewer misses")


class Survives(BaseModel):
    """A share of future models under which answers must hold, and how sure that must be.

    Attributes:
        confidence: how probable it must be that an answer holds under so many.
        holds: the share of the models that retraining may give.
        compared: how many independent rows a search is taken to compare; 1 for the bound of a single row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: Share = 0.9
    holds: Share = 0.95
    compared: Annotated[StrictInt, Field(ge=1, le=MOST_COMPARED)] = 10

    @property
    def sure(self) -> float:
        """How probable it must be of each row alone."""
        return 1.0 - (1.0 - self.confidence) / self.compared


class Survival(Survives):
    """The retrained models of an artifact, and how many of them must accept an answer.

    Attributes:
        models: how they were made: each fitted to a ``bootstrap`` of the data, or to half of it (``folds``); or
            ``given`` by the owner.
        of: how many there are.
        margin: by how much each must find the wanted label likelier than the target asks, to accept an answer.
        required: whether every answer must survive, or only where a request asks for that.
    """

    models: Literal["bootstrap", "folds", "given"] = "bootstrap"
    of: Count
    margin: Margin = 0.0
    required: StrictBool = True

    @property
    def needed(self) -> int:
        """The fewest of the models that must accept an answer.

        Raises:
            InputError: even all of them would be too few.
        """
        found = needed_of(self.of, self.holds, self.sure)
        if found is None:
            fact = f"{self.of} models cannot show a share of {self.holds} with confidence {self.confidence}"
            reached = 1.0 - self.compared * (1.0 - confidence_of(self.of, self.of, self.holds))
            fix = f"ask for a confidence up to {int(reached * 1000) / 1000}, or for a" if reached > 0 else "ask for a"
            raise InputError(WHERE, fact, f"{fix} smaller share")
        return found

    def tightened(self, asked: AskedSurvival) -> Survival:
        """Return what a request asks for, at least what the policy does.

        Raises:
            InputError: it asks for less, or for more than these models can show.
        """
        wanted = asked if isinstance(asked, SurvivalAsked) else SurvivalAsked()
        found = {name: value for name in ("confidence", "holds") if (value := getattr(wanted, name)) is not None}
        for name, value in found.items():
            if self.required and value < getattr(self, name):
                fact = f"{value} is less than the policy's {getattr(self, name)}"
                raise InputError(f"{WHERE}.{name}", fact, "ask for more, or leave it out")
        tighter = self.model_copy(update=found)
        _ = tighter.needed
        return tighter


class SurvivalAsked(BaseModel):
    """The survival that a request asks of answers, at least that of the policy.

    Attributes:
        confidence: instead of the policy's; holds: likewise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: Share | None = None
    holds: Share | None = None


class SurvivalWanted(Survives):
    """The survival that an owner asks for when a model is wrapped.

    Attributes:
        models: how retrained models are made: the estimator is fitted to a ``bootstrap`` of the rows, or to halves of
            them (``folds``); or the retrained models themselves.
        rows: how many rows a bootstrap draws, as a share of all; fewer make models differ more.
        labels: whether rows that are drawn have their own labels (``kept``), or others that were as likely (``drawn``).
        margin: by how much each model must find the wanted label likelier than the target asks. Where none of `rows`,
            `labels` and `margin` is given, halves of the rows tell which of some the promise needs.
        misses: how many of them may refuse an answer. More misses need more models, and give nearer answers.
        required: whether every answer must survive, or only where a request asks for that.
    """

    models: How | tuple[Any, ...] = "bootstrap"
    rows: Annotated[Number, Field(gt=0, le=1)] | None = None
    labels: Labels | None = None
    margin: Margin | None = None
    misses: Annotated[StrictInt, Field(ge=0, le=MOST_MISSES)] | None = None
    required: StrictBool = True

    @classmethod
    def read(cls, source: SurvivalSource) -> SurvivalWanted | None:
        """Return what is wanted from an object, a dict, or True for all defaults; None or False is nothing.

        Raises:
            InputError: an unknown key, a value out of bounds, or models that are too few or too many.
        """
        if source is None or source is False:
            return None
        if isinstance(source, SurvivalWanted):
            return source
        if source is not True and not isinstance(source, Mapping):
            fact = f"a {type(source).__name__} is no survival"
            raise InputError(WHERE, fact, 'pass {"confidence": 0.9, "holds": 0.95, "models": "bootstrap"}')
        data = {} if source is True else dict(source)
        models = data.get("models", ())
        if not isinstance(models, str | list | tuple):
            fact = f"a {type(models).__name__} is not a list of models"
            raise InputError(f"{WHERE}.models", fact, 'pass [model, ...], "bootstrap" or "folds"')
        if isinstance(models, list):
            data["models"] = tuple(models)
        read = validated(cls, data, WHERE)
        if not read.retrained and read.misses is not None:
            fact = "how many of given models may refuse an answer follows from their number"
            raise InputError(f"{WHERE}.misses", fact, "leave it out")
        if not read.retrained and read.labels is not None:
            raise InputError(f"{WHERE}.labels", "given models are not fitted", "leave it out")
        if len(read.given) > MOST_MODELS:
            fact = f"has {len(read.given)} models, at most {MOST_MODELS}"
            raise InputError(f"{WHERE}.models", fact, "pass fewer")
        _ = read.policy(read.wanted_models).needed
        return read

    @property
    def retrained(self) -> bool:
        """Whether models are to be fitted, instead of given."""
        return isinstance(self.models, str)

    @property
    def on_trial(self) -> bool:
        """Whether it is left to a trial how strict the promise is."""
        return self.models == "bootstrap" and self.rows is None and self.labels is None and self.margin is None

    @property
    def drawn(self) -> float:
        """How many rows a bootstrap draws, as a share of all."""
        return HALF if self.rows is None else float(self.rows)

    @property
    def given(self) -> tuple[Any, ...]:
        """The models that the owner gives."""
        return () if isinstance(self.models, str) else self.models

    @property
    def wanted_models(self) -> int:
        """How many models there shall be."""
        return models_for(self.holds, self.sure, self.misses or 0) if self.retrained else len(self.given)

    def policy(self, of: int) -> Survival:
        """Return what becomes part of the policy, with so many models."""
        how = self.models if isinstance(self.models, str) else "given"
        known = {"confidence": self.confidence, "holds": self.holds, "compared": self.compared, "models": how, "of": of}
        return validated(Survival, {**known, "margin": self.margin or 0.0, "required": self.required}, WHERE)


SurvivalSource = SurvivalWanted | Mapping[str, Any] | bool | None
AskedSurvival = bool | SurvivalAsked
