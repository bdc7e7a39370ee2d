"""Which trials a model has before a clock starts: of its explainer, of proofs and of reasons."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from mlflow_cf.engine.few_changes import try_few_changes
from mlflow_cf.engine.nearest import try_moves
from mlflow_cf.engine.sets.search import try_sets
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import AnyExplainer, GeCo
from mlflow_cf.goal import BoundTarget, spread_of
from mlflow_cf.policy import Query
from mlflow_cf.request.context import RequestContext
from mlflow_cf.request.portfolio import FEW, FEW_LISTED
from mlflow_cf.request.request import Caller
from mlflow_cf.request.warmth import SEVERAL, TRIED, TRIED_IN_TABLES, Warmth, hardest_row, query_to_try
from mlflow_cf.structures.joined import Joined


@dataclass(frozen=True, eq=False)
class Trials:
    """What is tried before requests, so that none of them waits for what is compiled or loaded on first use.

    Attributes:
        context: what requests share.
        background: (n, d) raw rows.
        warmth: what was tried.
        answer: answers rows to a query by an explainer for a caller.
        reasons: tells the reasons of a row.
    """

    context: RequestContext
    background: pd.DataFrame
    warmth: Warmth
    answer: Callable[[pd.DataFrame, Query, AnyExplainer, Caller], object]
    reasons: Callable[..., object]

    def warm_up(self) -> None:
        """Try the model's own explainer, proofs, long tables, and reasons where the owner has words for them."""
        certified, explainer = self.context.required.structure is not None, self.context.searches.own.explainer
        self.warmth.once((explainer.name, certified), partial(self._explainer, explainer, certified))
        self.warmth.once("proofs", self._proofs)
        self.warmth.once("tables", self._tables)
        if self.context.policy.reasons or self.context.policy.protected:  # others may never ask for any
            self.warmth.once("reasons", self._reasons)

    def warmed(self, query: Query, explainer: AnyExplainer, caller: Caller, rows: int) -> Caller:
        """Try what a request for so many rows may need for the first time; return its caller with the seconds left.

        What the model's own explainer needs takes none of them, what another one needs a part.
        """
        certified = query.certify or self.context.policy.certify
        what = explainer.name, certified
        harder = query.count > 1 or bool(query.constraints.model_fields_set)  # than what the policy alone asks for
        if query.reasons and caller.seconds is not None:
            self.warmth.once("reasons", self._reasons)
        if rows > FEW and caller.seconds is not None:
            self.warmth.once("tables", self._tables)
        if caller.seconds is None or {what, *(("proofs",) if harder else ())} <= self.warmth.tried:
            return caller
        if self.context.required.structure is None or not self.context.searches.has(explainer):
            return caller
        trial = partial(self._explainer, explainer, certified)
        if explainer == self.context.searches.own.explainer:
            self.warmth.once(what, trial)
        else:
            caller = caller._replace(seconds=self.warmth.left(what, trial, caller.seconds))
        if harder:
            self.warmth.once("proofs", self._proofs)
        return caller

    def _explainer(self, explainer: AnyExplainer, certified: bool, seconds: float) -> None:  # noqa: FBT001  a partial's
        structure, bound_policy = self.context.required.structure, self.context.bound_policy
        query = query_to_try(self.context.policy.limits, opened=structure is not None, certified=certified)
        caller = Caller(seconds, 0.0, served=False, trial=True)
        with suppress(InputError):  # a model that cannot predict this row, or an explainer that needs more options
            self.answer(self._refused, query, explainer, caller)
            if isinstance(structure, Joined):  # more rows take another way
                self.answer(self._refused.iloc[[0] * (FEW_LISTED + 1)], query, explainer, caller)
        if structure is not None and len(bound_policy.space) > 1:
            try_few_changes(structure, bound_policy.background[:TRIED])
            try_sets(structure, bound_policy.background[:TRIED])
            try_moves(structure, bound_policy.background[:TRIED])

    def _proofs(self, seconds: float) -> None:
        """Search, prove and reason about the hardest row, and measure changes of a group: what few rows need."""
        if self.context.required.structure is None:
            return
        row = hardest_row(self._target, self.context.model.outcome)
        for certified in (True, False):
            query = query_to_try(self.context.policy.limits, opened=True, certified=certified, count=SEVERAL)
            with suppress(InputError):
                self.answer(self.background.iloc[[row]], query, GeCo(), Caller(seconds, 0.0, served=False, trial=True))
        bound_policy = self.context.bound_policy
        codes = bound_policy.background[:TRIED]
        bound_policy.bound_distance.parts(tuple(range(len(bound_policy.space))), codes, codes[0])

    def _tables(self, seconds: float) -> None:
        """Explain a long table, of which blocks of rows are looked at together, for one answer and for several."""
        if self.context.required.structure is None:
            return
        refused = np.flatnonzero(~self._target.met(self.context.model.outcome))[:TRIED_IN_TABLES]
        hardest = hardest_row(self._target, self.context.model.outcome)
        rows = self.background.iloc[np.resize([hardest, *refused], FEW + 1)]
        for count in (1, SEVERAL):
            query = query_to_try(self.context.policy.limits, opened=True, certified=False, count=count)
            with suppress(InputError):
                self.answer(rows, query, GeCo(), Caller(seconds, 0.0, served=False, trial=True))

    def _reasons(self, seconds: float) -> None:
        with suppress(InputError):  # as above
            self.reasons(self._refused, time_limit_s=seconds)

    @property
    def _refused(self) -> pd.DataFrame:
        """A row (1, d) that misses the target, if there is any."""
        return self.background.iloc[[int(self._target.met(self.context.model.outcome).argmin())]]

    @property
    def _target(self) -> BoundTarget:
        model = self.context.model
        return BoundTarget(self.context.policy.target, model.judge.model, spread=spread_of(model.outcome))
