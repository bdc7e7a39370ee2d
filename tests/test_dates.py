"""Dates: exact there and back, distances in days, ranges and rules, ISO strings in replies, through a saved model."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace, days
from mlflow_cf.features.feature import MICROSECONDS, decode_dates, encode_dates, iso_date
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.wrapping import assemble

DAY = np.datetime64("2024-03-01")
STARTS = pd.Series(DAY + np.arange(0, 120, 10)).astype("datetime64[us]")
DTYPES = [
    "datetime64[s]",
    "datetime64[ms]",
    "datetime64[us]",
    "datetime64[ns]",
    "datetime64[us, UTC]",
    "datetime64[ns, Europe/Berlin]",
    "datetime64[s, America/New_York]",
    pd.ArrowDtype(pa.timestamp("s")),
    pd.ArrowDtype(pa.timestamp("ns")),
    pd.ArrowDtype(pa.timestamp("us", tz="UTC")),
    pd.ArrowDtype(pa.timestamp("ms", tz="Europe/Berlin")),
    pd.ArrowDtype(pa.date32()),
]


def column(values: Any, dtype: Any) -> pd.Series:
    """Return moments in UTC as a column of the given type."""
    series = pd.Series(pd.to_datetime(values, utc=True))
    inner = getattr(dtype, "pyarrow_dtype", None)
    zone = getattr(pd.api.types.pandas_dtype(dtype), "tz", None) if inner is None else getattr(inner, "tz", None)
    series = series.dt.tz_localize(None) if zone is None else series.dt.tz_convert(zone)
    if inner == pa.date32():
        return pd.Series(series.dt.date, dtype=dtype)
    return series.astype(dtype)


class TestThereAndBack:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("gap", [False, True])
    def test_every_type(self, dtype: Any, *, gap: bool) -> None:
        raw = column(["2024-03-31", "1969-07-20", "2024-03-01", "2001-01-01"], dtype)
        if gap:
            raw[1] = None
        frame = pd.DataFrame({"start": raw, "n": [1, 2, 3, 4]})
        space = FeatureSpace.infer(frame)
        assert space["start"].kind == "date"
        assert space["start"].missing == gap
        codes = space.encode(frame)
        assert np.isnan(codes[:, 0]).tolist() == [False, gap, False, False]
        back = space.decode(codes)
        assert back["start"].dtype == frame["start"].dtype
        pd.testing.assert_series_equal(back["start"], frame["start"])
        again = FeatureSpace.from_dict(space.to_dict())
        pd.testing.assert_series_equal(again.decode(again.encode(frame))["start"], frame["start"])

    @pytest.mark.parametrize("dtype", [d for d in DTYPES if d != pd.ArrowDtype(pa.date32())], ids=str)
    def test_times_of_day(self, dtype: Any) -> None:
        raw = column(
            ["2024-03-31T00:59:59", "2024-10-27T01:30:00", "1999-12-31T23:59:59", "2024-10-27T00:30:00"], dtype
        )
        assert decode_dates(encode_dates(raw), raw.dtype).tolist() == raw.tolist()  # around changes of the clock, too

    @given(st.lists(st.datetimes(dt.datetime(1881, 1, 1), dt.datetime(2059, 1, 1)), min_size=1, max_size=20))  # noqa: DTZ001
    def test_exact_to_the_microsecond(self, moments: list[dt.datetime]) -> None:
        raw = pd.Series(moments, dtype="datetime64[us]")
        assert decode_dates(encode_dates(raw), raw.dtype).tolist() == raw.tolist()

    @given(st.lists(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)), min_size=1, max_size=20))  # noqa: DTZ001
    def test_what_is_not_exact_is_refused(self, moments: list[dt.datetime]) -> None:
        """Never is another moment than the one that was sent handed to the model."""
        raw = pd.Series(moments, dtype="datetime64[us]")
        frame = pd.DataFrame({"at": [pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-02T12:00")]})
        space = FeatureSpace.infer(frame)
        codes, reasons = space.encode_rows(pd.DataFrame({"at": raw}))
        back = space.decode(codes)["at"]
        assert all(back[row] == moment or row in reasons for row, moment in enumerate(raw))
        whole = raw.dt.microsecond == 0
        assert not [row for row in reasons if whole[row] and raw[row].year < 9000]

    @pytest.mark.parametrize("moment", ["2024-01-01T00:00:00.000000001", "9999-12-31T23:59:59.999999"])
    def test_too_fine_for_days(self, moment: str) -> None:
        unit = "ns" if moment.startswith("2024") else "us"
        frame = pd.DataFrame({"at": np.array([moment, "2024-05-05"], dtype=f"datetime64[{unit}]")})
        with pytest.raises(InputError, match=r"data\.at: row 0 is no ISO date, or finer than can be kept"):
            FeatureSpace.infer(frame)

    def test_the_last_day_of_time(self) -> None:
        """A sentinel many tables hold."""
        raw = pd.Series(np.array(["9999-12-31", "2024-05-05", "0001-01-01"], dtype="datetime64[s]"))
        assert decode_dates(encode_dates(raw), raw.dtype).tolist() == raw.tolist()
        assert [iso_date(code) for code in encode_dates(raw)] == ["9999-12-31", "2024-05-05", "0001-01-01"]

    @pytest.mark.parametrize(
        ("values", "dtype"),
        [(["2024-03-01", None, "2024-04-01"], "str"), (["2024-03-01", "2024-04-01"], object),
         (["2024-03-01T10:30:00", "2024-04-01T11:00:00"], "string[pyarrow]"),
         (["2024-03-01", None, "2024-04-01"], object)],
    )  # fmt: skip
    def test_strings_declared_to_be_dates_stay_strings(self, values: list[Any], dtype: Any) -> None:
        frame = pd.DataFrame({"at": pd.Series(values, dtype=dtype)})
        space = FeatureSpace.infer(frame, {"at": {"kind": "date"}})
        back = space.decode(space.encode(frame))["at"]
        assert back.dtype == frame["at"].dtype
        assert back.where(back.notna(), None).tolist() == frame["at"].where(frame["at"].notna(), None).tolist()

    @pytest.mark.parametrize(
        "values",
        [["2024-03-01 10:30:00", "2024-04-01 11:00:00"], ["20240301", "20240401"],
         ["2024-03-01T00:00", "2024-04-01T00:00"],
         [dt.date(2024, 3, 1), dt.date(2024, 4, 1)], [pd.Timestamp("2024-03-01"), pd.Timestamp("2024-04-01")]],
        ids=lambda values: str(values[0]),
    )  # fmt: skip
    def test_what_would_not_come_back_the_same_is_refused(self, values: list[Any]) -> None:
        frame = pd.DataFrame({"at": pd.Series(values, dtype=object)})
        with pytest.raises(
            InputError, match=r"data\.at: its dates could not be handed .*; convert it with pd\.to_datetime"
        ):
            FeatureSpace.infer(frame, {"at": {"kind": "date"}})

    @pytest.mark.parametrize("values", [[1, 2], ["01/02/2024", "02/02/2024"], ["now", "today"], [1.5, 2.5]], ids=str)
    def test_what_is_no_date_is_refused(self, values: list[Any]) -> None:
        with pytest.raises(InputError, match=r"data\.at: row 0 is no ISO date"):
            FeatureSpace.infer(pd.DataFrame({"at": values}), {"at": {"kind": "date"}})


class TestWritten:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [("1970-01-01", 0.0), ("1970-01-02", 1.0), ("1969-12-31", -1.0), ("2024-03-01", 19783.0), ("20240301", 19783.0),
         ("2024-03-01T12:00", 19783.5), ("2024-03-01 06:00:00", 19783.25), ("2024-03-01T00:00:00Z", 19783.0),
         ("2024-03-01T01:00+01:00", 19783.0), ("2024-02-29T19:00-0500", 19783.0), (" 2024-03-01 ", 19783.0),
         ("2024-03-01T00:00:00.000000", 19783.0), (dt.date(2024, 3, 1), 19783.0),
         (np.datetime64("2024-03-01"), 19783.0),
         (pd.Timestamp("2024-03-01", tz="Europe/Berlin"), 19783 - 1 / 24), ("9999-12-31", 2932896.0)],
        ids=str,
    )  # fmt: skip
    def test_iso_dates(self, value: Any, expected: float) -> None:
        assert days(value) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(
        "value",
        ["now", "today", "NaT", "", "March 3", "03/04/2024", "3.4.2024", "10:00", "2024", "2024-05", "2024-13-01",
         "2024-02-30", "2024-W05", "2024-060", "2024-1-1", "10000-01-01", "2024-03-01T25:00", 5, 19783.0, True, None,
         pd.NaT, np.datetime64("NaT")],
        ids=str,
    )  # fmt: skip
    def test_anything_else_is_none(self, value: Any) -> None:
        """pandas alone would read some of them, each by its own lights: today's date, or month before day."""
        assert days(value) is None

    @pytest.mark.parametrize(
        ("code", "text"),
        [(0, "1970-01-01"), (19783, "2024-03-01"), (19783.5, "2024-03-01T12:00:00"), (-1, "1969-12-31"),
         (19783 + 1.5 / 86400, "2024-03-01T00:00:01.500000"), (2932896, "9999-12-31"), (-719162, "0001-01-01")],
    )  # fmt: skip
    def test_as_text(self, code: float, text: str) -> None:
        assert iso_date(code) == text
        assert days(text) == pytest.approx(code, abs=1 / MICROSECONDS)

    def test_a_zone_is_shown_with_its_offset(self) -> None:
        frame = pd.DataFrame({"at": column(["2024-03-01", "2024-07-01"], "datetime64[us, Europe/Berlin]")})
        feature = FeatureSpace.infer(frame)["at"]
        shown = [feature.value(code) for code in feature.values]
        assert shown == ["2024-03-01T01:00:00+01:00", "2024-07-01T02:00:00+02:00"]
        assert [feature.code(text) for text in shown] == feature.values.tolist()


