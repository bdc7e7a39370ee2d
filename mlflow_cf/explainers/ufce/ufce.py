"""UFCE (Suffian et al. 2024): counterfactuals within what a user is ready to change, by one, two and three changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import StrictBool

from mlflow_cf.explainers.explainer import Candidates, Search
from mlflow_cf.explainers.learned import Facts, Learned, Learning
from mlflow_cf.explainers.options import Span, asked, check_names, check_options
from mlflow_cf.explainers.ufce.known import Known, learn_all
from mlflow_cf.explainers.ufce.run import UFCEOptions, UFCESearch
from mlflow_cf.problem import Budget, Problem

Changes = Literal[1, 2, 3, "all"]
How = Literal["auto", "walk", "scan"]
Plausibility = Literal["background", "refit", "off"]
Ranking = Literal["distance", "paper"]
STEP: Final = Span(1e-300, 1e150)
OPTIONS: Final = {
    "changes": Changes,
    "search": How,
    "plausibility": Plausibility,
    "ranking": Ranking,
    "radius": Span(1e-6, 1e6, optional=True),
    "pairs": Span(1, 100, whole=True, optional=True),
}


@dataclass(frozen=True)
class UFCE:
    """Single changes, pairs and triples of changes, between the row and the favourable rows around it.

    What the user is ready to change is what the constraints leave: `ranges` and `relative` of a request are the
    feedback. Two features are paired if they tell much of each other; one moves, and the others follow by prediction.

    Attributes:
        changes: at most 1, 2 or 3 groups, fewer only where so many give no answer; or ``all`` of these searches.
        search: ``walk`` halves what is left of a number's values, as in the paper; ``scan`` reads whole response curves
            and assumes nothing; ``auto`` scans models that could be opened.
        plausibility: whether answers are inliers of the ``background``; ``refit``, as in the paper: of the background
            and the row, which is fitted for every row; ``off``: not asked.
        ranking: by the problem's ``distance``, or as in the ``paper``: Jaccard's distance of levels plus the Euclidean
            one of numbers as a share of its largest; such answers keep their order.
        radius: of the neighbourhood, in standard deviations; None: the smallest that holds ten rows and 5 %.
        pairs: so many pairs are tried, those that tell most of each other; None: all of up to twelve features, ten of
            more.
        steps: by feature, how far apart the values of a continuous number are; by default 1 % of what it may be.
        nested_triples: whether, where no triple is accepted with what is predicted, a third group is tried beside a few
            values of two others; the paper has nothing of the kind.
        polish: whether needless changes are undone, which may turn a triple into a pair.
    """

    changes: Changes = "all"
    search: How = "auto"
    plausibility: Plausibility = "background"
    ranking: Ranking = "distance"
    radius: float | None = None
    pairs: int | None = None
    steps: Mapping[str, float] = field(default_factory=dict)
    nested_triples: bool = True
    polish: bool = True

    name: ClassVar[str] = "ufce"
    needs_rows: ClassVar[bool] = True
    learned_by: ClassVar[tuple[str, ...]] = ()
    by_request: ClassVar[Mapping[str, Any]] = {
        **asked(OPTIONS),
        "plausibility": Literal["background", "off"],
        "nested_triples": StrictBool,
        "polish": StrictBool,
    }

    def __post_init__(self) -> None:
        check_options(self, OPTIONS)
        for feature, step in self.steps.items():
            STEP.check(f"explainer.steps.{feature}", step)

    @property
    def keeps_order(self) -> bool:
        """Whether answers keep the paper's order."""
        return self.ranking == "paper"

    def check(self, facts: Facts, count: int) -> None:
        """Refuse steps of features that are not there."""
        del count
        check_names("explainer.steps", self.steps, facts.space)

    def learn(self, facts: Facts) -> Learning:
        """Learn which features go together, what predicts each of them, and where the background is dense."""
        return learn_all(facts)

    def bound(self, learned: Learned) -> Search:
        """Return the search, which knows all that the background tells."""
        return partial(self._search, Known.of(learned))

    def _search(self, known: Known, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search what is asked for; return plausible rows, best first."""
        del rng  # nothing is drawn
        return UFCESearch(self._aim, known, problem, budget).candidates()

    @property
    def _aim(self) -> UFCEOptions:
        return UFCEOptions(
            variants=(1, 2, 3) if self.changes == "all" else (self.changes,),
            search=self.search,
            plausibility=self.plausibility,
            paper=self.keeps_order,
            radius=self.radius,
            pairs=self.pairs,
            steps=self.steps,
            nested_triples=self.nested_triples,
        )
