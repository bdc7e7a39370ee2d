"""Explainers, answers and models with one fault each, and the check that must notice it."""

import threading
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import StrictInt

from mlflow_cf import InputError, NearestRow, RandomSearch
from mlflow_cf.explainers import EXPLAINERS, Learned, PlannedStep
from mlflow_cf.testing import KINDS, Ruler, Scenario, answers, conduct, opened
from mlflow_cf.testing import opened as certified
from mlflow_cf.testing.opened import Opening
from mlflow_cf.testing.trial import Trial
from mlflow_cf.testing.watched import NEVER, RARE, watched_row

FREE = Scenario("function", "binary", "none", "observed")
BOUND = Scenario("function", "binary", "all", "observed")


@dataclass(frozen=True)
class Sound:
    name: ClassVar[str] = "faulty"
    polish: ClassVar[bool] = True

    def search(self, problem, budget, rng):
        return RandomSearch(copies=100).search(problem, budget, rng)


class Spendthrift(Sound):
    def search(self, problem, budget, rng):
        problem.rate(np.tile(problem.x0, (20, 1)))
        return super().search(problem, budget, rng)


class Moody(Sound):
    def search(self, problem, budget, _rng):
        return super().search(problem, budget, np.random.default_rng())


class Learning(Sound):
    past: ClassVar[list[int]] = []

    def search(self, problem, budget, _rng):
        self.past.append(1)
        return super().search(problem, budget, np.random.default_rng(len(self.past)))


class Meeting:
    """Threads of a pool wait for each other, once each."""

    def __init__(self):
        self.barrier, self.known = threading.Barrier(8), threading.local()

    def __call__(self):
        if threading.current_thread() is not threading.main_thread() and not hasattr(self.known, "met"):
            self.known.met = True
            self.barrier.wait(60)


class Careless(Sound):
    """Keeps what belongs to one row where other threads see it."""

    current: ClassVar[list[object]] = []
    meeting: ClassVar[Meeting] = Meeting()

    def search(self, problem, budget, rng):
        self.current[:] = [problem]
        self.meeting()
        return super().search(self.current[0], budget, rng)


class Loud(Sound):
    def search(self, problem, budget, rng):
        np.random.random()  # noqa: NPY002
        return super().search(problem, budget, rng)


class Deaf(Sound):
    """Does not hear the clock."""

    def search(self, problem, budget, rng):
        for _ in range(50):
            problem.rate(np.tile(problem.x0, (5, 1)))
        return super().search(problem, budget, rng)


class Failing(Sound):
    def search(self, _problem, _budget, _rng):
        raise ZeroDivisionError


class Blind(Sound):
    def search(self, problem, budget, rng):
        found = super().search(problem, budget, rng)
        return replace(found, rows=found.rows[:0])


@dataclass
class Changeable:
    width: int = 1
    name: ClassVar[str] = "faulty"
    polish: ClassVar[bool] = True

    def search(self, problem, budget, rng):
        raise NotImplementedError


def trial(explainer, case=FREE):
    return Trial.of(case, explainer)


def refused():
    return pytest.raises(AssertionError)


@pytest.mark.parametrize("explainer", [Moody(), Learning()], ids=repr)
def test_answers_that_do_not_repeat(explainer):
    with refused():
        conduct.check_repeats(trial(explainer))


def test_rows_that_depend_on_each_other():
    with refused():
        conduct.check_rows_apart(trial(Learning()))


def test_threads_that_see_each_other():
    with refused():
        conduct.check_threads(trial(Careless()))


def test_global_random_numbers():
    with refused():
        conduct.check_no_trace(trial(Loud()))


@pytest.mark.parametrize("scored", [False, True])
def test_rows_scored_beside_the_budget(scored):
    with refused():
        conduct.check_evaluations(Spendthrift(), 1000, scored=scored)


@pytest.mark.parametrize("least", [RARE, NEVER])
def test_a_clock_that_is_not_heard(least):
    with refused():
        conduct.check_deadline(Deaf(), least)


def test_an_exception_in_a_search():
    with refused():
        answers.check_statuses(trial(Failing()))