BACKGROUND = pd.DataFrame(
    {"start": [*STARTS, pd.NaT], "end": [*(STARTS + pd.Timedelta(days=20)), STARTS[0]], "n": range(13)}
)
EARLY = BACKGROUND.iloc[[0]]


def model(decide: Any) -> OpenModel:
    return OpenModel("test", (0, 1), lambda rows: np.asarray(decide(rows)).astype(int))


def late(rows: pd.DataFrame) -> pd.Series:
    return rows["start"] >= pd.Timestamp("2024-04-15")


def wrapped(decide: Any = late, constraints: Any = None, **options: Any) -> ExplainedModel:
    return assemble(model(decide), BACKGROUND, None, WrapOptions(target=1, constraints=constraints, **options))


def first(explained: ExplainedModel, x: pd.DataFrame = EARLY, **options: Any) -> Any:
    (found,) = explained.explain(x, **options)
    return found.counterfactuals[0] if found.counterfactuals else found


class TestExplained:
    def test_distance_is_in_days(self) -> None:
        found = first(wrapped(distance=(0.0, 1.0, 0.0)))
        assert found.row["start"] == "2024-04-20"
        assert found.distance == pytest.approx(
            50 / 110 / 3
        )  # of the range from 1 March to 19 June, one of three features

    def test_missing_dates(self) -> None:
        found = first(wrapped(distance=(0.0, 1.0, 0.0)), BACKGROUND.iloc[[12]])
        assert found.row["start"] >= "2024-04-15"
        assert found.distance == pytest.approx(1 / 3)  # filling in is a change of 1
        never = wrapped(lambda rows: rows["start"].isna())
        assert never.explain(EARLY)[0].status == "not_found"  # missing is never proposed

    def test_answers_are_iso_strings(self) -> None:
        explained = wrapped()
        found = first(explained)
        assert found.row["start"] == "2024-04-20"
        assert found.row["end"] == "2024-03-21"
        (change,) = found.changes
        assert change.to_dict() == {"feature": "start", "from": "2024-03-01", "to": "2024-04-20"}
        assert "2024-04-20" in found.text
        record = explained.predict(EARLY, {"counterfactual": {}}).iloc[0]
        assert record["counterfactuals"][0]["row"] == {"start": "2024-04-20", "end": "2024-03-21", "n": 0}

    def test_times_of_day_are_part_of_the_string(self) -> None:
        frame = pd.DataFrame(
            {"at": pd.to_datetime(["2024-01-01T00:00", "2024-01-01T10:30", "2024-01-02T00:00"]), "n": [1, 2, 3]}
        )
        explained = assemble(model(lambda rows: rows["at"].dt.hour > 5), frame, None, WrapOptions(target=1))
        assert first(explained, frame.head(1)).row["at"] == "2024-01-01T10:30:00"

    @pytest.mark.parametrize(
        ("constraints", "expected"),
        [
            ({"ranges": {"start": ["2024-05-01", None]}}, "2024-05-10"),
            ({"ranges": {"start": [None, "2024-04-19"]}}, "infeasible or not found"),
            ({"ranges": {"start": ["2024-05-10", "2024-05-10"]}}, "2024-05-10"),
            ({"increasing": ["start"]}, "2024-04-20"),
            ({"decreasing": ["start"]}, "infeasible or not found"),
            ({"immutable": ["start"]}, "infeasible or not found"),
            ({"relative": {"start": {"up": 50}}}, "2024-04-20"),
            ({"relative": {"start": {"up": 49}}}, "infeasible or not found"),
            ({"rules": ["x_cf.start >= x.start + 60"]}, "2024-04-30"),
            ({"rules": ["x_cf.start > x.start + 60"]}, "2024-05-10"),
            ({"rules": ["x_cf.start - x.start >= 61"]}, "2024-05-10"),
            ({"rules": ["x_cf.start >= '2024-05-01'"]}, "2024-05-10"),
            ({"rules": ["'2024-05-10T00:00' <= x_cf.start"]}, "2024-05-10"),
            ({"rules": ["x_cf.start < '2024-04-20'"]}, "infeasible or not found"),
            ({"rules": ["IF x_cf.n = 0 THEN x_cf.start <= '2024-04-20'"]}, "2024-04-20"),
        ],
        ids=str,
    )  # fmt: skip
    def test_constraints(self, constraints: Any, expected: str) -> None:
        found = first(wrapped(constraints=constraints))
        shown = "infeasible or not found" if hasattr(found, "status") else found.row["start"]
        assert shown == expected

    def test_a_rule_between_two_dates(self) -> None:
        """The end comes at least 20 days after the start, and is repaired when the start moves."""
        found = wrapped(constraints={"rules": ["x_cf.end >= x_cf.start + 20"]}).explain(EARLY, count=3)[0]
        assert found.status == "found"
        for answer in found.counterfactuals:
            gap = pd.Timestamp(answer.row["end"]) - pd.Timestamp(answer.row["start"])
            assert gap >= pd.Timedelta(days=20)
            assert answer.row["start"] >= "2024-04-15"

    def test_forbidden_levels_and_ranges_speak_iso(self) -> None:
        levels = {"levels": {"start": ["2024-03-01", "2024-05-10"]}}
        assert first(wrapped(constraints=levels)).row["start"] == "2024-05-10"
        forbidden = {"forbidden": {"start": [["2024-03-01", "2024-04-20"]]}}
        assert first(wrapped(constraints=forbidden)).row["start"] == "2024-04-30"

    @pytest.mark.parametrize("bad", ["soon", "today", "2024", 5, "01/05/2024", True], ids=str)
    def test_bad_dates_in_constraints(self, bad: Any) -> None:
        with pytest.raises(InputError, match=r"constraints\.(ranges|levels)\.start"):
            wrapped(constraints={"ranges": {"start": [bad, None]}})
        with pytest.raises(InputError, match=r"constraints\.levels\.start: .* is not a date"):
            wrapped(constraints={"levels": {"start": [bad]}})

    def test_grids_of_days(self) -> None:
        explained = wrapped(values="grid", features={"start": {"step": 7}})
        assert first(explained).row["start"] == "2024-04-19"  # 1 March and seven weeks

    def test_a_request_in_strings(self) -> None:
        """Rows of a JSON request, and constraints in it."""
        explained = wrapped()
        x = pd.DataFrame({"start": ["2024-03-01"], "end": ["2024-03-21T00:00:00Z"], "n": [0]})
        reply = explained.predict(x, {"counterfactual": {"constraints": {"rules": ["x_cf.start >= x.start + 60"]}}})
        assert reply["counterfactuals"].iloc[0][0]["row"]["start"] == "2024-04-30"
        bad = explained.explain(pd.concat([x, x.assign(start="now"), x.assign(start=17)], ignore_index=True))
        assert [found.status for found in bad] == ["found", "invalid", "invalid"]

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_the_model_sees_its_own_type(self, dtype: Any) -> None:
        frame = pd.DataFrame({"start": column(STARTS, dtype), "n": range(12)})
        seen = set()

        def decide(rows: pd.DataFrame) -> Any:
            seen.add(str(rows["start"].dtype))
            return encode_dates(rows["start"]) >= days("2024-04-15")

        explained = assemble(model(decide), frame, None, WrapOptions(target=1, constraints={"increasing": ["start"]}))
        assert days(first(explained, frame.head(1)).row["start"]) == days("2024-04-20")
        assert seen == {str(frame["start"].dtype)}


