"""Served explanations window by window: figures as plain sums, tests as plain loops, drift and what is none."""

import json

import mlflow
import numpy as np
import pandas as pd
import pytest
import served_worlds as worlds
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from laws import many
from matplotlib.figure import Figure
from scipy import stats

import mlflow_cf
from mlflow_cf.cli import main, versions
from mlflow_cf.errors import InputError
from mlflow_cf.monitoring import drift, pictures
from mlflow_cf.monitoring.figures import figures
from mlflow_cf.monitoring.lines import Named, lines_of, moments, named
from mlflow_cf.monitoring.monitor import monitor
from mlflow_cf.monitoring.series import followed
from mlflow_cf.monitoring.windows import cut, units, width_of

WEEK = pd.Timedelta("7D")


def quiet(source, **options):
    return monitor(source, log_run=False, **options)


@pytest.fixture(scope="module")
def still():
    return worlds.table(2_000, 3, seed=1)


@pytest.fixture(scope="module")
def moved():
    return worlds.table(2_400, 3, seed=2, moved={"job": 0.35})


@pytest.fixture(scope="module")
def drifting(moved):
    return quiet(moved, groups="sex")


def value(table, window, measure, column="value", **which):
    own = table[(table["window"] == window) & (table["measure"] == measure)]
    for name, wanted in {"group": "", **which}.items():
        own = own[own[name] == wanted]
    return own[column].item()


# Figures


@given(st.integers(0, 10_000))
def test_figures_are_plain_sums(seed):
    table = worlds.table(150, 2, seed)
    found = quiet(table, groups="sex")
    first = table["time"] < worlds.START + WEEK
    for name, own in (("reference", table[first]), ("2026-01-12", table[~first])):
        asked = own[own["status"] != "already"]
        answered = own[own["status"] == "found"]
        assert value(found.windows, name, "coverage") == pytest.approx((asked["status"] == "found").mean())
        assert value(found.windows, name, "status.already") == pytest.approx((own["status"] == "already").mean())
        assert value(found.windows, name, "distance") == pytest.approx(answered["distance"].mean())
        assert value(found.windows, name, "distance", group="sex.f") == pytest.approx(
            answered.loc[answered["sex"] == "f", "distance"].mean()
        )
        assert value(found.windows, name, "seconds") == pytest.approx(np.exp(np.log(own["seconds"].dropna()).mean()))
        assert value(found.windows, name, "seconds_p50") == pytest.approx(own["seconds"].median())
        shares = found.features[found.features["window"] == name].set_index("feature")["share"]
        for feature in worlds.FEATURES:
            expected = answered["changed"].map(lambda one, feature=feature: feature in one).mean()
            assert shares.get(feature, 0.0) == pytest.approx(expected)


def test_intervals_of_single_rows_are_those_of_wilson(still):
    table = still.assign(request="")
    found = quiet(table).windows
    line = found[(found["window"] == "reference") & (found["measure"] == "coverage")].iloc[0]
    size, share, z = line["count"] - 1, line["value"], stats.norm.ppf(0.975)
    middle, half = share + z**2 / (2 * size), z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    np.testing.assert_allclose(
        [line["low"], line["high"]], np.array([middle - half, middle + half]) / (1 + z**2 / size)
    )


def test_intervals_hold_what_they_promise_where_rows_of_a_request_are_alike():
    rng = np.random.default_rng(0)
    held = {"coverage": 0, "distance": 0}
    for _ in range(100):
        alike = rng.random(40) < 0.7
        far = rng.normal(1.0, 0.2, 40)
        request = np.repeat(np.arange(40), rng.integers(1, 6, 40))
        status = np.where(alike[request], "found", "infeasible")
        table = pd.DataFrame(
            {"time": worlds.START, "request": request.astype(str), "status": status, "distance": far[request]}
        )
        lines = lines_of(table, None, {})
        place = np.zeros(len(lines), dtype=np.intp)
        found = figures(followed(lines, units(lines, place, "request"), place), 1).set_index("measure")
        found = found[found["part"] == "answers"]
        for name, truth in (("coverage", 0.7), ("distance", 1.0)):
            held[name] += found.loc[name, "low"] <= truth <= found.loc[name, "high"]
    assert min(held.values()) >= 89


def test_traces_say_what_a_table_says(still):
    frame = worlds.frame(still)
    assert "busy" in "".join(frame["tags"].map(lambda one: one.get("cf.untraced", "")))
    tables = quiet(still, groups="sex"), quiet(frame, groups="sex")
    of_table, of_traces = (one.windows.set_index(["window", "measure", "group"])["value"] for one in tables)
    told = [key for key in of_table.index if key[1].startswith(("distance", "n_changed", "proof", "seconds"))]
    np.testing.assert_allclose(of_traces[told], of_table[told], rtol=1e-9)
    pd.testing.assert_frame_equal(tables[0].features, tables[1].features)
    assert tables[1].spans["answers"].sum() == len(still) - int(
        (~still["request"].isin({tags["cf.request"] for tags in frame["tags"]})).sum()
    )


