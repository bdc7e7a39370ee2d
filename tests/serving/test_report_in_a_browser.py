"""A report in Chromium, from disk and inside the artifact viewer of a real MLflow server: it works for everybody."""

import re
import shutil
from types import SimpleNamespace

import mlflow
import pytest
import small_loans
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from tracking import tracking

import mlflow_cf

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
SERIOUS = ("serious", "critical")
WAIT_MS = 30_000  # for MLflow's own page; a busy machine takes long


@pytest.fixture(scope="module")
def browser():
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def loans():
    rows = small_loans.table()
    constraints = {**small_loans.CONSTRAINTS, "ranges": {"income": [0, 45]}}
    explained = mlflow_cf.wrap(small_loans.fitted(rows), rows, target="good", constraints=constraints)
    return SimpleNamespace(rows=rows, explained=explained)


@pytest.fixture(scope="module")
def report(loans, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    asked = {"groups": ["job", "owner"], "explainers": ["geco", "nearest_row"], "count": 2}
    return mlflow_cf.report(loans.explained, loans.rows, path, **asked)


@pytest.fixture(scope="module")
def comparison(loans, tmp_path_factory):
    """The report of two versions."""
    other = small_loans.fitted(loans.rows.head(50))
    again = mlflow_cf.wrap(other, loans.rows, target="good", constraints=small_loans.CONSTRAINTS)
    found = mlflow_cf.compare({"loans 1": loans.explained, "loans 2": again}, loans.rows, groups="job")
    folder = tmp_path_factory.mktemp("comparison")
    return mlflow.artifacts.download_artifacts(run_id=found.run_id, artifact_path=found.report, dst_path=str(folder))


class Watched:
    """A page whose errors and requests are noted."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.errors, self.asked = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._told)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _told(self, message):
        if message.type in ("error", "warning"):
            self.errors.append((message.text, message.location.get("url", "")))

    def open(self, path):
        self.page.goto(f"file://{path}")
        return self.page

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def shown(place):
    return place.locator("details.row:not([hidden])")


def use(place, rows):
    """Search, filter, sort, open a card and switch the colours, as a reader does."""
    assert shown(place).count() == rows
    place.get_by_role("combobox", name="Outcome").select_option(label="an answer")
    place.get_by_text("of 80 rows").wait_for()
    answered = shown(place).count()
    assert 0 < answered < rows
    assert place.locator("details.row:not([hidden]) .chip").all_text_contents() == ["answer"] * answered
    place.get_by_role("combobox", name="Group").select_option(label="job: nurse")
    place.locator("#shown").filter(has_not_text=f"{answered} of").wait_for()
    assert 0 < shown(place).count() < answered
    place.get_by_role("combobox", name="Order").select_option(label="farthest first")
    away = [float(text.split()[0]) for text in place.locator("details.row:not([hidden]) .d").all_text_contents()]
    assert away == sorted(away, reverse=True)
    place.get_by_role("button", name="Reset").click()
    place.get_by_text("80 rows", exact=True).wait_for()
    place.get_by_role("searchbox").fill("income xylophone")
    place.get_by_text("0 of 80 rows").wait_for()
    place.get_by_role("searchbox").fill("INCOME rises")
    place.locator("#shown").filter(has_text=re.compile(r"^\s*[1-9]\d* of")).wait_for()
    first = shown(place).first
    first.locator("summary").first.focus()
    first.locator("summary").first.press("Enter")
    first.locator(".cf-card").wait_for()
    first.locator("summary").first.press("ArrowDown")
    assert shown(place).nth(1).locator("summary").first.evaluate("one => one === document.activeElement")
    before = place.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    place.locator("#theme").click()
    assert place.locator("body").evaluate("one => getComputedStyle(one).backgroundColor") != before
    assert not first.locator("svg").first.evaluate("one => getComputedStyle(one).display === 'none'")


@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_from_disk_everything_works_and_nothing_is_fetched(browser, report, options):
    with Watched(browser, **options) as watched:
        page = watched.open(report)
        use(page, 80)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.asked == [f"file://{report}"]
        assert watched.errors == []


def test_a_comparison_shows_what_survives(browser, comparison):
    with Watched(browser, **DESKTOP) as watched:
        page = watched.open(comparison)
        cells = page.locator("table.heat tbody td").all_text_contents()
        assert len(cells) == 4
        assert cells[0] == cells[3] == "100%"
        assert page.get_by_role("heading", name="Rows of loans 2").count() == 1
        assert watched.errors == []


def test_without_scripts_it_is_read_as_well(browser, report):
    with Watched(browser, **DESKTOP, java_script_enabled=False) as watched:
        page = watched.open(report)
        assert not page.locator("#filters").is_visible()
        page.locator("details.row summary").first.click()
        assert page.locator(".cf-card").first.is_visible()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_serious_violation(browser, report, comparison, options, colours):
    for path in (report, comparison):
        with Watched(browser, **options, color_scheme=colours, bypass_csp=True) as watched:
            page = watched.open(path)
            for number in range(0, 80, 8):
                page.locator("details.row > summary").nth(number).click()
            found = Axe().run(page)
            bad = [one for one in found.response["violations"] if one["impact"] in SERIOUS]
            assert [(one["id"], one["nodes"][0]["html"]) for one in bad] == []


def test_paper_is_white(browser, report):
    with Watched(browser, **DESKTOP, color_scheme="dark") as watched:
        page = watched.open(report)
        page.emulate_media(media="print")
        assert page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(255, 255, 255)"
        assert not page.locator("#filters").is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_inside_the_artifact_viewer_of_mlflow(browser, loans, tmp_path, monkeypatch):
    before = mlflow.get_tracking_uri()
    with tracking(tmp_path) as url:
        mlflow.set_tracking_uri(url)
        try:
            with mlflow.start_run(experiment_id="0") as run:
                monkeypatch.setattr("mlflow.log_figure", lambda *_: None)
                found = mlflow_cf.evaluate(loans.explained, loans.rows, groups=["job"], explainers=["geco"])
            assert found.report == "counterfactual/report.html"
        finally:
            mlflow.set_tracking_uri(before)
        with Watched(browser, **DESKTOP) as watched:
            page = watched.page
            page.goto(f"{url}/#/experiments/0/runs/{run.info.run_id}/artifacts/{found.report}")
            frame = page.frame_locator("iframe[sandbox]")
            frame.locator("#filters").wait_for(state="attached")
            use(frame, 80)
            frame.get_by_role("link", name="Changes", exact=True).click()
            assert frame.locator("#changes").evaluate("one => one === document.activeElement")
            assert [error for error in watched.errors if "blob:" in str(error)] == []
