"""How much of the background requests may see; the owner of an explained model sees all of it in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr

from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError
from mlflow_cf.validation import UserModel

Sample = Literal["private", "summary", "shown"]
ALLOWED: Final = ("geco", "exact")  # beside the model's own; their answers are verified, and drawn value by value


class Privacy(UserModel):
    """How much of the background leaves with replies to requests.

    Attributes:
        sample: ``private``: no message names its values, and no explainer that returns its rows answers a request
            unless its owner allows it; ``summary``: so too, and nothing but the values of each column, apart from the
            others, is kept at all; ``shown``: it is no secret.
        explainers: names that requests may ask for beside the model's own; None: ``geco`` and ``exact``, or all of
            them where the sample is shown.
        k_anonymous: requests are proposed combinations of a group's values that more than so many background rows
            share; of no meaning where the sample is shown.
        regions: whether requests may ask for regions, which tell where the model's decision changes.
        levers: whether requests may ask for ``levers`` and ``responsiveness``, which tell more of the model's boundary
            than one answer does.
        records: whether requests may ask for records, which repeat the row beside the answer.
        points: most points next to the model's decision boundary that the reply to one request may tell: one for each
            counterfactual, two more for each feature of a region, one for each set of levers, and one for each feature
            of responsiveness; None: any number.
        reasons: whether requests may ask for ``reasons``, which tell what each feature contributes to the score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sample: Sample = "private"
    explainers: tuple[StrictStr, ...] | None = None
    k_anonymous: Annotated[StrictInt, Field(ge=0)] = 5
    regions: StrictBool = True
    levers: StrictBool = True
    records: StrictBool = True
    points: Annotated[StrictInt, Field(ge=1)] | None = None
    reasons: StrictBool = True

    @property
    def reveals(self) -> bool:
        """Whether messages to requests may name values of the background, and groups propose its rarest ones."""
        return self.sample == "shown"

    @property
    def rare(self) -> int:
        """How many background rows or fewer share a value that pictures and lists of levels leave out; 0: none is."""
        return 0 if self.reveals else self.k_anonymous

    @property
    def keeps_rows(self) -> bool:
        """Whether a model keeps rows of the data it is wrapped with; else columns shuffled apart stand in for them."""
        return self.sample != "summary"

    def check_together(self, constraints: Constraints) -> None:
        """Refuse constraints that are made of what rows have together where no rows are kept.

        Raises:
            InputError: there are groups, or causal functions to learn, and no rows.
        """
        if constraints.groups and not self.keeps_rows:
            fact = "privacy.sample 'summary' keeps no rows, and so no combinations"
            raise InputError("constraints.groups", fact, "write them as rules, or leave them out")
        learned = [number for number, equation in enumerate(constraints.causal) if isinstance(equation.model, str)]
        if learned and not self.keeps_rows:
            fact = "is learned from rows, and privacy.sample 'summary' keeps none"
            raise InputError(f"constraints.causal[{learned[0]}].model", fact, "give coefficients")

    def check_region(self) -> None:
        """Refuse regions where requests may not ask for them.

        Raises:
            InputError: the policy gives none.
        """
        if not self.regions:
            raise InputError("region", "the policy's privacy gives requests none", "leave it out")

    def check_points(self, told: int) -> None:
        """Refuse a request whose reply could have `told` too many points next to the decision boundary.

        Raises:
            InputError: more than the policy allows.
        """
        if self.points is not None and told > self.points:
            fact = f"could tell {told:,} points next to the decision boundary, more than privacy.points {self.points:,}"
            raise InputError("counterfactual", fact, "ask for fewer rows, answers or levers, or leave region out")

    def check_record(self) -> None:
        """Refuse records where requests may not ask for them.

        Raises:
            InputError: the policy gives none.
        """
        if not self.records:
            raise InputError("record", "requests to this model may not ask for it (privacy.records)", "leave it out")

    def check_levers(self, asked: Mapping[str, object]) -> None:
        """Refuse options of a request, by name, that the policy does not allow.

        Raises:
            InputError: levers or responsiveness are asked for, and requests may not.
        """
        for name, value in asked.items() if not self.levers else ():
            if value:
                raise InputError(name, "requests to this model may not ask for it (privacy.levers)", "leave it out")

    def check_reasons(self) -> None:
        """Refuse reasons where requests may not ask for them.

        Raises:
            InputError: the policy gives none.
        """
        if not self.reasons:
            raise InputError("reasons", "requests to this model may not ask for it (privacy.reasons)", "leave it out")

    def answering(self, own: str) -> tuple[str, ...] | None:
        """Return the explainers that requests may ask for, the model's `own` one first; None: all of them."""
        if self.explainers is None and self.reveals:
            return None
        return tuple(dict.fromkeys([own, *(ALLOWED if self.explainers is None else self.explainers)]))

    def check_asked(self, name: str, own: str) -> None:
        """Refuse the explainer `name` if requests may not ask for it; `own` is that of the model, chosen by its owner.

        Raises:
            InputError: it is not allowed.
        """
        allowed = self.answering(own)
        if allowed is not None and name not in allowed:
            fact = f"{name[:60]!r} does not answer requests to this model"
            raise InputError("explainer", fact, f"ask for {' or '.join(map(repr, allowed))}, or leave it out")
