"""An evaluation in MLflow: metrics of the run and of the LoggedModel, the data set, tables and pictures."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import mlflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from mlflow.data.pandas_dataset import PandasDataset, from_pandas
from mlflow.entities import LoggedModelInput
from mlflow.exceptions import MlflowException

from mlflow_cf.evaluation.measure import lines
from mlflow_cf.quiet import quietly

_logger = logging.getLogger(__name__)
PLAIN: Final = frozenset((str, bool, float, type(None), type(pd.NA)))  # types of values that say all that a schema has
AT_ONCE: Final = 500  # metrics; MLflow takes 1,000
SHOWN: Final = 1_000  # rows of the table for MLflow's pages, which is one JSON file
NOTE: Final = "mlflow.note.content"
FOR_READERS: Final = ("status", "reason", "prediction", "text", "changed", "target_probability", "mixed", "proof")


@dataclass(frozen=True, eq=False)
class Logbook:
    """Where an evaluation is written down: the active run, in a folder of its artifacts.

    Attributes:
        run_id: the active run.
        folder: of the run's artifacts.
        model_id: the LoggedModel whose metrics these are; None: metrics are those of the run alone.
        dataset: the rows as MLflow knows them; None: somebody else logs them.
        metrics: whether metrics are logged; else somebody else does so at the end.
        own: whether the run was opened for this, so that it has no note but ours.
    """

    run_id: str
    folder: str
    model_id: str | None
    dataset: Any | None
    metrics: bool = True
    own: bool = False

    def note_input(self) -> None:
        """Tie the data set, and the model if it is known, to the run."""
        if self.dataset is None:
            return
        model = None if self.model_id is None else LoggedModelInput(self.model_id)
        log = partial(mlflow.log_input, self.dataset, context="counterfactual evaluation", model=model)
        with _quiet():
            try:
                log()
            except MlflowException:  # its store looks for a data set, then adds it: another thread may have been first
                log()

    def note_params(self, begin: str, params: Mapping[str, str]) -> None:
        """Log params whose names begin so; those that the run has stay as they are, for MLflow lets none be changed."""
        with _harmless("params"):
            known = mlflow.get_run(self.run_id).data.params
            new = {f"{begin}.{name}": value for name, value in params.items()}
            mlflow.log_params({name: value for name, value in new.items() if name not in known}, run_id=self.run_id)

    def note_words(self, markdown: str) -> None:
        """Write the note that the page of a run of ours shows first; a note that somebody has written stays."""
        with _harmless("a note"):
            if self.own and NOTE not in mlflow.get_run(self.run_id).data.tags:
                mlflow.set_tag(NOTE, markdown)

    def note_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log metrics to the run, and to the LoggedModel with the data set."""
        pairs = list(metrics.items())
        for start in range(0, len(pairs), AT_ONCE):
            with _quiet():
                mlflow.log_metrics(dict(pairs[start : start + AT_ONCE]), model_id=self.model_id, dataset=self.dataset)

    def note_tables(self, paths: Mapping[str, Path], table: pd.DataFrame) -> None:
        """Log every explainer's lines, and the figures as tables."""
        for path in paths.values():
            mlflow.log_artifact(str(path), self.folder)
        mlflow.log_table(_readable(paths), f"{self.folder}/rows.json")
        mlflow.log_text(table.to_csv(index=False), f"{self.folder}/metrics.csv")
        mlflow.log_table(_plain(table), f"{self.folder}/metrics.json")

    def note_pictures(self, pictures: Iterable[tuple[str, Figure]]) -> None:
        """Log pictures by their names."""
        with _harmless("pictures"):
            for name, figure in pictures:
                mlflow.log_figure(figure, f"{self.folder}/{name}.png")


class _Rows(PandasDataset):
    """A table as a data set whose schema is that of some of its rows, which have every type of value.

    MLflow would look at every value by itself.
    """

    @cached_property
    def schema(self) -> Any:
        """The columns with their types, and which of them miss no value."""
        return PandasDataset(_typical(self.df), self.source, name=self.name, digest=self.digest).schema


def dataset_of(rows: pd.DataFrame, name: str) -> Any:
    """Return rows as a data set of MLflow, whose schema takes no categories."""
    levels = rows.select_dtypes("category").columns
    with _quiet():
        whole = from_pandas(rows.astype(dict.fromkeys(levels, "str")), name=name)
    return _Rows(whole.df, whole.source, name=name, digest=whole.digest)


def _typical(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows from which the schema of all is inferred: the first one with each type of value in each column.

    All of them where a column has values of which the type says too little, such as lists, and whole numbers in columns
    of objects.
    """
    places = {0}
    for at in range(rows.shape[1]):
        column, missing = rows.iloc[:, at], rows.iloc[:, at].isna()
        types = column.map(type) if column.dtype.kind == "O" else pd.Series(float, column.index)
        if not set(types.unique()) <= PLAIN:
            return rows
        places |= set(np.flatnonzero(~types.mask(missing).duplicated().to_numpy()).tolist())
    return rows.iloc[sorted(places)]


def _readable(paths: Mapping[str, Path]) -> pd.DataFrame:
    """Return the first lines of all explainers as people read them in MLflow's pages."""
    tables = []
    for name, path in paths.items():
        table = lines.first(path, max(1, SHOWN // len(paths)), [lines.ROW, *FOR_READERS])
        table.insert(0, "explainer", name)
        tables.append(table.assign(changed=table["changed"].map(", ".join)).rename(columns={"mixed": "distance"}))
    return _plain(pd.concat(tables))


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table for JSON: its texts are objects, what is missing is None."""
    objects = table.astype(object)
    return objects.where(objects.notna(), None)


def _quiet() -> AbstractContextManager[None]:
    """Keep MLflow's hint about integer columns away: it is for those who log models."""
    return quietly(UserWarning)


@contextmanager
def _harmless(what: str) -> Iterator[None]:
    """Warn where something fails that says in other words what was measured: that is not lost for it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  a raw error of a database, too
        _logger.warning("%s of an evaluation could not be logged (%s: %s)", what, type(error).__name__, error)


@contextmanager
def in_run(name: str | None = None) -> Iterator[str]:
    """Use the active run, or open one, which has failed if anything is raised inside; its id is what one is told."""
    active = mlflow.active_run()
    if active is not None:
        yield str(active.info.run_id)
        return
    with mlflow.start_run(run_name=name) as run:
        yield str(run.info.run_id)