# Drift


@given(st.integers(0, 10_000))
def test_steps_down_are_those_of_westfall_and_young(seed):
    rng = np.random.default_rng(seed)
    statistics = rng.integers(0, 6, (5, 40)).astype(float)
    alone, p = drift.stepped_down(statistics)
    order = sorted(range(5), key=lambda at: -statistics[at, 0])
    before = 0.0
    for rank, at in enumerate(order):
        assert alone[at] == np.mean([one >= statistics[at, 0] for one in statistics[at]])
        own = np.mean([max(column[order[rank:]]) >= statistics[at, 0] for column in statistics.T])
        before = max(before, own)
        assert p[at] == pytest.approx(before)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_the_stability_index_is_its_sum(seed, cells):
    one, other = np.random.default_rng(seed).integers(0, 50, (2, cells))
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * cells) for counts in (one, other))
    expected = sum((a - b) * np.log(a / b) for a, b in zip(p, q, strict=True))
    assert drift.stability(one[:, None], other[:, None])[0] == pytest.approx(expected)
    assert drift.stability(one[:, None], one[:, None])[0] == 0


@given(st.integers(0, 10_000))
def test_what_is_observed_is_the_difference_of_two_windows(seed):
    lines, parted = cut(lines_of(worlds.table(120, 2, seed), None, {}), WEEK, None, worlds.START + 2 * WEEK)
    series = followed(lines, units(lines, parted.place, "request"), parted.place)
    values = figures(series, 2)["value"].to_numpy().reshape(2, -1)
    before, after = (
        np.concatenate([np.asarray(sums[series.window == at].sum(axis=0))[0] for sums in (series.above, series.below)])
        for at in (0, 1)
    )
    tested = drift.hypotheses(series)
    told = drift.Statistics(tested, np.array([one.below for one in series.series]), before + after)
    observed = told.of(after[:, None])[:, 0]
    for one, difference in zip(tested, observed, strict=True):
        kind = series.series[one.columns[0]].kind
        if one.test == "mean" and kind != "logarithm" and not np.isnan(values[:, one.columns[0]]).any():
            assert difference == pytest.approx(np.subtract(*values[::-1, one.columns[0]]))
    result = drift.drift(series, 1, drift.Effort(50, 0.05), np.random.default_rng(seed))
    assert ((result.p >= result.alone - 1e-12) & (result.p <= 1)).all()


def test_units_are_requests_hours_or_days_of_one_window(still):
    lines, parted = cut(lines_of(still, None, {}), WEEK, None, worlds.START + 3 * WEEK)
    hour = pd.Series(pd.to_datetime(lines.time)).dt.floor("h")
    for block, label in (("request", lines.request), ("hour", hour), ("day", hour.dt.floor("D"))):
        unit = units(lines, parted.place, block)
        pairs = pd.MultiIndex.from_arrays([parted.place, label])
        assert pd.DataFrame({"unit": unit, "pair": pairs.factorize()[0]}).drop_duplicates().shape[0] == pairs.nunique()


def test_planted_drift_is_found_and_named(drifting):
    assert drifting.drifted
    assert drifting.found["window"].unique().tolist() == ["2026-01-19"]
    first = drifting.found.iloc[0]
    assert (first["measure"], first["feature"]) == ("advised", "job")
    assert first["reference"] == pytest.approx(0.2, abs=0.05)
    assert first["value"] == pytest.approx(0.35, abs=0.05)
    assert first["psi"] > 0.05
    assert drifting.spans["drifted"].tolist() == [False, False, True]


def test_false_alarms_are_at_the_stated_rate():
    runs = [quiet(worlds.table(240, 2, seed), seed=seed, alpha=0.2).drifted for seed in range(many(30, 200))]
    low, high = stats.binom.interval(0.99, len(runs), 0.2)
    assert low <= sum(runs) <= high


def test_blocks_of_days_are_careful_about_days_that_are_alike(still):
    rng = np.random.default_rng(4)
    day = (still["time"] - worlds.START).dt.days.to_numpy()
    bad = rng.random(day.max() + 1) < 0.3  # days of a full server
    status = np.where(bad[day] & (rng.random(len(still)) < 0.5), "busy", still["status"])
    by_day = quiet(still.assign(status=status), window="7d", block="day", groups=None)
    assert not by_day.drifted
    assert any("fewer than 20 days" in note for note in by_day.notes)