def test_options_that_change(monkeypatch):
    monkeypatch.setitem(EXPLAINERS, "faulty", Changeable)
    with pytest.raises(pytest.fail.Exception):
        conduct.check_options(Changeable())


def test_a_name_nobody_knows():
    with pytest.raises(InputError, match="no explainer is called 'faulty'"):
        conduct.check_options(Sound())


def test_a_sound_explainer_passes(monkeypatch):
    monkeypatch.setitem(EXPLAINERS, "faulty", Sound)
    sound = trial(Sound())
    for check in (conduct.check_repeats, conduct.check_rows_apart, conduct.check_threads, conduct.check_no_trace):
        check(sound)
    conduct.check_evaluations(Sound(), 1000, scored=True)
    conduct.check_deadline(Sound(), NEVER)
    conduct.check_options(Sound())


# --- what is learned, handed over and asked for


@dataclass(frozen=True)
class Pupil:
    """Learns a number, finds what random search finds, and hands it over from far to near with plans."""

    copies: int = 100
    name: ClassVar[str] = "faulty"
    polish: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = True
    by_request: ClassVar[dict[str, Any]] = {}

    def learn(self, facts):
        return Learned({"number": np.array([facts.background.shape[0]])})

    def bound(self, _learned):
        return self._search

    def _search(self, problem, budget, rng):
        found = RandomSearch(copies=self.copies, polish=False).search(problem, budget, rng)
        rows = found.rows[::-1]
        plans = tuple((PlannedStep("go there", 1.0, 1.0, row),) for row in rows)
        return replace(found, rows=rows, plans=plans)


class Whimsical(Pupil):
    def learn(self, _facts):
        return Learned({"number": np.random.default_rng().random(3)})


class Anew(Pupil):
    """Learns again when it is loaded."""

    def learn(self, _facts):
        return Learned()

    def bound(self, learned):
        self.learn(None)
        return super().bound(learned)


class Boundless(Pupil):
    by_request: ClassVar[dict[str, Any]] = {"copies": StrictInt}


class Mistaken(Pupil):
    by_request: ClassVar[dict[str, Any]] = {"size": StrictInt}


class Late(Sound):
    def search(self, problem, budget, rng):
        if problem.count > 10:
            raise InputError("count", "too many", "")
        return super().search(problem, budget, rng)


@pytest.mark.parametrize("kind", [Whimsical, Anew])
def test_what_is_learned_is_not_what_was_stored(kind, monkeypatch, tmp_path):
    monkeypatch.setitem(EXPLAINERS, "faulty", kind)
    with refused():
        conduct.check_stored(trial(kind()), tmp_path)


def test_one_that_learns_for_every_request(monkeypatch):
    monkeypatch.setattr("mlflow_cf.explainers.searches._key", lambda _: object())
    with refused():
        conduct.check_learns_once(Pupil())


def test_an_order_that_is_not_kept(monkeypatch):
    monkeypatch.setattr("mlflow_cf.request.explaining.keeps_order", lambda _: False)
    with refused():
        answers.check_own_order(trial(Pupil()))


def test_plans_that_are_lost(monkeypatch):
    monkeypatch.setattr("mlflow_cf.request.replies.plan_steps", lambda *_: ())
    with refused():
        answers.check_plans(trial(Pupil()))


def test_rows_of_the_background_that_nobody_is_told_of(monkeypatch):
    monkeypatch.setattr(NearestRow, "returns_rows", False)
    with refused():
        answers.check_rows_told(trial(NearestRow()))


def test_a_count_that_is_refused_too_late():
    with refused():
        conduct.check_count(Late())


@pytest.mark.parametrize("kind", [Boundless, Mistaken])
def test_options_that_no_request_should_set(kind):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        conduct.check_options_by_request(kind())


def test_a_sound_learner_passes(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPLAINERS, "faulty", Pupil)
    sound = trial(Pupil())
    conduct.check_stored(sound, tmp_path)
    answers.check_own_order(sound)
    answers.check_plans(sound)
    answers.check_rows_told(sound)
    for check in (conduct.check_learns_once, conduct.check_count, conduct.check_options_by_request):
        check(Pupil())


# --- answers

