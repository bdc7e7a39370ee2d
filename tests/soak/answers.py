"""Thousands of counterfactuals of all explainers, models and kinds of constraints, held against the logged pyfunc.

    python tests/soak/answers.py [20000]

Every one is scored again by the model as MLflow loads it, checked against all constraints by a checker that shares no
code with the package, and sent back with the types of the signature. Prints what was found; ends with 1 at a fault.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import mlflow
import pandas as pd
from mlflow.pyfunc import PyFuncModel

from mlflow_cf import save_model
from mlflow_cf.explainers import EXPLAINERS
from mlflow_cf.explainers.registry import explainer_of
from mlflow_cf.testing.answers import check_account, check_agreement, check_constraints
from mlflow_cf.testing.models import KINDS
from mlflow_cf.testing.trial import SCENARIOS, Scenario, Trial
from mlflow_cf.testing.worlds import table


def trials() -> Iterator[Trial]:
    """Yield every scenario with every explainer, again and again with other rows."""
    for seed in count(100):
        for number, scenario in enumerate(SCENARIOS):
            for name in EXPLAINERS:
                trial = Trial.of(scenario, explainer_of(name))
                rows = table(seed + number, 12, plain=KINDS[scenario.kind].plain)
                yield replace(trial, rows=rows.astype(trial.rows.dtypes.to_dict()))


def stored(trial: Trial, folder: Path) -> PyFuncModel:
    """Return the scenario's explained model as MLflow loads it."""
    folder.mkdir()
    source = trial.model.model if trial.model.store is None else trial.model.store(folder)
    functions = KINDS[trial.scenario.kind].function
    save_model(source, folder / "saved", trial.background, allow_functions=functions, validate="here", **trial.options)
    return mlflow.pyfunc.load_model(str(folder / "saved"))


def drifted(trial: Trial, reloaded: PyFuncModel) -> int:
    """Return how many counterfactuals the stored model does not take, or decides in another way."""
    answers = [answer for *_, answer in trial.found()]
    if not answers:
        return 0
    columns = {name: [answer.row[name] for answer in answers] for name in trial.background.columns}
    # as the signature has them: whole numbers that may be missing are doubles, and levels are texts
    as_sent = {"Int64": float, "category": object}
    kinds = {name: as_sent.get(str(dtype), dtype) for name, dtype in trial.background.dtypes.items()}
    sent = pd.DataFrame({name: pd.Series(values, dtype=kinds[name]) for name, values in columns.items()})
    said = reloaded.predict(sent, {"counterfactual": {"explain": "none"}})["prediction"]
    return sum(not _same(one, answer.prediction) for one, answer in zip(said, answers, strict=True))


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-6 * max(1.0, abs(other))
    return one == other


def main(wanted: int) -> None:
    """Go on until so many counterfactuals were checked, and print how many were at fault."""
    warnings.simplefilter("ignore")
    tally: Counter[str] = Counter()
    models: dict[Scenario, PyFuncModel] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for trial in trials():
            if trial.scenario not in models:
                models[trial.scenario] = stored(trial, Path(scratch) / str(len(models)))
            tally["counterfactuals"] += len(list(trial.found()))
            tally[f"of {trial.explainer.name}"] += len(list(trial.found()))
            for check in (check_agreement, check_constraints, check_account):
                try:
                    check(trial)
                except AssertionError as error:
                    tally[f"faults in {check.__name__}"] += 1
                    print(trial.scenario, trial.explainer.name, check.__name__, str(error)[:500])
            tally["decided otherwise by the stored model"] += drifted(trial, models[trial.scenario])
            if tally["counterfactuals"] >= wanted:
                break
    print(*(f"{number:,} {what}" for what, number in tally.items()), sep="\n")
    if any("faults" in what for what in tally) or tally["decided otherwise by the stored model"]:
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