def test_the_same_seed_gives_the_same_answer(moved):
    once, again = (quiet(moved, seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(once.drift, again.drift)


def test_one_window_alone_is_corrected_for_one(moved):
    whole, last = quiet(moved), quiet(moved, newest=1)
    assert last.tested == ("2026-01-19",)
    key = ["measure", "feature", "group", "test"]
    both = whole.drift[whole.drift["window"] == "2026-01-19"].merge(last.drift, on=key)
    assert len(both) == len(last.drift)
    assert both["p_x"].min() == pytest.approx(2 * both["p_y"].min())


# Windows and references


def test_half_a_window_is_shown_and_not_tested(moved):
    found = quiet(moved, until="2026-01-22")
    assert found.spans["whole"].tolist() == [True, True, False]
    assert found.tested == ("2026-01-12",)
    assert not found.drifted
    assert "the window from 2026-01-19 is not over yet: it is shown, and not tested" in found.notes


@pytest.mark.parametrize("kind", ["text", "pair", "table", "parquet"])
def test_the_reference_is_an_interval_or_another_source(moved, tmp_path, kind):
    earlier, later = moved[moved["time"] < worlds.START + WEEK], moved[moved["time"] >= worlds.START + WEEK]
    earlier.to_parquet(tmp_path / "earlier.parquet")
    reference, source = {
        "text": ("2026-01-05/2026-01-12", moved),
        "pair": (("2026-01-05", pd.Timestamp("2026-01-12")), moved),
        "table": (earlier, later),
        "parquet": (tmp_path / "earlier.parquet", later),
    }[kind]
    found = quiet(source, reference=reference)
    pd.testing.assert_frame_equal(found.windows, quiet(moved).windows)
    assert found.found.iloc[0]["feature"] == "job"


def test_groups_of_a_reference_of_its_own_are_those_of_the_windows(still, tmp_path):
    rng = np.random.default_rng(0)
    earlier, later = (still.assign(age=rng.integers(least, 80, len(still))) for least in (18, 25))
    young = earlier["age"] < earlier["age"].quantile(0.25, interpolation="higher")
    earlier.loc[young, "distance"] *= 0.1
    later = later.assign(time=later["time"] + 3 * WEEK)
    earlier.to_parquet(tmp_path / "earlier.parquet")
    for reference in (earlier, str(tmp_path / "earlier.parquet")):
        found = quiet(later, reference=reference, groups="age", until=worlds.START + 6 * WEEK)
        labels = found.windows[found.windows["group"] != ""].groupby("window")["group"].unique()
        assert {label for one in labels for label in one} == set(labels["reference"])
        own = found.drift[(found.drift["measure"] == "distance") & (found.drift["group"] == labels["reference"][0])]
        assert own["drifted"].all()
        assert own["reference"].lt(0.5 * own["value"]).all()
    count = value(found.windows, "reference", "distance", "count", group=labels["reference"][0])
    assert count == (young & earlier["distance"].notna()).sum()


def test_few_whole_numbers_are_the_same_groups_where_some_are_missing(still):
    earlier = still.assign(children=np.arange(len(still)) % 3)
    later = earlier.assign(children=earlier["children"].where(still.index % 5 > 0), time=still["time"] + 3 * WEEK)
    found = quiet(later, reference=earlier, groups=["children"], until=worlds.START + 6 * WEEK)
    assert set(found.windows["group"]) == {"", *(f"children.{one}" for one in (0, 1, 2, "missing"))}


def test_a_group_of_another_kind_than_in_the_reference_is_one_clear_message(still):
    numbers = still.assign(age=np.arange(len(still)))
    with pytest.raises(InputError, match=r"groups\.age: of another kind than in the reference"):
        quiet(still.assign(age="old"), reference=numbers, groups="age")
    with pytest.raises(InputError, match=r"groups\.age: not a column of rows"):
        quiet(still, reference=numbers, groups="age")
    with pytest.raises(InputError, match=r"groups\.age: 2,000 different values"):
        quiet(numbers, reference=still.assign(age="old"), groups="age")


def test_a_file_that_is_called_like_an_interval_is_a_file(moved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2025").mkdir()
    moved[moved["time"] < worlds.START + WEEK].to_parquet("2025/jan.parquet")
    found = quiet(moved[moved["time"] >= worlds.START + WEEK], reference="2025/jan.parquet")
    pd.testing.assert_frame_equal(found.windows, quiet(moved).windows)


def test_windows_without_answers_are_told(still):
    gone = still[(still["time"] < worlds.START + WEEK) | (still["time"] >= worlds.START + 2 * WEEK)]
    found = quiet(gone)
    assert found.spans["answers"].tolist()[1] == 0
    assert "windows without any answer: 2026-01-12" in found.notes
    assert any("not tested, fewer than 20 requests" in note for note in found.notes)


def test_of_too_many_windows_the_newest_are_tested(still):
    found = quiet(still, window="90min")
    assert any(note.startswith("the newest 200 windows are tested, of 3") for note in found.notes)
    assert set(found.tested) <= set(found.spans["window"].tail(200))


# What is read


def test_what_cannot_be_used_is_counted(still):
    future = still.head(3).assign(time=pd.Timestamp("2200-01-01"))
    unreadable = still.head(4).assign(time=None)
    unknown = still.head(5).assign(status="splendid")
    mixed = pd.concat([still, future, unreadable, unknown], ignore_index=True).sample(frac=1, random_state=0)
    found = quiet(mixed)
    assert dict(found.skipped) == {
        "their time cannot be read": 4,
        "their status is not known": 5,
        "they are from the future: the clock of a server is ahead": 3,
    }
    pd.testing.assert_frame_equal(found.windows, quiet(still).windows)


def test_traces_of_others_are_counted(still):
    frame = worlds.frame(still)
    others = frame.head(7).assign(trace_id=list("abcdefg"), tags=[{"mlflow.traceName": "chat"}] * 7)
    bare = frame.head(2).assign(trace_id=["h", "i"], tags=[{"cf.status": "found", "cf.model_id": "m-1"}] * 2)
    found = quiet(pd.concat([frame, others, bare, frame.head(5)]))  # some are there twice: they count once
    assert found.spans["answers"].sum() == quiet(frame).spans["answers"].sum() + 2
    assert dict(found.skipped) == {"they have no tag cf.status: they are no answers of explained models": 7}
    assert "traces without facts of the answer, of which the status alone is known: 2" in found.notes
    with pytest.raises(InputError, match="source: no answers to follow \\(7 left out: they have no tag"):
        quiet(others)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
FACTS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("changed", "distance", "n_changed", "proof", "seconds"), JSON)
)
TAGS = st.fixed_dictionaries(
    {},
    optional={
        "cf.status": st.sampled_from(["found", "busy", "odd"]),
        "cf.facts": FACTS.map(json.dumps) | st.text(max_size=4),
        "cf.untraced": st.dictionaries(st.sampled_from(["busy", "odd"]), JSON).map(json.dumps),
        "cf.request": st.text(max_size=2),
    },
)
ASSESSMENT = st.fixed_dictionaries(
    {"assessment_name": st.just("cf.outcome"), "last_update_time": st.text(max_size=3)},
    optional={
        "metadata": st.dictionaries(
            st.sampled_from(["cf.acted", "cf.wanted", "cf.adopted", "cf.at", "cf.answer"]), JSON.map(json.dumps)
        ),
    },
)


@given(st.lists(st.tuples(TAGS, st.lists(ASSESSMENT, max_size=2)), min_size=1, max_size=6))
def test_whatever_stands_in_tags_and_feedback_is_read_or_counted(traces):
    tags, assessments = zip(*traces, strict=True)
    frame = pd.DataFrame({"request_time": 1_700_000_000_000, "tags": list(tags), "assessments": list(assessments)})
    known = sum(one.get("cf.status") in ("found", "busy") for one in tags)
    counted = any('"busy"' in one.get("cf.untraced", "") for one in tags)
    if not known and not counted:
        with pytest.raises(InputError, match="no answers to follow"):
            quiet(frame)
        return
    try:
        found = quiet(frame)
    except InputError:
        assert not known
        return
    assert found.spans["answers"].sum() >= known
    assert found.windows["value"].notna().all()


def test_several_models_must_be_told_apart(still):
    mixed = pd.concat([still, still.head(100).assign(model="m-2")])
    with pytest.raises(InputError, match=r"model: there are answers of 2 models: m-1 \(2,000\), m-2 \(100\); name one"):
        quiet(mixed)
    assert dict(quiet(mixed, model="m-1").skipped) == {"they are of other models": 100}
    assert quiet(mixed, model="all").spans["answers"].sum() == 2_100
    with pytest.raises(InputError, match="model: no answer is of 'm-3'; there are: m-1"):
        quiet(mixed, model="m-3")


def test_replies_as_they_are_make_a_table(still):
    def reply(line):
        if line["status"] != "found":
            return []
        changes = [{"feature": name, "from": "1", "to": "2"} for name in line["changed"]]
        near = {"changes": changes, **{name: line[name] for name in ("distance", "n_changed", "proof")}}
        return [{**near, "distance": near["distance"] + 1, "changes": []}, near]

    stored = still.drop(columns=["distance", "n_changed", "proof", "changed"])
    stored["counterfactuals"] = [reply(line) for line in still.to_dict("records")]
    expected = quiet(still)
    as_text = stored.assign(counterfactuals=stored["counterfactuals"].map(json.dumps))
    for replies in (stored, as_text):
        found = quiet(replies.rename(columns={"time": "ts"}), columns={"time": "ts"})
        pd.testing.assert_frame_equal(found.windows, expected.windows)
        pd.testing.assert_frame_equal(found.features, expected.features)
    bare = [[{"distance": one["distance"], "n_changed": 1} for one in reply] for reply in stored["counterfactuals"]]
    assert not len(quiet(stored.assign(counterfactuals=bare)).features)


def test_files_say_what_tables_say(still, tmp_path):
    (tmp_path / "parts").mkdir()
    for at, part in enumerate(np.array_split(np.arange(len(still)), 3)):
        still.iloc[part].to_parquet(tmp_path / "parts" / f"{at}.parquet")
    pd.testing.assert_frame_equal(quiet(tmp_path / "parts", groups="sex").windows, quiet(still, groups="sex").windows)
    files = [str(tmp_path / "parts" / f"{at}.parquet") for at in range(3)]
    pd.testing.assert_frame_equal(quiet(files, groups="sex").windows, quiet(still, groups="sex").windows)
    with pytest.raises(InputError, match=r"0\.parquet' is a file, and others are none"):
        quiet([files[0], "credit-audit"])
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"broken.parquet: cannot be read as parquet"):
        quiet(str(tmp_path / "broken.parquet"))
    with pytest.raises(InputError, match="is neither a parquet file nor a folder of some"):
        quiet(tmp_path / "none")


