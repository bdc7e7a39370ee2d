"""Small random problems with a model inside, and the answers that enumeration finds: what exact search must repeat."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from rule_worlds import comparisons, rule_texts
from worlds import FEATURES, KEYS, background, stepped, table, wide_rows

from mlflow_cf.constraints import Constraints
from mlflow_cf.engine.engine import Engine
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.goal import BoundTarget, Scorer
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.policy import Distance, Target
from mlflow_cf.problem import BoundPolicy, Budget, Problem
from mlflow_cf.proof.certify import certify
from mlflow_cf.proof.pipeline import run_inquiries
from mlflow_cf.proof.verify import RowTask, VerifiedAnswers, verify_rows
from mlflow_cf.structures import ClippedLine, Forest, Layers, LevelColumn, MonotoneStep, NumberColumn, TreeEnsemble
from mlflow_cf.structures.structure import linked

TOLERANCE = 1e-6
# link, outputs, classes, what the scores are
TASKS: dict[str, tuple[Any, int, int, Any]] = {
    "two": ("sigmoid", 1, 2, "probability"),
    "three": ("softmax", 3, 3, "probability"),
    "rest": ("sigmoid", 3, 3, "probability"),
    "shares": ("identity", 2, 2, "probability"),
    "margin": ("identity", 2, 2, "margin"),
    "margins": ("identity", 3, 3, "margin"),
    "value": ("identity", 1, 0, "none"),
}
CUTS = {"age": (20.5, 22.0, 24.0), "income": (0.25, 0.6, 1.5), "rooms": (1.5, 2.5, 5.0)}
LINKS = [
    "x_cf.rooms <= x_cf.age - 19",
    "IF x_cf.job = 'b' THEN x_cf.member = true",
    "x_cf.income + x_cf.rooms <= x.income + 3",
    "IF x_cf.rooms > x.rooms THEN x_cf.income > x.income",
    "IF x_cf.grade > x.grade THEN x_cf.age > x.age",
    "x_cf.age != x_cf.income * 10 + x_cf.rooms",
]
atoms = comparisons(numbers=("age", "income", "rooms"), ordinals=("grade",), categories=("job",), booleans=("member",))
constraint_dicts = st.fixed_dictionaries(
    {}, optional={**KEYS, "rules": st.lists(st.sampled_from(LINKS) | rule_texts(atoms), min_size=1, max_size=2)}
)
distances = st.builds(
    lambda parts, scale, weights: Distance(*parts, scale=scale, weights=weights),
    st.sampled_from([(0.5, 0.5, 0), (0, 1, 0), (1, 0, 0), (0.2, 0.3, 0.5), (0, 0, 1), (0.5, 0, 0.5)]),
    st.sampled_from(["range", "mad", "percentile"]),
    st.sampled_from([{}, {"age": 2.0, "job": 0.25}]),
)  # fmt: skip


def grow(rng: np.random.Generator, columns: list[Any], depth: int, lines: list[Any]) -> int:
    """Add a subtree to the lines of a forest; return its first node."""
    node = len(lines)
    if not depth or rng.random() < 0.15:
        lines.append((-1, 0.0, False, node, node))
        return node
    lines.append(None)
    at = int(rng.integers(len(columns)))
    column = columns[at][0]
    cuts = [place + 0.5 for place in range(4)] if isinstance(column, LevelColumn) else CUTS[columns[at][1]]
    left, right = grow(rng, columns, depth - 1, lines), grow(rng, columns, depth - 1, lines)
    lines[node] = (at, float(rng.choice(cuts)), bool(rng.random() < 0.5), left, right)
    return node


def forest_of(space: FeatureSpace, rng: np.random.Generator, task: str, shift: np.ndarray) -> TreeEnsemble:
    """Return a random forest whose leaves are few round numbers, so that scores are equal, and on thresholds."""
    link, outputs, _, _ = TASKS[task]
    columns: list[Any] = []
    for at, feature in enumerate(space.features):
        numbers = rng.permutation(len(feature.levels) + 2).astype(float)
        columns.append((LevelColumn(at, numbers) if feature.levels else NumberColumn(at), feature.name))
    lines: list[Any] = []
    roots: list[int] = []
    trees = int(rng.integers(1, 7))
    for _ in range(trees):
        roots.append(len(lines))
        grow(rng, columns, int(rng.integers(1, 5)), lines)
    value = rng.integers(-4, 5, (len(lines), outputs)) / 4
    if task == "shares":
        first = rng.integers(0, 9, len(lines)) / 8
        value = np.column_stack([first, 1 - first]) / trees
    elif task == "margin":
        value = np.column_stack([-value[:, 0], value[:, 0]])
    column, threshold, missing, left, right = (np.array(part) for part in zip(*lines, strict=True))
    forest = Forest(
        np.array(roots, dtype=np.int32), np.full(trees, -1, dtype=np.int32), column.astype(np.int32), threshold,
        missing, left.astype(np.int32), right.astype(np.int32), value, "<= float64", shift, link,
    )  # fmt: skip
    return TreeEnsemble.compile(forest, [column for column, _ in columns], space)


def layers_of(space: FeatureSpace, rng: np.random.Generator, task: str, shift: np.ndarray, hidden: int) -> Layers:
    """Return a random linear model, or a network with one hidden layer."""
    link, outputs, _, _ = TASKS[task]
    columns: list[Any] = []
    for at, feature in enumerate(space.features):
        if feature.levels:
            columns.append(LevelColumn(at, rng.integers(-2, 3, len(feature.levels) + 2).astype(float)))
        else:
            columns.append(
                NumberColumn(at, (MonotoneStep(lambda codes: np.nan_to_num(codes / 8.0), ClippedLine(1 / 8)),))
            )
    widths = [len(columns), *([hidden] if hidden else []), outputs]
    weights = [rng.integers(-4, 5, shape) / 4 for shape in pairwise(widths)]
    biases = [rng.normal(0, 1, width) for width in widths[1:]]
    biases[-1] = shift
    if task == "margin":
        weights[-1] = np.column_stack([-weights[-1][:, 0], weights[-1][:, 0]])
    activation: Any = rng.choice(["relu", "tanh", "logistic"]) if hidden else "identity"
    return Layers.compile(columns, space, weights, biases, activation, link)


@dataclass(frozen=True)
class Drawn:
    """One row to explain, drawn: the data, the wishes, the model and the target.

    Attributes:
        model: forest, linear, network; none: a forest that nobody opened.
        quantile: about the share of rows that miss the target.
    """

    seed: int
    grid: bool
    constraints: dict[str, Any]
    distance: Distance
    query: dict[str, Any]
    count: int
    model: str
    task: str
    goal: str
    quantile: float
    least: float | None

    @cached_property
    def frame(self) -> pd.DataFrame:
        return stepped(self.seed, 10) if self.grid else background(self.seed, 10)

    @cached_property
    def bound_policy(self) -> BoundPolicy:
        steps = {"age": {"step": 1}, "rooms": {"step": 1}, "income": {"step": 0.5}} if self.grid else {}
        space = FeatureSpace.infer(self.frame, {**FEATURES, **steps})
        values: Any = "grid" if self.grid else "observed"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
            constraints = Constraints.read(self.constraints)
            return BoundPolicy.build(space, space.encode(self.frame), constraints, self.distance, values)

    @cached_property
    def space(self) -> FeatureSpace:
        return self.bound_policy.space.covering(table([self.query], self.frame))

    @cached_property
    def x0(self) -> np.ndarray:
        return self.space.encode(table([self.query], self.frame))[0]

    def _structure(self, shift: np.ndarray) -> TreeEnsemble | Layers:
        rng, space = np.random.default_rng(self.seed), self.bound_policy.space
        if self.model in ("linear", "network"):
            return layers_of(space, rng, self.task, shift, 4 if self.model == "network" else 0)
        return forest_of(space, rng, self.task, shift)

    @cached_property
    def structure(self) -> TreeEnsemble | Layers:
        return self._structure(self.shift)

    @cached_property
    def shifted(self) -> TreeEnsemble | Layers:
        """The structure, but for half of the tolerance."""
        return self._structure(self.shift + TOLERANCE / 2 * np.where(np.arange(len(self.shift)) % 2, -1, 1))

    @cached_property
    def shift(self) -> np.ndarray:
        """What moves the model so that the target is met by about the wanted share of rows."""
        shift = np.zeros(TASKS[self.task][1])
        sums = _sums(self._structure(shift), self.shuffled)
        if self.task == "margin":
            middle = np.quantile(sums[:, 1], self.quantile, method="higher")
            shift = np.array([middle, -middle])
        elif self.task == "two":
            shift[0] = -np.quantile(sums[:, 0], self.quantile, method="higher")
        elif self.task in ("three", "rest", "margins"):
            lead = sums[:, 1] - np.delete(sums, 1, axis=1).max(axis=1)
            shift[1] = -np.quantile(lead, self.quantile, method="higher")
        return shift

    @cached_property
    def shuffled(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed + 1)
        return np.column_stack([rng.choice(column, 200) for column in self.bound_policy.background.T])

    @cached_property
    def judge(self) -> Judge:
        """The model as logged: the structure, but for half of the tolerance, one way or the other."""
        link, _, classes, kind = TASKS[self.task]

        def scores(rows: pd.DataFrame) -> np.ndarray:
            sums = _sums(self.structure, self.space.encode(rows)).round(
                9
            )  # the same, however many rows are asked about
            exact = linked(sums, link)
            noise = (exact * 7919.0) % 1.0 - 0.5
            return exact + TOLERANCE * noise * np.maximum(1.0, np.abs(exact))

        labels = tuple("abc"[:classes])
        if not classes:
            return Judge(OpenModel("test", (), lambda rows: scores(rows)[:, 0]), argmax_decides=False)
        names = np.array(list(labels))
        model = OpenModel("test", labels, lambda rows: names[scores(rows).argmax(axis=1)], scores, kind)
        return Judge(model, argmax_decides=True)

    @cached_property
    def target(self) -> BoundTarget:
        model = self.judge.model
        own = self.verdict(self.x0[None])
        if not model.classes:
            values = _sums(self.structure, self.shuffled)[:, 0]
            low = float(np.quantile(values, self.quantile, method="higher"))
            high = float(np.quantile(values, (1 + self.quantile) / 2, method="higher"))
            wanted = {"label": Target(low=low), "other": Target(high=-low), "third": Target(low=low, high=high)}
            return BoundTarget(wanted[self.goal], model, spread=3.0)
        least = self.least if model.score_kind == "probability" else None
        if self.goal == "other":
            return BoundTarget(Target.other(least), model, int(own.codes[0]))
        label = "a" if self.goal == "third" else "b"
        return BoundTarget(Target(label=label, min_probability=least), model, int(own.codes[0]))

    def verdict(self, Z: np.ndarray) -> Outcome:
        return self.judge.verdict(self.space.decode(Z))

    def accepts(self, Z: np.ndarray) -> np.ndarray:
        """Return whether rows meet the target."""
        return self.target.rate(self.verdict(Z)).favourable

    @property
    def ordered(self) -> bool:
        """Whether the rules can be ordered, and do not depend on each other in a circle."""
        try:
            _ = self.bound_policy
        except InputError:
            return False
        return True

    @property
    def open(self) -> bool:
        """Whether there is something to search: rules that can be ordered, a row that misses the target."""
        return self.ordered and not self.accepts(self.x0[None])[0]

    def row_task(self, evaluations: int = 10**7, structure: Any = None) -> RowTask:
        """Return the row as a request would bind it."""
        scorer = (
            None if self.model == "none" else Scorer.of([(structure or self.structure, self.target)], len(self.space))
        )
        problem = self.bound_policy.bind(
            self.x0,
            space=self.space,
            count=self.count,
            rate=lambda Z: self.target.rate(self.verdict(Z)),
            rate_background=lambda: self.target.rate(self.verdict(self.bound_policy.background)),
            scorer=scorer,
        )
        return RowTask(Engine(problem), self.target, Budget(evaluations))

    def proved(self, task: RowTask, rows: np.ndarray, *, polish: bool) -> VerifiedAnswers:
        """Return verified answers among rows, as another explainer would have them."""
        (found,) = run_inquiries(
            self.judge, self.space, [verify_rows(replace(task, budget=Budget(10**7)), rows, polish=polish)]
        )
        assert isinstance(found, VerifiedAnswers), found
        return found

    def certified(self, task: RowTask, verified: VerifiedAnswers | None = None) -> VerifiedAnswers:
        return self.asked(task, verified)[0]

    def asked(
        self, task: RowTask, verified: VerifiedAnswers | None = None, ask: Any = None
    ) -> tuple[VerifiedAnswers, int]:
        """Return answers with certificates, and how many rows the judge was asked about; `ask` is called before."""
        if verified is None:
            verified = self.proved(task, np.empty((0, len(self.space))), polish=True)
        return self.told(certify(task, verified, TOLERANCE), ask)

    def told(self, run: Any, ask: Any = None) -> tuple[VerifiedAnswers, int]:
        """Return what comes of an inquiry, and how many rows the judge was asked about."""
        rows = 0
        try:
            Z = next(run)
            while True:
                rows += len(Z)
                if ask is not None:
                    ask()
                Z = run.send(self.verdict(Z))
        except StopIteration as end:
            return end.value, rows


def _sums(structure: Any, Z: np.ndarray) -> np.ndarray:
    return structure.sums([structure.encode(column, Z[:, column]) for column in range(Z.shape[1])])


@st.composite
def drawn(draw: Any, models: tuple[str, ...] = ("forest", "forest", "linear", "network", "none")) -> Drawn:
    return Drawn(
        seed=draw(st.integers(0, 2**16)),
        grid=draw(st.booleans()) and draw(st.booleans()),
        constraints=draw(constraint_dicts),
        distance=draw(distances),
        query=draw(wide_rows),
        count=draw(st.integers(1, 3)),
        model=draw(st.sampled_from(models)),
        task=draw(st.sampled_from(sorted(TASKS))),
        goal=draw(st.sampled_from(["label", "label", "other", "third"])),
        quantile=draw(st.sampled_from([0.5, 0.8, 0.95, 1.0])),
        least=draw(st.sampled_from([None, 0.5, 0.6, 0.7310585786300049])),
    )


class Enumerated:
    """Every row that is a counterfactual, found by trying all combinations of tuples, nearest first.

    Attributes:
        rows: (m, d) by distance, then number of changed groups, then tuples.
        distance: (m,) of each; sets: the changed groups of each.
    """

    def __init__(self, world: Drawn) -> None:
        groups = [domain.columns for domain in world.bound_policy.domains]
        x0 = world.x0
        parts = [np.vstack([domain.actions, x0[list(domain.columns)]]) for domain in world.bound_policy.domains]
        places = np.array(list(product(*(range(len(part)) for part in parts))))
        Z = np.empty((len(places), len(x0)))
        for columns, part, place in zip(groups, parts, places.T, strict=True):
            Z[:, columns] = part[place]
        Z = np.unique(np.where(np.isnan(Z), np.inf, Z), axis=0)  # two missing values are not equal to it
        Z[np.isinf(Z)] = np.nan
        Z = Z[world.bound_policy.covering(world.space).accepts(Z, x0)]
        Z = Z[world.accepts(Z)] if len(Z) else Z
        differs = (x0 != Z) & ~(np.isnan(Z) & np.isnan(x0))
        changed = np.column_stack([differs[:, columns].any(axis=1) for columns in groups])
        distance = world.bound_policy.bound_distance.distance(tuple(groups), Z, x0)
        tuples = np.where(np.isnan(Z), np.inf, Z)[:, [column for columns in groups for column in columns]]
        order = np.lexsort((*tuples.T[::-1], changed.sum(axis=1), distance))
        self.groups, self.x0 = groups, x0
        self.rows, self.distance, self.changed = Z[order], distance[order], changed[order]
        self.known = {row.tobytes() for row in self.rows}
        self.ranges = np.array([f.high - f.low if f.numeric else 0.0 for f in world.space.features])

    def minimal(self, at: int) -> bool:
        """Whether no changed group can be put back."""
        for number in np.flatnonzero(self.changed[at]).tolist():
            back = self.rows[at].copy()
            back[list(self.groups[number])] = self.x0[list(self.groups[number])]
            if back.tobytes() in self.known:
                return False
        return True

    def codes(self, problem: Problem) -> np.ndarray:
        """Return the tuples of the rows by code."""
        codes = np.empty((len(self.rows), len(problem.groups)), dtype=int)
        for number, group in enumerate(problem.groups):
            place = {tuple(map(str, line)): code for code, line in enumerate((group.actions + 0.0).tolist())}
            codes[:, number] = [place[tuple(map(str, line))] for line in self.rows[:, group.columns].tolist()]
        return codes

    def answers(self, count: int, least: float = 0.05) -> list[int]:
        """Return positions of the answers: the nearest of every changed set, then others, all of them 1-minimal.

        None of the others is a near-copy: some number differs by the share `least` of its range, or a level does.
        """
        minimal = [at for at in range(len(self.rows)) if self.minimal(at)]
        chosen: list[int] = []
        for at in minimal:
            if len(chosen) < count and not any((self.changed[at] == self.changed[other]).all() for other in chosen):
                chosen.append(at)
        for at in minimal:
            if len(chosen) < count and not any(self.near(at, other, least) for other in chosen):
                chosen.append(at)
        return chosen

    def nearest(self, count: int, least: float = 0.05) -> list[int]:
        """Return positions of the nearest 1-minimal rows that differ by as much, whatever they change."""
        chosen: list[int] = []
        for at in range(len(self.rows)):
            if len(chosen) < count and self.minimal(at) and not any(self.alike(at, one, least) for one in chosen):
                chosen.append(at)
        return chosen

    def near(self, at: int, other: int, least: float) -> bool:
        return not (self.changed[at] != self.changed[other]).any() and self.alike(at, other, least)

    def alike(self, at: int, other: int, least: float) -> bool:
        for one, two, spread in zip(self.rows[at], self.rows[other], self.ranges, strict=True):
            alike = one == two or (np.isnan(one) and np.isnan(two))
            if not alike and not abs(one - two) < least * spread:
                return False
        return True
