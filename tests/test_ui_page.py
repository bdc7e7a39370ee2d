"""The what-if page in Chromium: from a row to answers, by mouse and keyboard, on every screen, for everybody."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import urlsplit

import pandas as pd
import pytest
import requests
import small_loans
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from test_ui import running

import mlflow_cf
from mlflow_cf.ui.app import what_if

pytestmark = pytest.mark.system

DESKTOP: dict[str, Any] = {"viewport": {"width": 1360, "height": 900}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
SERIOUS = ("serious", "critical")
TEXT = '{"age": 30, "income": 21.5, "job": "cook", "owner": false, "debts": null}'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages() -> Iterator[SimpleNamespace]:
    """The addresses of a page of one model without rows to choose from, and of one of two versions."""
    loans = small_loans.table()
    features = {"income": {"label": "yearly income", "unit": "EUR"}}
    one, two = (
        mlflow_cf.wrap(model, loans, target="good", constraints=small_loans.CONSTRAINTS, features=features)
        for model in (small_loans.fitted(loans), small_loans.fitted(loans.head(40)))
    )
    rows = small_loans.rejected(loans, 5)
    with (
        running(what_if([("<b>loans</b> 1", one)])) as alone,
        running(what_if([("loans 1", one), ("loans 2", two)], rows)) as both,
    ):
        yield SimpleNamespace(alone=alone.url, both=both.url, rows=rows)


class Watched:
    """A page whose errors and requests are noted; nothing may leave loopback."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self._context = browser.new_context(accept_downloads=True, **options)
        self.page = self._context.new_page()
        self.noted: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.page.on(
            "console", lambda line: self.noted.append(line.text) if line.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.noted.append(str(error)))
        self.page.on("request", self._request)
        self._hosts: set[str | None] = set()
        self.page.goto(url)
        expect(self.page.locator("#prediction strong").first).to_be_visible()

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("blob:", "data:")):
            self._hosts.add(urlsplit(request.url).hostname)
        if request.url.endswith("models/0/answer"):
            body = json.loads(request.post_data)
            if "explain" not in body["params"]["counterfactual"]:  # else the prediction alone is asked for
                self.asked.append(body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._context.close()
        if kind is None:
            assert self._hosts == {"127.0.0.1"}
            # what the server refuses has status 400, which Chromium notes as an error of the network
            assert [line for line in self.noted if "status of 400" not in line] == []

    def answered(self, button: str = "#ask") -> Page:
        self.page.locator(button).click()
        return self.waited()

    def waited(self) -> Page:
        self.page.wait_for_timeout(300)
        expect(self.page.locator("#answers")).to_have_attribute("aria-busy", "false")
        return self.page


def line(page: Page, name: str) -> Any:
    return page.locator("li.feature").filter(has=page.locator("label", has_text=re.compile(f"^{name}")))


def wide(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_from_a_row_to_answers(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.both, **DESKTOP) as watched:
        page = watched.page
        page.locator("#chosen").select_option("1")
        expect(page.locator("#f1")).to_have_value(str(pages.rows["income"].iloc[1]))
        line(page, "job").get_by_role("button", name="Lock job").click()
        watched.answered()
        assert page.locator(".column").count() == 2
        assert page.locator(".column").first.locator(".answer").count() == 3
        assert "Lock" not in page.locator("#columns").inner_text()
        sent = watched.asked[-1]
        assert sent["params"]["counterfactual"] == {"count": 3, "constraints": {"immutable": ["job"]}}
        assert sent["dataframe_records"][0]["income"] == pages.rows["income"].iloc[1]
        assert json.loads(page.locator("#request").text_content() or "") == sent
        for told in page.locator(".column").first.locator(".answer").all_inner_texts():
            assert "→" in told
            assert "job" not in told


def test_two_versions_are_compared(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.both, **DESKTOP) as watched:
        page = watched.answered()
        expect(page.locator(".version")).to_have_text(["loans 1", "loans 2"])
        first = page.locator(".column").first.locator(".survival")
        assert first.count() == 3
        assert all("loans 2" in told for told in first.all_inner_texts())
        holding = sum("✓" in told for told in first.all_inner_texts())
        expect(page.locator("#status")).to_have_text(f"3 answers; {holding} of 3 hold under loans 2.")


def test_a_version_with_other_features_is_told_apart(browser: Browser, pages: SimpleNamespace) -> None:
    loans = small_loans.table()
    one = mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good")
    more = loans.assign(score=loans["income"] / 10)
    two = mlflow_cf.wrap(lambda rows: rows["score"] / 10, more, target=1, output="score")
    with (
        running(what_if([("loans 1", one), ("loans 2", two)], pages.rows)) as client,
        Watched(browser, client.url, **DESKTOP) as watched,
    ):
        page = watched.answered()
        assert page.locator(".column").first.locator(".answer").count() == 3
        expect(page.locator(".survival").first).to_contain_text("cannot be judged by loans 2")
        expect(page.locator(".column").last).to_contain_text("rows.score: column is missing")


def test_contradictions_have_a_reason(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.alone, **DESKTOP) as watched:
        page = watched.page
        paste(page)
        assert watched.answered().locator(".answer").count() == 3
        for name in ("yearly income", "job", "owner", "debts"):
            line(page, name).get_by_role("button", name=f"Lock {name}").click()
        watched.waited()  # answers follow by themselves
        assert page.locator(".answer").count() == 0
        expect(page.locator(".reason")).to_be_visible()
        expect(page.locator(".status")).to_have_class(re.compile("infeasible"))
        page.locator("#free").click()
        watched.waited()
        assert page.locator(".answer").count() == 3


def test_a_busy_model_is_asked_again(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.alone, **DESKTOP) as watched:
        page = watched.page
        paste(page)
        replies: list[str] = []

        def busy_at_first(route: Route) -> None:
            reply = route.fetch()
            told = reply.json()
            if not replies:
                told |= {"record": {**told["record"], "status": "busy", "counterfactuals": []}, "answers": []}
            replies.append(told["record"]["status"])
            route.fulfill(response=reply, json=told)

        page.wait_for_timeout(300)
        page.route("**/models/0/answer", busy_at_first)
        assert watched.answered().locator(".answer").count() == 3
        assert replies == ["busy", "found"]


def test_what_is_refused_is_told_at_its_control(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.alone, **DESKTOP) as watched:
        page = watched.page
        paste(page)
        page.locator("#f1").fill("")
        page.locator("#count").fill("99")
        watched.answered()
        page.locator("#f0").fill("")
        expect(line(page, "age").locator(".error")).to_contain_text("cannot hold missing values")
        expect(page.locator("#f0")).to_have_attribute("aria-invalid", "true")
        page.locator("#f0").fill("30")
        expect(line(page, "age").locator(".error")).to_be_empty()
        watched.answered()
        expect(page.locator("#count-error")).to_contain_text("more than the policy's 10")
        page.locator("#paste summary").click() if not page.locator("#pasted").is_visible() else None
        page.locator("#pasted").fill('{"age": "old"}')
        page.locator("#read").click()
        expect(page.locator("#pasted-error")).to_contain_text("age: 'old' is not a whole number")


def paste(page: Page) -> None:
    page.locator("#paste summary").click()
    page.locator("#pasted").fill(TEXT)
    page.locator("#read").click()
    expect(page.locator("#f1")).to_have_value("21.5")
    expect(page.locator("#f4")).to_have_value("")


def test_limits_levels_and_curves(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.alone, **DESKTOP) as watched:
        page = watched.page
        paste(page)
        income, job = line(page, "yearly income"), line(page, "job")
        income.get_by_role("button", name="Limits and curve").click()
        expect(income.locator("svg.curve")).to_have_attribute("aria-label", re.compile("probability of what is wanted"))
        assert income.locator("polyline.met").count() == 1
        income.locator("input.high").focus()
        for _ in range(40):
            page.keyboard.press("ArrowLeft")
        expect(income.locator("rect.allowed")).to_have_count(1)
        income.get_by_label("At least, yearly income, typed").fill("20")
        page.keyboard.press("Enter")
        job.get_by_role("button", name="Limits and curve").click()
        job.locator(".levels").get_by_label("nurse").uncheck()
        line(page, "debts").get_by_label("Direction of debts").select_option("decreasing")
        watched.answered()
        held = watched.asked[-1]["params"]["counterfactual"]["constraints"]
        low, high = held["ranges"]["income"]
        assert low == 20
        assert 20 < high < 120
        assert set(held["levels"]["job"]) == {"clerk", "cook"}
        assert held["decreasing"] == ["debts"]
        expect(line(page, "age").get_by_role("button", name="Lock age")).to_be_disabled()


def test_levers_certificates_and_documents(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.alone, **DESKTOP) as watched:
        page = watched.page
        paste(page)
        page.locator("#levers").select_option("2")
        page.locator("#certify").check()
        watched.answered()
        expect(page.locator(".answer").first).to_contain_text("proved")
        assert page.locator("table.levers td.lever").count() == 10
        for kind, name in (("card", "counterfactual.html"), ("notice", "notice.html")):
            with page.expect_download() as download:
                page.locator(f"#{kind}").click()
            assert download.value.suggested_filename == name
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("#copy").click()
        expect(page.locator("#status")).to_have_text("The request is copied.")
        assert json.loads(page.evaluate("navigator.clipboard.readText()")) == watched.asked[-1]


def test_by_keyboard_alone(browser: Browser, pages: SimpleNamespace) -> None:
    with Watched(browser, pages.both, **DESKTOP) as watched:
        page = watched.page
        reach(page, "chosen")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#f1")).to_have_value(str(pages.rows["income"].iloc[1]))
        reach(page, "Lock yearly income")
        page.keyboard.press("Space")
        expect(page.get_by_role("button", name="Lock yearly income")).to_have_attribute("aria-pressed", "true")
        reach(page, "ask")
        page.keyboard.press("Enter")
        watched.waited()
        assert watched.asked[-1]["params"]["counterfactual"]["constraints"] == {"immutable": ["income"]}
        expect(page.locator(".column")).to_have_count(2)
        page.locator("#f1").fill("30")
        page.keyboard.press("Enter")
        watched.waited()
        assert watched.asked[-1]["dataframe_records"][0]["income"] == 30


def reach(page: Page, wanted: str) -> None:
    """Press Tab until something has the focus, and its outline is seen."""
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate("[document.activeElement.id, document.activeElement.getAttribute('aria-label')]")
        if wanted in found:
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    pytest.fail(f"Tab does not reach {wanted}")


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_serious_violation(
    browser: Browser, pages: SimpleNamespace, options: dict[str, Any], colours: str
) -> None:
    with Watched(browser, pages.both, **options, color_scheme=colours, bypass_csp=True) as watched:
        page = watched.page
        for name in ("yearly income", "job"):
            line(page, name).get_by_role("button", name="Limits and curve").click()
        page.locator("#levers").select_option("2")
        page.locator("#region").check()
        watched.answered()
        assert wide(page) <= options["viewport"]["width"]
        found = Axe().run(page)
        bad = [one for one in found.response["violations"] if one["impact"] in SERIOUS]
        assert [(one["id"], one["nodes"][0]["html"]) for one in bad] == []


def test_names_are_text(browser: Browser, tmp_path: Any) -> None:
    evil = "<img src=x onerror=alert(1)>"
    frame = pd.DataFrame({evil: range(80), "kind": [evil, "plain"] * 40}).astype({evil: float})
    features = {evil: {"unit": evil}}
    model = mlflow_cf.wrap(lambda rows: rows[evil] / 80, frame, target=1, output="score", features=features)
    with running(what_if([(evil, model)], frame.head(2))) as client, Watched(browser, client.url, **PHONE) as watched:
        page = watched.answered()
        for button in page.locator(".more").all():
            button.click()
        watched.waited()
        assert page.locator("img").count() == 0
        assert evil in page.locator("h1").inner_text()
        assert page.locator(".answer").count() > 0
        assert wide(page) <= 360


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    loans = small_loans.table()
    mlflow_cf.save_model(small_loans.fitted(loans), tmp_path / "loans", loans, target="good")
    small_loans.rejected(loans, 3).to_csv(tmp_path / "rows.csv", index=False)
    asked = ["-m", str(tmp_path / "loans"), "--rows", str(tmp_path / "rows.csv"), "--port", "0", "--no-open"]
    command = [sys.executable, "-c", "from mlflow_cf.cli import main; main()", "ui", *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in process.stdout)
            address = next(found[0] for found in lines if found)
            facts = requests.get(f"{address}facts", timeout=60).json()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert facts["models"][0]["name"] == "loans"
    assert len(facts["rows"]) == 3
