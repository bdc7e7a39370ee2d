"""What every explainer is: a search for candidates. One shared pipeline proves them.

Also the options that explainers take, in Python and by request, and what they learn from and have learned: arrays and
JSON values, the same in memory and stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictInt

from mlflow_cf.engine.engine import Engine
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Outcome
from mlflow_cf.plans.action_model import ActionModel
from mlflow_cf.plans.plan import Plan
from mlflow_cf.policy import Privacy
from mlflow_cf.problem import BoundPolicy, Budget, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.stepwise import Steps
from mlflow_cf.structures.structure import Structure
from mlflow_cf.validation import Number
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Optimum

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in `typing` from Python 3.13 on


class CheaperPlan(NamedTuple):
    """A plan that a proof has found, which costs less than the answers, and its cost."""

    plan: Plan
    cost: float


class LeastCost(NamedTuple):
    """What is proved of costs.

    Attributes:
        bound: no row that was compared costs less, inf: there is none; None: nothing is proved.
        note: why not, or what was not compared.
    """

    bound: float | None
    note: Uncertified | None = None


# Yields cheaper plans, and is sent whether their ends were accepted; None: nobody could be asked.
LeastCostProof = Generator[CheaperPlan, bool | None, LeastCost]


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
        least_cost: proves what the cheapest row costs at least, where the explainer can: takes the plan of the
            cheapest answer, its cost, a budget, and how far sums may be off; None: nothing is proved of costs.
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
    least_cost: Callable[[Plan, float, Budget, float], LeastCostProof] | None = None
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


@dataclass(frozen=True)
class Span:
    """The numbers that an option takes.

    Attributes:
        least, most: both included.
        whole: whether only whole numbers count.
        optional: whether it may be None.
    """

    least: float
    most: float
    whole: bool = False
    optional: bool = False

    def check(self, path: str, value: object) -> None:
        """Refuse what is no such number.

        Raises:
            InputError: naming `path`.
        """
        if value is None and self.optional:
            return
        kinds = (int,) if self.whole else (int, float)
        if type(value) not in kinds or not self.least <= value <= self.most:  # type: ignore[operator]
            what = "whole number" if self.whole else "number"
            raise InputError(path, f"{value!r} is no {what} from {self.least:,g} to {self.most:,g}", "")

    @property
    def asked(self) -> Any:
        """The type by which a request is checked."""
        kind: Any = StrictInt if self.whole else Number
        kept: Any = Annotated[kind, Field(ge=self.least, le=self.most)]
        return kept | None if self.optional else kept


Options = Mapping[str, Any]  # name -> a `Span`, or a `Literal` of texts


def check_options(explainer: object, options: Options) -> None:
    """Refuse an explainer whose options are not what they may be.

    Raises:
        InputError: ``explainer.<option>``, with what is wrong and what to use.
    """
    for name, kept in options.items():
        path, value = f"explainer.{name}", getattr(explainer, name)
        if isinstance(kept, Span):
            kept.check(path, value)
        elif isinstance(value, bool) or value not in get_args(kept):
            raise InputError(path, f"{value!r} is unknown", f"use one of {', '.join(map(str, get_args(kept)))}")


def check_names(path: str, names: Iterable[str], space: FeatureSpace) -> None:
    """Refuse names of features that are not there.

    Raises:
        InputError: ``<path>.<name>``, with the nearest name.
    """
    for name in names:
        if name not in space.index:
            raise InputError(f"{path}.{name}", "not a feature", did_you_mean(name, space.names, "features"))


def asked(options: Options, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return what requests may set: all options, or some by name, with the type that each is checked by."""
    kept = options if not names else {name: options[name] for name in names}
    return {name: one.asked if isinstance(one, Span) else one for name, one in kept.items()}


NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
KINDS: Final = "biufU"  # of arrays: booleans, integers, numbers, text of a fixed length


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known when a model is wrapped, before any row to explain.

    Attributes:
        bound_policy: features, domains, rules and distance of the policy; a request may bring more rules.
        labels: (n,) training target of the background rows as given, or None.
        outcome: what the judge says about the background rows.
        target: the policy's target; a request may name another.
        structure: the white box inside the model, if it could be opened.
        seed: the policy's seed.
    """

    bound_policy: BoundPolicy
    labels: NDArray[np.generic] | None
    outcome: Outcome
    target: BoundTarget
    structure: Structure | None
    seed: int

    @property
    def space(self) -> FeatureSpace:
        """The features."""
        return self.bound_policy.space

    @property
    def background(self) -> Floats:
        """(n, d) coded background rows."""
        return self.bound_policy.background


@dataclass(frozen=True, eq=False)
class Learned:
    """What an explainer has learned; an artifact gives it back bit for bit.

    Attributes:
        arrays: name -> array of booleans, numbers or text; kept as read-only copies in C order.
        plain: JSON values by name; kept as JSON has them, so tuples become lists.

    Raises:
        ValueError: a name that is no identifier, an array of objects, or a value that JSON cannot hold.
    """

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", {name: _read_only(name, array) for name, array in self.arrays.items()})
        try:
            plain = json.loads(json.dumps(dict(self.plain), allow_nan=False))
        except TypeError as error:
            raise ValueError(f"plain values that JSON cannot hold: {error}") from error
        object.__setattr__(self, "plain", plain)


Learning = Steps[Learned]


def steps_of(learning: Learned | Learning) -> Learning:
    """Return the steps in which something is learned; there are none left of what is learned already."""
    return (yield from learning) if isinstance(learning, Generator) else learning


def _read_only(name: str, array: NDArray[Any]) -> NDArray[Any]:
    kept = np.array(array, order="C")
    if not NAME.fullmatch(name) or kept.dtype.kind not in KINDS:
        raise ValueError(f"an array {name!r} of type {kept.dtype}")
    kept.flags.writeable = False
    return kept


def meets(labels: Floats, bound: BoundTarget) -> NDArray[np.bool_]:
    """Return (n,) which labels, as `known_labels` gives them, a target wants."""
    codes = np.zeros(0, dtype=np.intp) if bound.target.interval else labels.astype(np.intp)
    return bound.met(Outcome(codes, values=labels))


def known_labels(facts: Facts) -> Floats:
    """Return (n,) the value of every row, or the position of its label among the model's, -1 where it has none.

    The labels are those of training as given, or else what the model says.
    """
    model = facts.target.model
    if facts.labels is None:
        return np.asarray(facts.outcome.values if model.regression else facts.outcome.codes, dtype=np.float64)
    if model.regression:
        return np.asarray(facts.labels, dtype=np.float64)
    place = {label: float(at) for at, label in enumerate(model.classes)}
    return np.array([place.get(label, -1.0) for label in facts.labels.tolist()])
