"""Pictures of evaluations and comparisons: what their titles say, and that nothing in names or numbers breaks them."""

import json
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.findings import Findings, most_changed
from mlflow_cf.evaluation.measure.aggregates import aggregates
from mlflow_cf.evaluation.names import explainer_name, group_name, percent
from mlflow_cf.evaluation.pictures import evaluated, slide, versions

# A formula, a hidden label, HTML, scripts from right to left, letters that no font here may have, what is no letter.
ODD = (
    "$x_1^$", "_hidden", "<b onclick='x()'>&amp;", "年収", "الدخل السنوي", "हिन्दी", "\u202etxt.exe", "a\nb\tc\0", "",
    "\\frac{1}{2}", "{braces}", "🤖", "l" * 1_000, "100 %", "\ud800",
)  # fmt: skip


def written(folder: Path, name: str, lines: pd.DataFrame) -> Path:
    """Write lines as an evaluation does, with what a test does not say filled in."""
    filled = {"reason": "", "proof": "none", "seconds": 0.01, "coverage": np.nan, "mixed": np.nan}
    table = pd.DataFrame({**{key: [value] * len(lines) for key, value in filled.items()}, **lines})
    table["answers"] = (table["status"] == "found").astype(int)
    path = folder / f"{name.encode('utf-8', 'replace').hex()[:40]}.parquet"
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path)
    return path


def lines(rows: int, feature: str = "income", answered: float = 0.8, **more: Any) -> pd.DataFrame:
    rng = np.random.default_rng(rows)
    found = rng.random(rows) < answered
    table = {
        "status": np.where(found, "found", "not_found"),
        "coverage": found.astype(float),
        "mixed": np.where(found, rng.random(rows), np.nan),
        "changed": [[feature] if one else [] for one in found],
        **more,
    }
    return pd.DataFrame(table)


def drawn(folder: Path, tables: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    paths = {name: written(folder, name, table) for name, table in tables.items()}
    table = pd.concat([aggregates(path, name) for name, path in paths.items()], ignore_index=True)
    return dict(evaluated.pictures(paths, table, list(paths)))


def rendered(figure: Figure) -> list[str]:
    """Draw a figure and return all visible texts; any warning is an error."""
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canvas.draw()
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible()]


def fits(figure: Figure) -> bool:
    """Return whether everything that is drawn lies on the slide."""
    around = [
        figure.get_tightbbox(),
        *(key.get_window_extent().transformed(figure.dpi_scale_trans.inverted()) for key in figure.legends),
    ]
    wide, high = figure.get_size_inches()
    return all(min(box.x0, box.y0) >= -0.01 and box.x1 <= wide + 0.01 and box.y1 <= high + 0.01 for box in around)


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def test_titles_say_what_was_found(tmp_path: Path) -> None:
    many = lines(1_000, **{"group.job": ["cook", "nurse"] * 500})
    found = drawn(tmp_path, {"geco": many})
    share = percent(many["coverage"].mean())
    assert title(found["outcomes"]) == f"GeCo answers {share} of the 1,000 rows that miss the target"
    assert title(found["distances"]).startswith("Half of GeCo's answers lie within a distance of 0.")
    assert title(found["changed_features"]) == "GeCo changes income most often: in 100 % of its answers"
    by_job = many.groupby("group.job")["coverage"].mean().sort_values()
    (least, low), (most, high) = by_job.items()
    expected = f"GeCo answers {percent(low)} of job: {least} and {percent(high)} of job: {most}"
    assert title(found["groups"]) == expected


def test_explainers_that_are_equally_near_are_not_told_apart(tmp_path: Path) -> None:
    found = drawn(tmp_path, {"geco": lines(100), "exact": lines(100)})
    assert title(found["distances"]).startswith("Half of the answers of each explainer lie within a distance of 0.")