def test_moments_are_read_however_they_are_written():
    moment = pd.Timestamp("2026-03-01T12:00:00")
    written = {
        "moments": [moment],
        "zones": [moment.tz_localize("UTC").tz_convert("Europe/Berlin")],
        "texts": ["2026-03-01T13:00:00+01:00"],
        "milliseconds": [int(moment.timestamp() * 1000)],
    }
    for kind, values in written.items():
        assert moments(pd.DataFrame({"time": values}), "time").tolist() == [moment.value], kind
    assert np.isnat(moments(pd.DataFrame({"time": ["soon"]}), "time")).all()
    assert np.isnat(moments(pd.DataFrame({"time": [3]}), "time")).all()


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_that_stand_for_none_are_left_out(still, unit):
    times = {"s": ["9999-12-31", "1500-01-01", "1970-01-01"], "us": ["9999-12-31", "1970-01-01", "1900-01-01"]}
    odd = np.array(times.get(unit, ["1970-01-01"] * 3), dtype=f"datetime64[{unit}]")
    mixed = pd.concat([still.assign(time=still["time"].astype(f"datetime64[{unit}]")), still.head(3).assign(time=odd)])
    found = quiet(mixed)
    assert dict(found.skipped) == {"their time cannot be read": 3}
    assert found.spans["answers"].tolist() == quiet(still).spans["answers"].tolist()


