"""Reports: what they say is what the answers are, nothing in them can run or fetch anything, and they stay small."""

import json
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import small_loans
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import InputError
from mlflow_cf.cli import main
from mlflow_cf.evaluation.measure.shown import Shown
from mlflow_cf.features import Feature
from mlflow_cf.reporting import page
from mlflow_cf.reporting.data import obstacle
from mlflow_cf.reporting.shapes import Histogram, percent, short
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.sentences import Speaker

VOID = {"meta", "input", "br", "link", "img"}
MOST = 1_500_000  # bytes


class Read(HTMLParser):
    """What a browser would make of a page: tags, attributes, texts, and whether every element is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.ids, self.open = Counter(), [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def loans():
    return small_loans.table()


@pytest.fixture(scope="module")
def explained(loans):
    return mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good", constraints=small_loans.CONSTRAINTS)


@pytest.fixture(scope="module")
def written(loans, explained, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "folder" / "report.html"
    assert mlflow_cf.report(explained, loans, path, groups=["job"], explainers=["geco", "nearest_row"]) == path
    return path.read_text(encoding="utf-8")


def test_it_says_what_the_answers_are(loans, explained, written):
    read, answers = Read(written), explained.explain(loans)
    statuses = Counter(answer.status for answer in answers)
    asked = len(loans) - statuses["already"]
    assert f"{statuses['found']} of {asked} rows that miss the target got an answer" in read.text
    assert f"{statuses['already']} others needed none" in read.text
    distances = [answer.counterfactuals[0].distance for answer in answers if answer.counterfactuals]
    assert f"Half of the answers are nearer than {short(float(np.median(distances)))}." in read.text
    for answer in answers:
        for found in answer.counterfactuals:
            assert found.text in read.text
    assert read.tags["details"] == len(loans) + 1
    assert "nearest_row" in read.text
    assert "Changes that many rows share" in read.text
    assert "constraints" not in read.text or "max_changes: 2" in read.text


def test_rows_are_filtered_by_what_they_are(loans, explained, written):
    data = json.loads(re.search(r'id="data">(.*?)</script>', written, re.DOTALL)[1])
    own = {}
    for answer, job, ([status], proof, groups, changed, distance) in zip(
        explained.explain(loans), loans["job"], data["rows"], strict=True
    ):
        own.setdefault(answer.status, data["names"]["status"][status])
        assert own[answer.status] == data["names"]["status"][status]
        assert [data["names"]["group"][group] for group in groups] == [f"job: {job}"]
        found = answer.counterfactuals[:1]
        assert len(proof) == len(found)
        assert [data["names"]["feature"][one] for one in changed] == [c.feature for cf in found for c in cf.changes]
        assert [distance] == ([cf.distance for cf in found] or [None])


def test_bins_stand_in_order_and_other_groups_by_their_size(loans, explained, tmp_path):
    text = mlflow_cf.report(explained, loans, tmp_path / "r.html", groups=["income", "job"]).read_text(encoding="utf-8")
    start = text.index("<table", text.index('id="groups"'))
    table = Read(text[start : text.index("</table>", start)] + "</table>")
    bins = [float(re.match(r"income: (-?[\d.]+)", line)[1]) for line in table.texts if line.startswith("income: ")]
    assert len(bins) == 4
    assert bins == sorted(bins)
    jobs = [line.removeprefix("job: ") for line in table.texts if line.startswith("job: ")]
    sizes = loans["job"].value_counts()
    assert [sizes[job] for job in jobs] == sorted(sizes, reverse=True)


def test_it_needs_nothing_from_elsewhere_and_all_its_links_lead_somewhere(written):
    read = Read(written)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<(link|img|iframe|object|embed|base)\b", written)
    assert len(read.ids) == len(set(read.ids))
    links = [value for _, name, value in read.attributes if name == "href"]
    assert links
    assert {link[1:] for link in links} <= set(read.ids)
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    policy = next(value for _, name, value in read.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_the_same_rows_and_seed_give_the_same_file(loans, explained, tmp_path):
    some = loans.head(30)
    first, second = (
        mlflow_cf.report(explained, some, tmp_path / name, groups=["job"], seed=3).read_bytes() for name in ("a", "b")
    )
    assert first == second


def test_rows_without_any_answer_are_told_why(loans, tmp_path):
    constraints = {"immutable": ["age", "job", "owner", "debts"], "ranges": {"income": [0, 20]}}
    helpless = mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good", constraints=constraints)
    text = mlflow_cf.report(helpless, loans, tmp_path / "report.html", groups=["job"]).read_text(encoding="utf-8")
    read = Read(text)
    assert "What stands in the way" in read.text
    assert "no lawful change that turns the decision, as is proved" in read.text
    assert "There is no answer to measure." in read.text
    assert "the range of income" in read.text


def test_rows_that_need_no_answer_are_told_so(loans, explained, tmp_path):
    good = loans[small_loans.fitted(loans).predict(loans) == "good"].head(3)
    read = Read(mlflow_cf.report(explained, good, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "None of 3 rows misses the target: nothing was to be explained." in read.text


def test_cards_speak_the_language_of_the_policy(loans, tmp_path):
    german = mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good", language="de")
    text = mlflow_cf.report(german, loans.head(8), tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<html lang="en">' in text
    assert text.count('<div lang="de">') == 8
    assert "steigt von" in Read(text).text


@pytest.mark.parametrize(
    ("rows", "path", "said"),
    [(0, "report.html", "rows"), (3, ".", "folder"), (3, "file/report.html", "cannot be written")],
)
def test_what_cannot_be_done_is_said(loans, explained, tmp_path, rows, path, said):
    (tmp_path / "file").write_text("a file is no folder")
    with pytest.raises(InputError, match=said):
        mlflow_cf.report(explained, loans.head(rows), tmp_path / path)


def test_a_report_that_fails_leaves_the_old_file(loans, explained, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(InputError, match="cannot be written"):
        mlflow_cf.report(explained, loans.head(2), path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_of_too_many_bytes_a_sample_is_shown(loans, explained, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_BYTES", 20_000)
    text = mlflow_cf.report(explained, loans, tmp_path / "report.html").read_text(encoding="utf-8")
    shown = text.count('<details class="row"')
    assert 0 < shown < len(loans)
    assert f"Cards are shown of {shown} of {len(loans)} rows" in Read(text).text
    assert len(json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["rows"]) == shown


def test_values_of_others_stay_secret(loans, tmp_path):
    private = mlflow_cf.wrap(
        small_loans.fitted(loans),
        loans,
        target="good",
        constraints={"ranges": {"income": [0, 60]}},
        privacy={"sample": "private", "regions": False},
    )
    text = mlflow_cf.report(private, loans.head(40), tmp_path / "report.html").read_text(encoding="utf-8")
    assert str(small_loans.CANARY)[:5] not in text
    assert "it holds while" not in text


HOSTILE = st.sampled_from(
    [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "\"'><svg onload=alert(1)>",
        "{{ 7 * 7 }}{% raw %}",
        "&lt;b&gt; & <b>",
        "שכר חודשי",
        "\u202eevil",
        "]]>--><!--",
        "x" * 1_000,
        "a\nb\tc",
        "javascript:alert(1)",
    ]
) | st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)


@settings(max_examples=12)
@given(
    names=st.lists(HOSTILE, min_size=2, max_size=3, unique=True),
    levels=st.lists(HOSTILE, min_size=3, max_size=3, unique=True),
)
def test_names_and_levels_are_text_whatever_they_say(names, levels, tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({name: rng.choice(levels, 40) for name in names})
    rows.iloc[:3, 0] = levels
    labels = np.where(rows[names[0]] == levels[0], "<good>", "<bad>")
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), names))
    model = make_pipeline(columns, LogisticRegression()).fit(rows, labels)
    told = {"target": "<good>", "features": {names[0]: {"label": levels[1]}}}
    explained = mlflow_cf.wrap(model, rows, **told)
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    text = mlflow_cf.report(explained, rows.set_index(pd.Index(rows[names[0]])), path, groups=[names[0]]).read_text(
        encoding="utf-8"
    )
    read = Read(text)
    assert read.tags["script"] == 2
    assert not {"img", "iframe", "link", "object", "base"} & set(read.tags)
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert "alert(1)" not in "".join(
        value or "" for _, name, value in read.attributes if name in ("href", "src", "style")
    )
    assert len(text.encode()) < MOST
    assert "49" not in re.findall(r"\b49\b", read.text) or "{{ 7 * 7 }}" not in "".join([*names, *levels])


def test_500_features_and_missing_values_fit(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(120, 500)).round(2), columns=[f"sensor_{i}" for i in range(500)])
    labels = (rows["sensor_0"] + rows["sensor_1"] > 0).astype(int)
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(rows, labels)
    rows.iloc[::7, 3] = np.nan
    explained = mlflow_cf.wrap(model, rows, target=1)
    text = mlflow_cf.report(explained, rows.head(30), tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(text.encode()) < MOST
    assert "sensor 0" in Read(text).text


@given(
    st.lists(st.sampled_from(["found", "already", "infeasible"]), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_which_rows_are_shown_depends_on_no_parts(statuses, most, seed, random):
    answers = [Explanation(status, "", 0, None) for status in statuses]
    whole = Shown(len(answers), seed, most)
    whole.keep(pd.RangeIndex(len(answers)), answers)
    parts, start = Shown(len(answers), seed, most), 0
    while start < len(answers):
        end = start + random.randint(1, 7)
        parts.keep(pd.RangeIndex(start, min(end, len(answers))), answers[start:end])
        start = end
    assert [one.line for one in whole.items] == [one.line for one in parts.items]
    assert len(whole.items) == min(most, len(answers))
    wanted = sum(status != "already" for status in statuses)
    assert sum(one.explanation.status != "already" for one in whole.items) == min(wanted, most)
    assert all(one.explanation is answers[one.place] for one in whole.items)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "ruled out by constraints.ranges.hours per week and constraints.max_changes",
            "the range of hours per week and how many features may change",
        ),
        ("5 features of constraints.immutable (a, b, c, 2 more)", "several features must stay"),
        ("constraints.rules[1] cannot hold for this row (a > b)", "rule 2"),
        ("constraints.something_new.a is in the way", "constraints.something_new.a is in the way"),
        ("stopped by the time limit", "stopped by the time limit"),
        ("", ""),
    ],
)
def test_what_stands_in_the_way_is_told_in_words(reason, told):
    known = {name: Feature(name, "real", "float64") for name in ("hours", "hours per week", "a")}
    assert obstacle(reason, Speaker("en", known)) == told


@given(st.floats(0, 1))
def test_shares_are_written_as_all_or_nothing_only_where_they_are(share):
    text = percent(share)
    assert (text == "0%") == (share < 5e-10)
    assert (text == "100%") == (share > 1 - 5e-10)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_a_histogram_counts_every_value(values):
    found = Histogram.of(np.array(values))
    assert sum(found.counts) == len(values)
    assert found.low <= found.median <= found.high
    assert Histogram.of(np.array([np.nan])) is None


def test_the_command_writes_it(loans, explained, tmp_path):
    mlflow_cf.save_model(
        small_loans.fitted(loans), tmp_path / "model", loans, target="good", pip_requirements=["scikit-learn"]
    )
    loans.head(20).to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out" / "report.html"
    asked = ["report", "-m", str(tmp_path / "model"), "-i", str(tmp_path / "rows.csv"), "-o", str(out), "-g", "job"]
    done = CliRunner().invoke(main, [*asked, "--seed", "1", "-e", "geco", "-e", "nearest_row"])
    assert done.exit_code == 0, done.output
    assert f"{out.stat().st_size:,} bytes" in done.output
    assert "model</h1>" in out.read_text(encoding="utf-8")


@pytest.mark.system
def test_a_thousand_rows_of_adult_stay_small(data_file, tmp_path):
    table = pd.read_csv(data_file("adult.csv")).head(9_000)
    rows, labels = table.drop(columns=["high_income", "fnlwgt"]), table["high_income"]
    texts = list(rows.select_dtypes("str").columns)
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder="passthrough")
    model = make_pipeline(columns, DecisionTreeClassifier(max_depth=8, random_state=0)).fit(rows, labels)
    explained = mlflow_cf.wrap(model, rows.head(2_000), target=1, constraints={"immutable": ["race", "sex", "age"]})
    path = mlflow_cf.report(explained, rows.tail(1_000), tmp_path / "report.html", groups=["sex"], count=2)
    assert path.stat().st_size < MOST
    assert path.read_text(encoding="utf-8").count('<details class="row"') > 500