def test_slides_are_wide_and_nothing_leaves_them(tmp_path: Path) -> None:
    groups = {"group.personal_status": [f"male single of kind {at % 30}" for at in range(600)]}
    names = ["geco", "geco_2", "nearest_row", "exact", "random_search", "face", "simcf", "third party"]
    figures = drawn(tmp_path, {name: lines(600, f"feature {at}", **groups) for at, name in enumerate(names)})
    assert set(figures) == {"outcomes", "distances", "changed_features", "groups"}
    for name, figure in figures.items():
        assert figure.get_figwidth() / figure.get_figheight() == pytest.approx(16 / 9)
        texts = rendered(figure)
        assert fits(figure), name
        assert any("6 of 8 explainers" in text for text in texts)
    assert any("more are in the tables" in text for text in rendered(figures["groups"]))


@pytest.mark.parametrize("count", [1, 3, 6])
def test_no_marker_hides_another(tmp_path: Path, count: int) -> None:
    groups = {"group.job": [f"job {at % 20}" for at in range(400)]}
    figure = drawn(tmp_path, {f"e{at}": lines(400, **groups) for at in range(count)})["groups"]
    rendered(figure)
    for axes in figure.axes:
        marks = [line for line in axes.get_lines() if line.get_marker() == "o" and len(line.get_xdata())]
        assert len(marks) == count
        heights = [
            (axes.transData.transform((0, y))[1], line.get_markersize()) for line in marks for y in line.get_ydata()
        ]
        for (one, size), (other, _) in pairwise(sorted(heights)):
            assert other - one >= size * figure.dpi / 72 * 0.85


@pytest.mark.parametrize("names", [ODD[:5], ODD[5:10], ODD[10:]])
def test_names_are_drawn_as_they_stand(tmp_path: Path, names: Sequence[str]) -> None:
    known = [name.encode("utf-8", "replace").decode() for name in names]
    columns = {f"group.{name}": [name, "other"] * 30 for name in known}
    tables = {name or "e": lines(60, name, **columns) for name in known}
    for figure in drawn(tmp_path, tables).values():
        rendered(figure)


@pytest.mark.parametrize("odd", ODD)
def test_every_letter_has_a_shape_and_none_is_a_formula(odd: str) -> None:
    told = slide.literal(odd)
    assert "$" not in told.replace(r"\$", "")
    assert not told.startswith("_")
    assert len(told.replace(r"\$", "$").strip()) <= len(odd)


@pytest.mark.parametrize("status", ["already", "not_found", "invalid", "infeasible"])
def test_without_answers_only_outcomes_are_drawn(tmp_path: Path, status: str) -> None:
    coverage = np.nan if status == "already" else 0.0
    none = pd.DataFrame({"status": [status] * 5, "coverage": [coverage] * 5, "changed": [[] for _ in range(5)]})
    found = drawn(tmp_path, {"geco": none})
    assert set(found) == {"outcomes"}
    expected = "nothing was to be explained" if status == "already" else "GeCo answers none of the 5 rows"
    assert expected in title(found["outcomes"])
    rendered(found["outcomes"])


def test_one_row_is_enough(tmp_path: Path) -> None:
    found = drawn(tmp_path, {"geco": lines(1, answered=1.0, **{"group.job": ["cook"]})})
    assert title(found["outcomes"]) == "GeCo answers the one row that misses the target"
    assert title(found["distances"]).startswith("GeCo's only answer lies at a distance of 0.")
    for figure in found.values():
        rendered(figure)


@settings(max_examples=5)
@given(st.text(), st.text(max_size=40))
def test_any_text_is_drawn(name: str, label: str) -> None:
    figure = slide.slide(name, label, {name: "#000000", f"{label} ": "#FFFFFF"})
    slide.named_lines(figure.add_subplot(), [name[:40], label])
    rendered(slide.finished(figure))


@given(st.floats(0, 1))
def test_shares_are_not_rounded_to_nothing_or_all(share: float) -> None:
    told = percent(share)
    assert (told == "0 %") == (share == 0)
    assert (told == "100 %") == (share == 1)
    assert len(told) <= len("over 99 %")


def test_people_have_names_for_groups_and_explainers() -> None:
    assert group_name("personal_status.male single", ["personal_status"]) == "personal status: male single"
    assert group_name("a.b.c", ["a", "a.b"]) == "a.b: c"
    assert group_name("", []) == "all rows"
    assert len(group_name(f"{'c' * 90}.{'l' * 90}", [], 30)) == 30
    assert [explainer_name(name) for name in ("geco", "geco_2", "mine_3")] == ["GeCo", "GeCo (2)", "mine_3"]


