"""Other models and plausibility, wrapped with a model so that answers can be required to meet them too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlflow_cf.causal.learn import Arrays
from mlflow_cf.constraints import Origin
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Learned
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import Requirement
from mlflow_cf.metrics.plausibility_model import Plausibility
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.model.versions import Version, read_versions, shown_features
from mlflow_cf.policy import Policy
from mlflow_cf.policy.further import AnyVersions, VersionsAsked


@dataclass(frozen=True, eq=False)
class ExtraModels:
    """Further requirements that a model was wrapped with.

    Attributes:
        versions: name -> another model, under which answers may have to be valid.
        plausibility: the learned measure of how much rows look like the background, if there is one.
    """

    versions: Mapping[str, Requirement] = field(default_factory=dict)
    plausibility: Plausibility | None = None

    @classmethod
    def learn(
        cls,
        policy: Policy,
        versions: Mapping[str, OpenModel],
        space: FeatureSpace,
        background: Floats,
        plausibility: Plausibility | None = None,
    ) -> ExtraModels:
        """Learn from coded background rows (n, d) what a policy asks for, unless `plausibility` was learned before.

        Raises:
            InputError: a version that does not take the same features, or cannot meet the same target; neighbours
                wanted where no rows are kept.
        """
        opened = {
            name: version_of(Origin("policy", "robust_to", name), model, space, background)
            for name, model in versions.items()
        }
        if policy.plausible is not None and policy.plausible.method == "lof" and not policy.privacy.keeps_rows:
            fact = "'lof' compares with rows of data, and privacy.sample 'summary' keeps none"
            raise InputError("plausible.method", fact, "use 'isolation_forest'")
        if policy.plausible is not None and plausibility is None:
            plausibility = Plausibility.learn(policy.plausible.method, space, background)
        for requirement in opened.values():
            requirement.check(policy.target)
        return cls(opened, plausibility)

    def split(self, asked: AnyVersions) -> tuple[VersionsAsked, tuple[Version, ...]]:
        """Return the names in `asked` of models that are here, and the other models, which are still to be opened.

        Raises:
            InputError: it is no list, or has models with malformed names.
        """
        if asked is None or isinstance(asked, bool):
            return asked or (), ()  # as an option that is left out
        named = tuple(one for one in asked if isinstance(one, str) and one in self.versions)
        return named, read_versions([one for one in asked if not (isinstance(one, str) and one in self.versions)])

    def describe(self) -> dict[str, str]:
        """Return the note on the structure of each, by its path."""
        every = [*self.versions.values(), *([self.plausibility.requirement] if self.plausibility else [])]
        return {one.origin.path: one.opened.note for one in every}


@dataclass(frozen=True, eq=False)
class LearnedOnce:
    """What was learned of the background once.

    Attributes:
        learned: by the explainer, if it learns; extra_models: by further requirements.
        causal: for the policy's causal equations with a model, in order; empty: it is still to be learned.
    """

    learned: Learned | None = None
    extra_models: ExtraModels = field(default_factory=ExtraModels)
    causal: tuple[Arrays, ...] = ()


def version_of(origin: Origin, model: OpenModel, space: FeatureSpace, background: Floats) -> Requirement:
    """Return the requirement to hold under another model, which sees rows of `space`.

    Raises:
        InputError: it needs a column that is not there.
    """
    return Requirement.learn(origin, shown_features(model, space, origin.name), space, background)
