"""What every explainer is: a search for candidates. One shared pipeline proves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.engine.engine import Engine
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.learned import Facts, Learned, Learning
from mlflow_cf.features import Floats
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.plan import Plan
from mlflow_cf.policy import Privacy
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Optimum

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in `typing` from Python 3.13 on


class LeastCost(NamedTuple):
    """What is proved of costs.

    Attributes:
        bound: no row that was compared costs less; None: nothing is proved.
        note: why not, or what was not compared.
    """

    bound: float | None
    note: Uncertified | None = None


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a search found.

    Attributes:
        rows: (m, d) codes of candidate rows the search believes favourable, best first.
        diagnostics: statistics of the run, such as generations.
        certify: whether the answers shall be proved nearest, also where the request does not ask for that.
        plans: for each row the steps that lead to it, the last of which ends there; rows with plans are never
            polished, so that they stay what their plans lead to. Only the last row of a plan is proved.
        action_model: what the actions of the plans do: every step of an answer's plan is verified by it; None: nothing
            is declared of them, and only the ends of the plans are verified.
        costs: (m,) what each row costs its explainer; where that keeps its own order, it is that of the costs.
        as_listed: whether the own order is that of the rows in spite of their costs.
        least_cost: proves what the cheapest row costs at least, where the explainer can: takes the position of the
            cheapest answer, a budget, and how far sums may be off; None: nothing is proved of costs.
        bound: proved by the explainer: no row that its own restrictions leave is nearer than this; inf: they leave no
            row that meets target and constraints. Answers are proved by this alone, since a certificate would not know
            of the restrictions. None: it proves nothing.
        more: looks for other rows where these, once verified and polished, are fewer answers than are wanted; it takes
            from the budget of the search. Not beside plans or costs.
        optima: what is proved of the costs of the first rows by an objective of the explainer's own.
        complete: whether answers that are missing among those wanted shall be looked for by exact search.
        promise: rows (m, d) -> (m,): what the explainer says of its answers beyond target and constraints; needless
            changes are put back only where that still holds. None: nothing more.
        engine: what the search has found out about the row by its opened model: certificates go on from there.
    """

    rows: Floats
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    certify: bool = False
    plans: tuple[Plan, ...] | None = None
    action_model: ActionModel | None = None
    costs: Floats | None = None
    as_listed: bool = False
    least_cost: Callable[[int, Budget, float], LeastCost] | None = None
    bound: float | None = None
    more: Callable[[], Floats] | None = None
    optima: tuple[Optimum, ...] = ()
    complete: bool = False
    promise: Callable[[Floats], NDArray[np.bool_]] | None = None
    engine: Engine | None = None

    def __post_init__(self) -> None:
        if self.more is not None and not (self.plans is None and self.costs is None):
            raise ValueError("rows with plans or costs have no more beside them")
        if self.costs is not None and (np.shape(self.costs) != (len(self.rows),) or not np.isfinite(self.costs).all()):
            raise ValueError("costs are not one finite number per row")
        if self.plans is None:
            return
        if len(self.plans) != len(self.rows) or not all(self.plans):
            raise ValueError("plans are not one or more steps per row")
        ends = np.array([plan[-1].row for plan in self.plans]).reshape(self.rows.shape)
        if not same(ends, self.rows).all():
            raise ValueError("a plan does not end at its row")

    @cached_property
    def order(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """(m,) positions of the rows in the explainer's own order: by cost, ties and rows without as handed over."""
        if self.costs is None or self.as_listed:
            return np.arange(len(self.rows))
        return np.argsort(self.costs, kind="stable")


Search = Callable[[Problem, Budget, np.random.Generator], Candidates]


@runtime_checkable
class Explainer(Protocol):
    """A method that searches candidates; immutable and thread-safe, its options are dataclass fields.

    Beside what is listed here it may have:

    * ``keeps_order: bool``: whether its answers stay in its own order instead of that of the distance;
    * ``returns_rows: ClassVar[bool]``: whether its candidates are rows of the background, as they are or nearly so;
      ``needs_rows: ClassVar[bool]``: whether it makes no sense where each column of the background is shuffled by
      itself; a model that keeps no rows refuses both;
    * ``by_request: ClassVar[Mapping[str, Any]]``: options that a request may set, each with the type that pydantic
      checks; every number needs bounds, so that no caller can ask for absurd work;
    * ``check(facts: Facts, count: int) -> None``: raises an `InputError` if it cannot search for so many answers, or
      not with this model; called when wrapping and before a request searches any row.

    Attributes:
        name: name in requests and artifacts.
    """

    name: ClassVar[str]

    @property
    def polish(self) -> bool:
        """Whether needless changes of its answers may be undone; a class variable, or an option."""
        ...

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search candidates for `problem`; ask `budget` before every batch of scored rows, draw only from `rng`."""
        ...


@runtime_checkable
class Learner(Protocol):
    """An explainer that learns from the background before it can search; everything else is as for `Explainer`.

    ``learned_by: ClassVar[tuple[str, ...]]`` may name the options that what it learns depends on; by default all do.

    Attributes:
        name: name in requests and artifacts.
    """

    name: ClassVar[str]

    @property
    def polish(self) -> bool:
        """Whether needless changes of its answers may be undone."""
        ...

    def learn(self, facts: Facts) -> Learned | Learning:
        """Learn what searches need; the same facts give the same, to the bit.

        Called once when wrapping, and stored in the artifact. A request that names a learner which was not logged
        waits for it on its own clock, once per process; so it should take seconds at most, and whatever takes longer
        than some hundredths of a second be a generator that yields after as much of its work and returns the rest:
        then requests stop in time, and later ones go on where it stopped.

        Raises:
            InputError: it cannot learn from these facts; labels may be missing, for example.
        """
        ...

    def bound(self, learned: Learned) -> Search:
        """Return the search that uses what was learned; called once per process, it learns nothing itself."""
        ...


AnyExplainer = Explainer | Learner


def learns(explainer: AnyExplainer) -> TypeIs[Learner]:
    """Whether an explainer learns before it searches; as `isinstance`, which takes far longer for a protocol."""
    return hasattr(explainer, "learn")


def keeps_order(explainer: AnyExplainer) -> bool:
    """Whether answers stay in the explainer's own order."""
    return bool(getattr(explainer, "keeps_order", False))


def returns_rows(explainer: AnyExplainer) -> bool:
    """Whether candidates are rows of the background."""
    return bool(getattr(explainer, "returns_rows", False))


def check_rows_kept(explainer: AnyExplainer, privacy: Privacy) -> None:
    """Refuse an explainer that needs rows of data where none are kept.

    Raises:
        InputError: it does, and there are none.
    """
    if not privacy.keeps_rows and (returns_rows(explainer) or getattr(explainer, "needs_rows", False)):
        fact = f"{explainer.name!r} needs rows of data, and privacy.sample 'summary' keeps none"
        raise InputError("explainer", fact, "use another, such as 'geco', or privacy.sample 'private'")


def check_explainer(explainer: AnyExplainer, facts: Facts, count: int) -> None:
    """Let the explainer refuse a number of answers, or a model; most have nothing to say.

    Raises:
        InputError: what it refuses.
    """
    check: Callable[[Facts, int], None] | None = getattr(explainer, "check", None)
    if check is not None:
        check(facts, count)