def test_what_is_changed_most_is_the_first_of_the_largest() -> None:
    shares = pd.Series({"a": 0.5, "b": 0.7, "c": 0.7}, name="GeCo")
    assert most_changed(shares, "changes") == "GeCo changes b most often: in 70 % of its answers"
    assert most_changed(shares * 0, "changes") == "What the nearest answers change"


def test_gaps_are_told_of_groups_that_are_large_enough() -> None:
    told = [("job.a", 0.5, 30), ("job.b", 0.9, 30), ("job.c", 0.0, 9), ("sex.f", 0.6, 30), ("sex.m", 0.7, 30)]
    table = pd.DataFrame(
        [("geco", group, "coverage", value, None, queries) for group, value, queries in told],
        columns=["explainer", "group", "metric", "value", "standard_error", "queries"],
    )
    found = Findings(table, ["geco"], ["job", "sex"])
    assert found.widest("coverage") == (("job: a", 0.5), ("job: b", 0.9))
    assert found.groups() == "GeCo answers 50 % of job: a and 90 % of job: b"
    assert found.widest("mixed") is None


def compared(names: list[str], groups: int, explainers: int = 1) -> Comparison:
    """Return a made-up comparison with all that pictures look at."""
    rng = np.random.default_rng(len(names))
    every = ["", *(f"personal_status.male single {at}" for at in range(groups))]
    who = [f"e{at}" for at in range(explainers)]
    pairs = [(name, one) for name in names for one in who]
    burden = pd.DataFrame(
        [
            (*pair, group, measure, 20, mean, mean - 0.1, mean + 0.1)
            for pair in pairs
            for group in every
            for measure in ("coverage", "distance", "changed_features", "effort")
            for mean in [rng.random()]
        ],
        columns=["version", "explainer", "group", "measure", "rows", "mean", "low", "high"],
    )
    metrics = ["coverage", "mixed", "n_changed", "survival", "seconds_p50"]
    aggregated = pd.DataFrame(
        [(*pair, "", metric, rng.random()) for pair in pairs for metric in metrics],
        columns=["version", "explainer", "group", "metric", "value"],
    )
    advice = pd.DataFrame(
        [(*pair, f"feature_{at}", rng.random()) for pair in pairs for at in range(20)],
        columns=["version", "explainer", "feature", "share"],
    )
    survival = pd.DataFrame(
        [(a, who[0], b, "", rng.random()) for a in names for b in names],
        columns=["issued", "explainer", "judged", "group", "survival"],
    )
    return Comparison(
        {name: {} for name in names}, aggregated, pd.DataFrame({"group.personal_status": []}), survival, burden, advice,
        pd.DataFrame(), names[-1], {}, (), "",
    )  # fmt: skip


@pytest.mark.parametrize(("count", "groups", "explainers"), [(1, 0, 1), (2, 3, 1), (3, 40, 3), (20, 5, 2)])
def test_versions_are_drawn_however_many(count: int, groups: int, explainers: int) -> None:
    found = compared([f"credit/{number}" for number in range(1, count + 1)], groups, explainers)
    figures = dict(versions.pictures(found))
    assert set(figures) == {"survival", "burden", "advice", *(["metrics"] if count > 1 else [])}
    for name, figure in figures.items():
        rendered(figure)
        assert fits(figure), name
    if count > 1:
        matrix = found.survival_matrix()
        share = percent(matrix.iloc[-2, -1])
        old, new = matrix.index[-2:]
        assert title(figures["survival"]) == f"{share} of the answers of {old} still hold under {new}"
        assert title(figures["metrics"]).startswith(f"{old} → {new}: coverage ")
    assert title(figures["burden"]).startswith(f"Under credit/{count} the way is ")
    assert json.dumps(title(figures["advice"])).startswith(f'"credit/{count} advises to change feature ')


@settings(max_examples=2)
@given(st.lists(st.sampled_from([name for name in ODD if name != "\ud800"]), min_size=2, max_size=4, unique=True))
def test_names_of_versions_are_drawn_as_they_stand(names: list[str]) -> None:
    for _, figure in versions.pictures(compared(names, 2)):
        rendered(figure)