SOUND = {case: trial(Sound(), case) for case in (FREE, BOUND)}
EVERY_CHECK = (
    answers.check_agreement,
    answers.check_constraints,
    answers.check_account,
    answers.check_order,
    answers.check_needless,
    answers.check_statuses,
)


def tampered(change, case=BOUND):
    """Return a trial whose first found answer was replaced by `change(trial, answer)`."""
    again = trial(Sound(), case)
    first = next(number for number, answer in enumerate(again.answers) if len(answer.counterfactuals) > 1)
    answers = list(again.answers)
    answers[first] = change(again, answers[first], again.queries[first])
    vars(again)["answers"] = answers
    return again


def with_rows(answer, rows):
    found = tuple(replace(answer.counterfactuals[0], row=row) for row in rows)
    return replace(answer, counterfactuals=found)


def own_row(trial, answer, query):
    return with_rows(answer, [query])


def changed_member(trial, answer, query):
    return with_rows(answer, [{**answer.counterfactuals[0].row, "member": not query["member"]}])


def unknown_value(trial, answer, query):
    return with_rows(answer, [{**answer.counterfactuals[0].row, "hours": 30.01}])


def missing_column(trial, answer, query):
    return with_rows(answer, [{name: value for name, value in query.items() if name != "age"}])


def wrong_distance(trial, answer, query):
    first, *rest = answer.counterfactuals
    return replace(answer, counterfactuals=(replace(first, distance=first.distance * 1.01), *rest))


def wrong_count(trial, answer, query):
    first, *rest = answer.counterfactuals
    return replace(answer, counterfactuals=(replace(first, n_changed=first.n_changed + 1), *rest))


def lost_change(trial, answer, query):
    first, *rest = answer.counterfactuals
    return replace(answer, counterfactuals=(replace(first, changes=first.changes[1:]), *rest))


def reversed_order(trial, answer, query):
    return replace(answer, counterfactuals=answer.counterfactuals[::-1])


def twice_the_same(trial, answer, query):
    return replace(answer, counterfactuals=answer.counterfactuals[:1] * 2)


def one_too_many(trial, answer, query):
    found = answer.counterfactuals[0]
    rows = [replace(found, row={**found.row, "age": age}) for age in range(20, 24)]
    return replace(answer, counterfactuals=tuple(rows))


def wrong_prediction(trial, answer, query):
    return replace(answer, prediction=1 - answer.prediction)


def no_reason(trial, answer, query):
    return replace(answer, status="not_found", reason="", counterfactuals=())


def denied(trial, answer, query):
    return replace(answer, status="infeasible", reason="nothing exists", counterfactuals=())


def found_nothing(trial, answer, query):
    return replace(answer, counterfactuals=())


def needless_change(trial, answer, query):
    """Change one more group than the answer needs, so that it stays a counterfactual."""
    row = answer.counterfactuals[0].row
    for other in (answer.row for _, _, answer in trial.found()):
        joined = {**row, **{name: value for name, value in other.items() if row[name] == query[name]}}
        if joined != row and trial.checker.accepts(query, joined) and trial.met(0, trial.ask([joined])[0]):
            return with_rows(answer, [joined])
    raise LookupError


@pytest.mark.parametrize(
    ("check", "change", "case"),
    [
        (answers.check_agreement, own_row, BOUND),
        (answers.check_constraints, own_row, BOUND),
        (answers.check_constraints, changed_member, BOUND),
        (answers.check_constraints, unknown_value, BOUND),
        (answers.check_constraints, missing_column, BOUND),
        (answers.check_account, own_row, BOUND),
        (answers.check_account, wrong_distance, BOUND),
        (answers.check_account, wrong_count, BOUND),
        (answers.check_account, lost_change, BOUND),
        (answers.check_order, reversed_order, BOUND),
        (answers.check_order, twice_the_same, BOUND),
        (answers.check_order, one_too_many, BOUND),
        (answers.check_needless, needless_change, FREE),
        (answers.check_statuses, wrong_prediction, BOUND),
        (answers.check_statuses, no_reason, BOUND),
        (answers.check_statuses, found_nothing, BOUND),
        (answers.check_statuses, denied, FREE),
    ],
)
def test_answers_that_are_wrong(check, change, case):
    for every in EVERY_CHECK:
        every(SOUND[case])
    with refused():
        check(tampered(change, case))


