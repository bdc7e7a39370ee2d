"""What must be true of every run: repeatable, within its budget, without a trace, the same once stored."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from mlflow_cf.artifact.publish.log import load_model, save_model
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer, Learned, NearestRow, learns
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.policy.limits import MOST_ANSWERS
from mlflow_cf.request.admission import Admission
from mlflow_cf.testing.models import KINDS
from mlflow_cf.testing.trial import BACKGROUND_SEED, Trial, rows_of
from mlflow_cf.testing.watched import HOPELESS, RARE, Clock, Watched, watched_row
from mlflow_cf.testing.worlds import DEMANDS, table
from mlflow_cf.words.result import Counterfactual, Explanation

THREADS: Final = 8
TIME_LIMIT_S: Final = 0.4
ABSURD: Final = (10**12, -(10**12), 1e300, -1e300)


def check_repeats(trial: Trial) -> None:
    """The same request is answered the same, to the last bit."""
    assert records(trial.explain(trial.rows)) == records(trial.answers)


def check_rows_apart(trial: Trial) -> None:
    """A row is answered the same wherever it stands in a request, and whatever stands beside it.

    Only probabilities and predicted numbers may differ, in their last bits: libraries add up in another order when
    they predict a table of another size.
    """
    positions = [len(trial.rows) - 1, 0]
    for answer, position in zip(trial.explain(trial.rows.iloc[positions]), positions, strict=True):
        _check_alike(answer, trial.answers[position])


def _check_alike(answer: Explanation, expected: Explanation) -> None:
    assert _without_numbers(answer) == _without_numbers(expected)
    pairs: list[tuple[Explanation | Counterfactual, ...]]
    pairs = [(answer, expected), *zip(answer.counterfactuals, expected.counterfactuals, strict=True)]
    for one, other in pairs:
        assert one.prediction == _near(other.prediction)
        assert one.probability == _near(other.probability)
    for found, before in zip(answer.counterfactuals, expected.counterfactuals, strict=True):
        assert [step.probability for step in found.plan] == [_near(step.probability) for step in before.plan]


def _near(number: Any) -> Any:
    return pytest.approx(number, rel=1e-9) if isinstance(number, float) else number


def _without_numbers(answer: Explanation) -> dict[str, object]:
    """Return the record without what the model says in numbers."""
    found = tuple(
        replace(
            one, prediction=0, probability=None, text="", plan=tuple(replace(s, probability=None) for s in one.plan)
        )
        for one in answer.counterfactuals
    )
    return replace(answer, prediction=0, probability=None, counterfactuals=found).to_dict()


def check_no_trace(trial: Trial) -> None:
    """Tables, constraints, the explainer and the global random numbers are as they were before."""
    explainer, globally = repr(trial.explainer), _global_numbers()
    assert len(trial.explain(trial.rows.iloc[:1])) == len(trial.answers[:1])
    assert _global_numbers() == globally
    assert repr(trial.explainer) == explainer
    assert_frame_equal(trial.background, table(BACKGROUND_SEED, plain=KINDS[trial.scenario.kind].plain))
    assert_frame_equal(trial.rows, rows_of(trial.scenario))
    assert trial.options["constraints"] == DEMANDS[trial.scenario.demands].policy_for(trial.background)
    assert repr(trial.demands) == TOLD[trial.scenario.demands]


def _global_numbers() -> tuple[str, object]:
    return repr(np.random.get_state()), random.getstate()  # noqa: NPY002  to see that nobody touches it


TOLD: Final = {name: repr(demands) for name, demands in DEMANDS.items()}


def check_threads(trial: Trial) -> None:
    """Eight threads at once, each with a row to search for, get the answers that one gets."""
    assert len(trial.answers) == len(trial.rows)
    searched = [position for position, answer in enumerate(trial.answers) if answer.status != "already"]
    roomy = replace(trial.explained, admission=Admission(THREADS))

    def explain(position: int) -> None:
        (answer,) = trial.explain(trial.rows.iloc[[position]], roomy)
        _check_alike(answer, trial.answers[position])

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(explain, searched[thread % len(searched)]) for thread in range(THREADS)]:
            done.result()


def check_stored(trial: Trial, tmp_path: Path) -> None:
    """The model saved and loaded again gives identical answers; what was learned comes back bit for bit, unlearned."""
    source = trial.model.model if trial.model.store is None else trial.model.store(tmp_path)
    functions = KINDS[trial.scenario.kind].function
    save_model(source, tmp_path / "saved", trial.background, allow_functions=functions, **trial.options)
    expected = records(trial.answers)
    with lessons(trial.explainer) as noted:
        loaded = load_model(tmp_path / "saved")
        assert records(trial.explain(trial.rows, loaded)) == expected
    assert not noted
    assert type(loaded.explainer) is type(trial.explainer)
    assert _bits(loaded.learned) == _bits(trial.explained.learned)


def _bits(learned: Learned | None) -> object:
    """Return all that was learned in a form that is equal only if every bit is."""
    arrays = {} if learned is None else learned.arrays
    plain = None if learned is None else json.dumps(learned.plain, sort_keys=True)
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}, plain


@contextmanager
def lessons(explainer: AnyExplainer) -> Iterator[list[object]]:
    """Note every time that explainers of this kind learn, for the time of a `with` block."""
    noted: list[object] = []
    kind = type(explainer)
    with pytest.MonkeyPatch.context() as patch:
        if learns(explainer):
            learn = getattr(kind, "learn")  # noqa: B009  kind is any explainer's for mypy

            def noting(self: AnyExplainer, facts: object) -> object:
                noted.append(facts)
                return learn(self, facts)

            patch.setattr(kind, "learn", noting)
        yield noted


def check_learns_once(explainer: AnyExplainer) -> None:
    """Whoever wraps a model with it lets it learn once; so do all requests together that name it for another model."""
    with lessons(explainer) as noted:
        own = Watched(RARE).explained(explainer)
        expected = learns(explainer)
        assert len(noted) == expected
        other = Watched(RARE).explained(NearestRow())
        row = watched_row()

        def explain(explained: ExplainedModel) -> list[dict[str, object]]:
            return records(explained.explain(row, explainer=explainer, max_evaluations=1000))

        with ThreadPoolExecutor(THREADS) as pool:
            answers = [done.result() for done in [pool.submit(explain, other) for _ in range(THREADS)]]
        assert len(noted) == 2 * expected
        assert answers == [explain(own)] * THREADS
        assert len(noted) == 2 * expected


def check_faulty_row(trial: Trial) -> None:
    """A row that cannot be explained says so, and all others are answered as before."""
    faulty = trial.rows.iloc[[0]].assign(income=np.inf)
    answers = trial.explain(pd.concat([trial.rows, faulty], ignore_index=True))
    assert records(answers[:-1]) == records(trial.answers)
    assert answers[-1].status == "invalid"
    assert "income" in answers[-1].reason


def check_skipped(trial: Trial) -> None:
    """A request without explanations gets none, and costs none."""
    for answer in trial.explained.explain(trial.rows, explain="none"):
        assert (answer.status, answer.evaluations, answer.counterfactuals) == ("skipped", 0, ())


def check_evaluations(explainer: AnyExplainer, most: int, *, scored: bool) -> None:
    """The model sees no more rows than it may, and all of them are told."""
    model = Watched(RARE, scored=scored)
    explained = model.explained(explainer)
    (answer,) = explained.explain(watched_row(), count=2, max_evaluations=most)
    seen = model.rows_seen() - 1  # the row itself is predicted in any scenario
    assert seen <= answer.evaluations <= most
    assert answer.status in ("found", "not_found", "budget")


def check_deadline(explainer: AnyExplainer, least: float) -> None:
    """Past its deadline the model is not asked anything new; by a clock that only the model and its readers move."""
    clock = Clock()
    model = Watched(least, clock=clock)
    explained = model.explained(explainer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", clock)
        started = clock.now
        (answer,) = explained.explain(watched_row(), count=2, time_limit_s=TIME_LIMIT_S)
    assert max(question.began for question in model.questions) <= started + TIME_LIMIT_S
    assert answer.status in ("found", "not_found", "budget")


def check_hopeless(explainer: AnyExplainer, name: str) -> None:
    """Where nothing exists, the status says so and the reason says why; nothing is raised."""
    hopeless = HOPELESS[name]
    explained = Watched(hopeless.least).explained(explainer, hopeless.constraints)
    (answer,) = explained.explain(watched_row(), max_evaluations=3000)
    assert answer.status in hopeless.statuses, answer
    assert answer.reason
    assert not answer.counterfactuals


def check_options(explainer: AnyExplainer) -> None:
    """Name and options restore the explainer, and nobody can change it while others use it."""
    assert explainer_of(explainer_to_dict(explainer)) == explainer
    assert type(explainer_of(explainer.name)) is type(explainer)
    assert is_dataclass(explainer)
    with pytest.raises(FrozenInstanceError):
        explainer.name = "another"


def check_count(explainer: AnyExplainer) -> None:
    """How many answers it cannot search for, it says before anything is asked of the model."""
    for count in (1, MOST_ANSWERS):
        model = Watched(RARE)
        explained = model.explained(explainer)
        try:
            (answer,) = explained.explain(watched_row(), count=count, max_evaluations=1000)
        except InputError:
            assert not model.questions
            continue
        assert answer.status != "invalid", answer.reason
        assert len(answer.counterfactuals) <= count


def check_options_by_request(explainer: AnyExplainer) -> None:
    """A request may set what the explainer declares, within bounds, and nothing else."""
    explained = Watched(RARE).explained(explainer)
    allowed = getattr(explainer, "by_request", {})
    options: dict[str, object] = {}
    if is_dataclass(explainer):
        options = {option.name: option.default for option in fields(explainer)}
    assert set(allowed) <= set(options)

    def ask(option: str, value: object) -> None:
        asked = {"explainer": {"name": explainer.name, "options": {option: value}}, "max_evaluations": 1000}
        (status,) = explained.predict(watched_row(), {"counterfactual": asked})["status"]
        assert status in ("found", "not_found", "budget", "infeasible")

    for option, default in options.items():
        if option in allowed and default is not MISSING:
            ask(option, default)
    for option in (*options, "no such option"):
        for value in ABSURD:
            with pytest.raises(InputError, match=rf"^explainer\.options\.{option}: "):
                ask(option, value)


def records(answers: Sequence[Explanation]) -> list[dict[str, object]]:
    """Return answers as they leave in a reply."""
    return [answer.to_dict() for answer in answers]