def test_times_in_microseconds_and_texts_of_other_millennia_are_no_times(still):
    micro = still["time"].astype("datetime64[us]").astype("int64")
    with pytest.raises(InputError, match="no answers to follow \\(2,000 left out: their time cannot be read"):
        quiet(still.assign(time=micro))
    texts = still["time"].dt.strftime("%Y-%m-%dT%H:%M:%S").where(still.index >= 5, "9999-12-31T00:00:00")
    assert dict(quiet(still.assign(time=texts)).skipped) == {"their time cannot be read": 5}
    acted = still.assign(acted=True, acted_at=pd.Series(["9999-12-31"] * len(still)))
    found = quiet(acted)
    assert "days_p50" not in set(found.outcomes["measure"])
    assert "values of acted_at that are no time, and tell nothing: 2,000" in found.notes


def test_lists_of_features_are_read_however_they_are_written():
    for written in (["a", "b"], ("a", "b"), np.array(["a", "b"]), '["a", "b"]', "a, b"):
        assert named(written) == ["a", "b"]
    assert named(None) is named(np.nan) is named("[broken") is None
    assert named("") == []


@given(st.lists(st.one_of(st.none(), st.lists(st.sampled_from("abcd"), max_size=3)), max_size=8), st.integers(0, 255))
def test_names_are_taken_and_joined_as_lists_are(lists, bits):
    kept = np.array([bool(bits >> at & 1) for at in range(len(lists))], dtype=np.bool_)

    def unfolded(names):
        told = [[] if known else None for known in names.known]
        for line, code in zip(names.lines, names.features, strict=True):
            told[line].append(names.names[code])
        return told

    names = Named.of(lists)
    assert unfolded(names.take(kept)) == [one for one, keep in zip(lists, kept, strict=True) if keep]
    assert unfolded(names.followed_by(Named.of(lists[:2]))) == lists + lists[:2]


