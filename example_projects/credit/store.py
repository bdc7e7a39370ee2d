"""Where MLflow keeps runs and models."""

from __future__ import annotations

import logging
from pathlib import Path

import mlflow


def use_store(folder: str, experiment: str = "") -> None:
    """Keep everything in `folder` (a database and the artifacts), or where MLflow is set to when it is empty.

    An empty `experiment` leaves the choice to MLflow.
    """
    # INFO tells of every new table of the database and of each registered version; our own lines say enough.
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    if folder:
        home = Path(folder).resolve()
        home.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{home / 'mlflow.db'}")
        if experiment and mlflow.get_experiment_by_name(experiment) is None:
            mlflow.create_experiment(experiment, artifact_location=(home / "artifacts").as_uri())
    if experiment:
        mlflow.set_experiment(experiment)
