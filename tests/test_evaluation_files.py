"""What an evaluation writes down and reads again: the schema of its table, its lines in parts."""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.data.pandas_dataset import from_pandas
from mlflow.exceptions import MlflowException

from mlflow_cf.evaluation.logged import Logbook, dataset_of
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.result import Standing, ranking, unanswered

MISSING = st.sampled_from([None, np.nan])
VALUES = [
    st.sampled_from(["a", "b"]) | MISSING,
    st.booleans() | MISSING,
    st.sampled_from([0.5, 1.5]) | MISSING,
    st.integers(0, 3) | MISSING,
    st.sampled_from(["a", 2.5, True]) | MISSING,
    st.lists(st.integers(0, 1), max_size=2) | MISSING,
]
COLUMN = st.sampled_from(VALUES).flatmap(lambda values: st.lists(values, min_size=8, max_size=8))


@pytest.mark.filterwarnings("ignore:(?s).*integer column:UserWarning")
@given(st.lists(COLUMN, min_size=1, max_size=3), st.sampled_from([object, None, "category"]))
def test_the_schema_of_typical_rows_is_that_of_all(columns: list[list[Any]], dtype: Any) -> None:
    if dtype == "category":
        columns = [[str(value) for value in column] for column in columns]
    rows = pd.DataFrame({f"c{at}": pd.Series(column, dtype=dtype) for at, column in enumerate(columns)})
    expected = from_pandas(rows.astype(str) if dtype == "category" else rows, name="rows").to_dict()
    assert dataset_of(rows, "rows").to_dict() == expected


def written(path: Path, **columns: list[Any]) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_lines_are_read_in_parts(tmp_path: Path) -> None:
    path = written(tmp_path / "lines.parquet", row=list("abcde"), mixed=[0.5, None, 1.0, None, 2.0])
    assert lines.first(path, 3)["row"].tolist() == ["a", "b", "c"]
    assert lines.first(path, 9, ["mixed", "row"]).columns.tolist() == ["mixed", "row"]
    assert len(lines.first(path, 9)) == 5
    np.testing.assert_array_equal(lines.column(path, "mixed"), [0.5, np.nan, 1.0, np.nan, 2.0])
    empty = written(tmp_path / "empty.parquet", row=[], mixed=[])
    assert lines.first(empty, 3).columns.tolist() == ["row", "mixed"]
    assert lines.at(empty, np.array([], np.intp), ["mixed"]).columns.tolist() == ["mixed"]


@given(st.integers(1, 9), st.sets(st.integers(0, 6)))
def test_some_lines_are_those_at_their_places(tmp_path_factory: Any, at_once: int, places: set[int]) -> None:
    path = written(tmp_path_factory.mktemp("lines") / "lines.parquet", row=list("abcdefg"), mixed=list(range(7)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "ROWS_AT_ONCE", at_once)
        found = lines.at(path, np.array(sorted(places), np.intp), ["mixed", "row"])
    assert found.to_dict("list") == {"mixed": sorted(places), "row": ["abcdefg"[at] for at in sorted(places)]}


def test_the_ranking_is_by_rows_that_all_answered(tmp_path: Path) -> None:
    same = {"validity": [1.0, 1.0, None], "constraint_satisfaction": [1.0, 1.0, None], "seconds": [0.1, None, 0.3]}
    near = written(tmp_path / "near.parquet", mixed=[0.1, 9.0, None], coverage=[1.0, 1.0, 0.0], **same)
    far = written(tmp_path / "far.parquet", mixed=[0.2, None, 0.1], coverage=[1.0, 1.0, 0.0], **same)
    none = {**same, "validity": [None] * 3, "constraint_satisfaction": [None] * 3}
    silent = written(tmp_path / "silent.parquet", mixed=pa.nulls(3, pa.float64()), coverage=[0.0] * 3, **none)
    assert ranking({"silent": silent, "far": far, "near": near}) == ("near", "far", "silent")
    broken = written(
        tmp_path / "broken.parquet", mixed=[0.0] * 3, coverage=[1.0] * 3, **{**same, "validity": [0.0] * 3}
    )
    assert ranking({"broken": broken, "silent": silent}) == ("silent", "broken")
    assert Standing(lawful=True, coverage=np.nan, distance=np.nan, seconds=np.nan).order == (False, 0.0, np.inf, 0.0)


def test_who_answers_nothing_is_told_with_what_most_rows_were_told(tmp_path: Path) -> None:
    status = ["already", "not_found", "budget", "not_found"]
    silent = written(tmp_path / "silent.parquet", status=status, reason=["", "why", "late", "why"])
    (said,) = unanswered({"silent": silent})
    assert said == "silent answers no row; 2 of 3 are not_found: why"
    found = written(tmp_path / "found.parquet", status=[*status, "found"], reason=[""] * 5)
    idle = written(tmp_path / "idle.parquet", status=["already"], reason=[""])
    assert not list(unanswered({"found": found, "idle": idle}))


@pytest.mark.parametrize("times", [1, 2])
def test_a_data_set_that_another_thread_notes_at_the_same_moment(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log, fails = mlflow.log_input, ["UNIQUE constraint failed: datasets.digest"] * times

    def note(*given: Any, **named: Any) -> Any:
        if fails:
            raise MlflowException(fails.pop())
        return log(*given, **named)

    monkeypatch.setattr(mlflow, "log_input", note)
    with mlflow.start_run() as run:
        book = Logbook(
            run.info.run_id, "counterfactual", None, dataset_of(pd.DataFrame({"income": [1.0, 2.0]}), "loans")
        )
        if times == 1:
            book.note_input()
        else:
            with pytest.raises(MlflowException):
                book.note_input()
    noted = MlflowClient().get_run(run.info.run_id).inputs.dataset_inputs
    assert [one.dataset.name for one in noted] == ["loans"] * (times == 1)
