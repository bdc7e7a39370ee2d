"""Scorecards for mlflow-cf."""

from functools import partial
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
from mlflow.models import Model
from scorecard import Scorecard

from mlflow_cf.features import FeatureSpace
from mlflow_cf.model import OpenModel
from mlflow_cf.structures import IntervalColumn, Layers, LevelColumn, NumberColumn, Structure

MLFLOW_FLAVOR = "scorecard"
FILE = "scorecard.json"


def accepts(model: object) -> bool:
    return isinstance(model, Scorecard)


def requirements(model: object) -> list[str]:
    return ["scorecard==1.0"]


def save(model, path: Path, *, signature, pip_requirements: list[str], allow_functions: bool = False) -> None:
    path.mkdir()
    model.write(path / FILE)
    (path / "requirements.txt").write_text("\n".join(pip_requirements))
    meta = Model(signature=signature)
    meta.add_flavor(MLFLOW_FLAVOR, data=FILE)
    mlflow.pyfunc.add_to_model(meta, loader_module="scorecard", data=FILE)
    meta.save(path / "MLmodel")


def load(path: Path) -> Scorecard:
    return Scorecard.read(path / FILE)


def open(model, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    columns, inside = (*model.bins, *model.levels), partial(structure, model)
    if not model.labels:
        return OpenModel(MLFLOW_FLAVOR, (), model.predict, columns=columns, compile=inside)

    def margins(rows: pd.DataFrame) -> np.ndarray:
        over = model.points(rows) - model.threshold
        return np.column_stack([-over, over])

    return OpenModel(MLFLOW_FLAVOR, model.labels, model.predict, margins, "margin", columns, compile=inside)


def structure(card: Scorecard, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    columns: list = []
    for name, (ends, points) in card.bins.items():
        columns.append(IntervalColumn(NumberColumn(space.index[name]), np.array(ends), np.array(points)))
    for name, known in card.levels.items():
        points = dict(known)
        table = [points.get(level, 0.0) for level in space[name].levels]
        columns.append(LevelColumn(space.index[name], np.array([*table, 0.0, 0.0])))  # unseen levels, missing ones
    weights = np.ones((len(columns), 1)) * ([-1.0, 1.0] if card.labels else [1.0])
    bias = np.array([card.threshold, -card.threshold] if card.labels else [0.0])
    return Layers.compile(columns, space, [weights], [bias], "identity", "identity")