WRONG = {
    "window: 'soon' is no length of time": {"window": "soon"},
    "window: '0d' is no length of time": {"window": "0d"},
    "window: .* makes .* windows": {"window": "1min"},
    "window: '100000d' is longer than a century": {"window": "100000d"},
    "window: '200000d' is no length of time": {"window": "200000d"},
    "alpha: 2 is no rate": {"alpha": 2},
    "alpha: '0.05' is no rate": {"alpha": "0.05"},
    "newest: 1.5 windows": {"newest": 1.5},
    "seed: 1.5 is no whole number": {"seed": 1.5},
    "model: 5 is no name": {"model": 5},
    "groups: 5 names no columns": {"groups": 5},
    "groups.sex: 5 are no edges of bins": {"groups": {"sex": 5}},
    "columns: 'ts' is no dict": {"columns": "ts"},
    "seed: -1 is negative": {"seed": -1},
    "newest: 0 windows": {"newest": 0},
    "block: 'week' is not known": {"block": "week"},
    "groups.gender: not a column of rows": {"groups": "gender"},
    "columns.when: not a column that is used": {"columns": {"when": "time"}},
    "columns.time: 'moment' is not in the table": {"columns": {"time": "moment"}},
    "reference: .* is not before": {"reference": "2026-02-01/2026-01-01"},
    "reference: 'never' is no moment": {"reference": ("2026-01-01", "never")},
    "reference: no answers from 2025": {"reference": "2025-01-01/2025-02-01"},
    "until: 'x' is no moment": {"until": "x"},
    "until: '2300-01-01' is too far away": {"until": "2300-01-01"},
    "reference: '9999-12-31' is too far away": {"reference": "2026-01-01/9999-12-31"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_one_clear_message(still, message):
    with pytest.raises(InputError, match=message):
        quiet(still, **WRONG[message])


def test_tables_that_are_none_are_one_clear_message(still):
    with pytest.raises(InputError, match="source: a table without lines"):
        quiet(still.head(0))
    with pytest.raises(InputError, match=r"columns\.status: not a column of the table"):
        quiet(still.drop(columns="status"))
    with pytest.raises(InputError, match="source: int is no source"):
        quiet(3)
    with pytest.raises(InputError, match="source: several columns are called 'sex'"):
        quiet(pd.concat([still, still[["sex"]]], axis=1))
    assert width_of("12h") == pd.Timedelta("12h")


def test_a_named_column_takes_the_place_of_one_that_has_our_name(still):
    expected = quiet(still).windows
    others = {
        "time": still.assign(ts=still["time"], time="never"),
        "seconds": still.assign(ts=still["seconds"], seconds=1.0),
    }
    for ours, table in others.items():
        pd.testing.assert_frame_equal(quiet(table, columns={ours: "ts"}).windows, expected)
    swapped = still.rename(columns={"time": "seconds", "seconds": "time"})
    pd.testing.assert_frame_equal(quiet(swapped, columns={"time": "seconds", "seconds": "time"}).windows, expected)
    both = quiet(still.drop(columns="seconds"), columns={"seconds": "distance"})
    assert "distance" not in set(both.windows["measure"])


def test_numbers_that_cannot_be_are_not_known(still):
    odd = still.assign(acted_at=still["time"] - pd.Timedelta("1h"), acted=2, rows=-1)
    odd.loc[odd["status"] == "found", ["distance", "seconds"]] = [-1.0, np.inf]
    found = quiet(odd)
    assert not {"distance", "acted"} & {*found.windows["measure"], *found.outcomes["measure"]}
    assert found.spans["answers"].sum() == len(still)
    (why,) = found.skipped
    assert why.startswith("people acted before they had the answer")
    assert "values of acted that are neither true nor false, and tell nothing: 2,000" in found.notes
    assert "values of rows that are no number of rows, and count as 1: 2,000" in found.notes


def test_truth_is_read_however_it_is_written(still):
    words = ["True", "FALSE", "true", " false", "1", "0", None, "perhaps"]
    told = quiet(still.assign(acted=np.resize(np.array(words, dtype=object), len(still))))
    assert value(told.outcomes, "reference", "acted") == pytest.approx(0.5, abs=0.01)
    assert "values of acted that are neither true nor false, and tell nothing: 250" in told.notes


def test_a_group_may_be_called_like_anything_of_ours(still):
    table = quiet(still.assign(counted=still["sex"]), groups="counted").windows
    assert set(table["group"]) == {"", "counted.f", "counted.m"}
    frame = worlds.frame(still)
    for name in ("counted", "status"):
        tags = [{**one, f"cf.group.{name}": one["cf.group.sex"]} for one in frame["tags"]]
        found = quiet(frame.assign(tags=tags), groups=name)
        assert set(found.windows["group"]) == {"", f"{name}.f", f"{name}.m"}
        assert found.spans["answers"].tolist() == quiet(frame).spans["answers"].tolist()


def test_nothing_known_but_status_and_time_is_enough(still):
    found = quiet(still[["time", "status"]])
    assert set(found.windows["measure"]) == {"coverage", *(f"status.{one}" for one in still["status"].unique())}
    assert not len(found.features)
    assert "windows" in found.figures()


# Outcomes of a table


def test_outcomes_of_a_table_are_shares_of_those_who_told(still):
    rng = np.random.default_rng(5)
    told = (rng.random(len(still)) < 0.5) & (still["status"] == "found")
    acted = rng.random(len(still)) < 0.4
    wanted = rng.random(len(still)) < 0.8
    table = still.assign(
        acted=np.where(told, acted, None),
        wanted=np.where(told & acted, wanted, None),
        complete=np.where(told & acted, still["changed"].map(lambda one: len(one or []) == 1), None),
        answer=np.where(told & acted, rng.integers(1, 3, len(still)), np.nan),
        adopted=[
            one[:1] if tell and act else [] if tell else None
            for one, tell, act in zip(still["changed"], told, acted, strict=True)
        ],
        acted_at=np.where(told & acted, still["time"] + pd.Timedelta("10D"), pd.NaT),
    )
    found = quiet(table, groups="sex")
    first = (still["time"] < worlds.START + WEEK).to_numpy()
    assert value(found.outcomes, "reference", "acted") == pytest.approx(acted[told & first].mean())
    assert value(found.outcomes, "reference", "validity") == pytest.approx(wanted[told & acted & first].mean())
    assert value(found.outcomes, "reference", "days_p50") == pytest.approx(10)
    assert value(found.outcomes, "reference", "days_p95", group="sex.m") == pytest.approx(10)
    single = still.loc[told & acted & first, "changed"].map(len) == 1
    assert value(found.outcomes, "reference", "complete") == pytest.approx(single.mean())
    followed_first = (table["answer"] == 1)[told & acted & first].mean()
    assert value(found.outcomes, "reference", "first_answer") == pytest.approx(followed_first)
    female = (told & first & (still["sex"] == "f")).to_numpy()
    assert value(found.outcomes, "reference", "acted", group="sex.f") == pytest.approx(acted[female].mean())
    adopted = found.features[(found.features["window"] == "reference") & (found.features["feature"] == "job")]
    advised = [
        tell and "job" in one
        for one, tell in zip(still["changed"].map(lambda one: one or []), told & first, strict=True)
    ]
    done = [act and one[0] == "job" for one, act, tell in zip(still["changed"], acted, advised, strict=True) if tell]
    assert adopted["adopted"].item() == pytest.approx(np.mean(done))
    assert adopted["outcomes"].item() == len(done)
    assert "outcomes" in found.figures()


# What is shown


def test_a_result_shows_itself(drifting, tmp_path):
    assert drifting.headline.startswith("1 of 2 windows drifts: advice on job in 2026-01-19: ")
    assert "drift: advice on job in 2026-01-19" in repr(drifting)
    assert "at most 5 % of such tests find any drift" in repr(drifting)
    text = drifting.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text
    assert text.count("<img") == 3
    assert "http" not in text.replace("http://www.w3.org", "")
    assert "advice on job" in drifting._repr_html_()
    assert list(drifting.overview().index) == ["reference", "2026-01-12", "2026-01-19"]


def test_names_of_features_are_escaped(moved):
    table = moved.assign(
        changed=[one and ["<b>$x$</b>" if name == "job" else name for name in one] for one in moved["changed"]]
    )
    text = quiet(table)._repr_html_()
    assert "<b>$x$" not in text
    assert "&lt;b&gt;$x$" in text


@pytest.mark.system
@pytest.mark.parametrize("values", [[0.99, 1.0, 1.0], [0.0, 0.01, 0.0], [0.2, 0.9, 0.5]])
def test_an_axis_of_shares_tells_nothing_beyond_all_and_none(values):
    figure = Figure()
    axes, shares = figure.subplots(), pd.Series(values)
    pictures._trend(axes, shares, shares - 0.05, shares + 0.05, [False] * 3, share=True)
    ticks = axes.get_yticks()
    assert len(ticks) > 1
    assert 0 <= min(ticks) < max(ticks) <= 1
    format_tick = axes.yaxis.get_major_formatter()
    assert [float(format_tick(tick).removesuffix(" %")) / 100 for tick in ticks] == pytest.approx(ticks, rel=1e-3)


def test_a_run_has_metrics_with_steps_tables_pictures_and_the_page(moved):
    found = monitor(moved, groups="sex")
    client = mlflow.MlflowClient()
    history = client.get_metric_history(found.run_id, "cf/monitoring/advised/job")
    assert [one.step for one in history] == [0, 1, 2]
    assert history[2].value == pytest.approx(0.35, abs=0.05)
    assert history[2].timestamp == int(pd.Timestamp("2026-01-26", tz="UTC").timestamp() * 1000)
    assert [one.step for one in client.get_metric_history(found.run_id, "cf/monitoring/drifted")] == [1, 2]
    run = client.get_run(found.run_id)
    assert run.data.tags["cf.monitoring.drifted"] == "true"
    assert run.data.params["cf.monitoring.window"] == "7d"
    assert run.data.tags["mlflow.note.content"].startswith(found.headline)
    files = {one.path for one in client.list_artifacts(found.run_id, "monitoring")}
    assert {f"monitoring/{name}" for name in ("drift.csv", "windows.png", "advice.png", "report.html")} <= files
    with mlflow.start_run() as own:
        assert monitor(moved[["time", "status"]]).run_id == own.info.run_id
    assert "mlflow.note.content" not in client.get_run(own.info.run_id).data.tags


@pytest.mark.parametrize(
    ("name", "options", "code"), [("moved", [], 1), ("still", [], 0), ("still", ["--until", "2026-01-13"], 3)]
)
def test_the_command_tells_by_its_exit_code(request, tmp_path, name, options, code):
    request.getfixturevalue(name).rename(columns={"time": "ts"}).to_parquet(tmp_path / "t.parquet")
    command = ["monitor", str(tmp_path / "t.parquet"), "-c", "time=ts", "-g", "sex", "--no-log", *options]
    page = ["-o", str(tmp_path / "page.html")] if code == 1 else []
    done = CliRunner().invoke(main, [*command, *page])
    assert done.exit_code == code, done.output
    assert (tmp_path / "page.html").is_file() == (code == 1)
    assert "reference" in done.output


def test_pipelines_read_json(drifting, moved, tmp_path):
    moved.to_parquet(tmp_path / "t.parquet")
    done = CliRunner().invoke(main, ["monitor", str(tmp_path / "t.parquet"), "-g", "sex", "--no-log", "--json"])
    told = json.loads(done.stdout)
    assert told == drifting.to_dict()
    assert (told["drifted"], told["found"][0]["feature"]) == (True, "job")
    assert [one["window"] for one in told["windows"]] == ["reference", "2026-01-12", "2026-01-19"]
    assert told["windows"][1]["start"].startswith("2026-01-12T00:00:00")
    assert told["windows"][1]["coverage"] == pytest.approx(value(drifting.windows, "2026-01-12", "coverage"))


def test_what_is_wrong_on_the_command_line_has_a_code_of_its_own(tmp_path):
    done = CliRunner().invoke(main, ["monitor", str(tmp_path / "none.parquet")])
    assert done.exit_code == 2
    assert "is neither a parquet file nor a folder" in done.output
    assert CliRunner().invoke(main, ["monitor", "x.parquet", "-c", "time"]).exit_code == 2


@pytest.fixture
def no_store(monkeypatch):
    """Let MLflow look for its store where nothing listens."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    yield
    mlflow.set_tracking_uri(before)


def test_a_store_that_does_not_answer_is_no_drift(no_store, still, tmp_path):
    done = CliRunner().invoke(main, ["monitor", "credit-audit", "--no-log"])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "traces: the traces cannot be read" in done.output
    still.to_parquet(tmp_path / "t.parquet")
    done = CliRunner().invoke(main, ["monitor", str(tmp_path / "t.parquet")])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "log_run: the run cannot be logged" in done.output


def test_what_nobody_expects_is_no_drift(monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("by 0")

    monkeypatch.setattr(versions, "monitor", fail)
    done = CliRunner().invoke(main, ["monitor", "credit-audit"])
    assert (done.exit_code, type(done.exception)) == (3, SystemExit)
    assert done.output == "Error: ZeroDivisionError: by 0\n"


def test_what_is_public_is_at_hand():
    assert mlflow_cf.monitor is monitor
    assert json.dumps(mlflow_cf.Monitoring.__name__) == '"Monitoring"'