def test_hopeless_problems_that_are_only_not_found(monkeypatch):
    monkeypatch.setattr("mlflow_cf.proof.pipeline.impossible", lambda _: "")
    with refused():
        conduct.check_hopeless(Blind(), "no value left")


def test_there_is_a_row_to_watch():
    assert len(watched_row()) == 1


# --- models

OPENED = Opening.of(KINDS["function"], "multiclass")
TREES = Opening.of(KINDS["lightgbm"], "sure")


def with_model(**changes):
    return replace(OPENED, model=replace(OPENED.model, **changes), rows=OPENED.rows.copy())


def another_label(rows):
    labels = OPENED.model.decide(rows).copy()
    labels[3:4] = "bad" if labels[3:4] != "bad" else "good"
    return labels


def centred(rows):
    """Scale rows by the table they come in, as a careless transform does."""
    scores = OPENED.model.score(rows)
    return scores - scores.mean(axis=0)


def in_place(rows):
    scores = OPENED.model.score(rows)
    rows["age"] = 0
    return scores


def by_origin(rows):
    """Answer rows that were decoded in another way than those a user passes."""
    return np.where(rows.attrs.get("mine", False), "good", OPENED.model.decide(rows))


OPENED.rows.attrs["mine"] = True


class Shared:
    """Keeps the rows of the last call where other threads see them."""

    def __init__(self):
        self.meeting = Meeting()

    def __call__(self, rows):
        self.rows = rows
        self.meeting()
        return OPENED.model.decide(self.rows)


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        (opened.check_own_decision, {"decide": another_label}),
        (opened.check_own_decision, {"score": lambda rows: OPENED.model.score(rows)[:, ::-1]}),
        (opened.check_shapes, {"decide": lambda rows: OPENED.model.decide(rows)[:, None]}),
        (opened.check_shapes, {"score": lambda rows: OPENED.model.score(rows).astype("float32")}),
        (opened.check_shapes, {"score": lambda rows: OPENED.model.score(rows)[:, :2]}),
        (opened.check_shapes, {"score": lambda rows: OPENED.model.score(rows) * 2}),
        (opened.check_shapes, {"score": None}),
        (opened.check_shapes, {"classes": (0, 1, 2)}),
        (opened.check_both, {"both": lambda rows: (another_label(rows), OPENED.model.score(rows))}),
        (opened.check_both, {"both": lambda rows: (OPENED.model.decide(rows), OPENED.model.score(rows)[:, ::-1])}),
        (opened.check_scores_decide, {"score": lambda rows: OPENED.model.score(rows)[:, ::-1]}),
        (opened.check_rows_apart, {"score": centred, "score_kind": "margin"}),
        (opened.check_rows_apart, {"decide": lambda rows: np.sort(OPENED.model.decide(rows))}),
        (opened.check_no_trace, {"score": in_place}),
        (opened.check_threads, {"decide": Shared()}),
        (opened.check_decoded, {"decide": by_origin}),
    ],
)
def test_models_that_are_wrong(check, changes):
    check(OPENED)
    with refused():
        check(with_model(**changes))


def test_certificates_that_are_wrong(monkeypatch):
    certified.check_certified(TREES)
    with refused():
        certified.check_certified(replace(TREES, kind=replace(TREES.kind, opened=False)))
    with refused():
        certified.check_certified(replace(OPENED, kind=replace(OPENED.kind, opened=True)))
    with refused():
        certified.check_certified(replace(TREES, fitted=replace(TREES.fitted, predict=lambda rows: np.ones(len(rows)))))
    monkeypatch.setattr(Ruler, "distance", lambda *_: 0.0)
    with refused():
        certified.check_certified(TREES)


def test_contributions_that_are_not_those_of_all_sets(monkeypatch):
    opened.check_contributions(TREES)
    right = opened.contributions_of

    def wrong(structure, references, player):
        return right(structure, references[:-1], player)

    monkeypatch.setattr(opened, "contributions_of", wrong)
    with pytest.raises(AssertionError):
        opened.check_contributions(TREES)