class TestSaved:
    def test_through_a_saved_model(self, tmp_path: Path) -> None:
        frame = BACKGROUND.dropna().reset_index(drop=True)
        path = tmp_path / "inner"
        pipeline = make_pipeline(
            make_column_transformer((FunctionTransformer(), ["n"])), DecisionTreeClassifier(random_state=0)
        ).fit(frame, frame["n"] >= 6)
        constraints = {"rules": ["x_cf.start >= x.start + 30", "IF x_cf.n > x.n THEN x_cf.end >= x_cf.start + 10"]}
        mlflow_cf.save_model(pipeline, path, frame, target=True, constraints=constraints)
        loaded = mlflow_cf.load_model(path)
        assert loaded.policy.constraints.rules == tuple(constraints["rules"])
        assert [feature.kind for feature in loaded.space.features] == ["date", "date", "integer"]
        in_memory = mlflow_cf.wrap(pipeline, frame, target=True, constraints=constraints)
        x = frame.head(2)
        assert [f.to_dict() for f in loaded.explain(x)] == [f.to_dict() for f in in_memory.explain(x)]
        for found, (_, own) in zip(loaded.explain(x, count=2), x.iterrows(), strict=True):
            assert found.status == "found"
            for answer in found.counterfactuals:
                start, end = pd.Timestamp(answer.row["start"]), pd.Timestamp(answer.row["end"])
                assert start >= own["start"] + pd.Timedelta(days=30)
                assert answer.row["n"] == own["n"] or end >= start + pd.Timedelta(days=10)
