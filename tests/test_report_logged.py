"""Reports among the artifacts of runs: evaluations and comparisons have one, and lose nothing where it fails."""

import logging

import mlflow
import pytest
import small_loans

import mlflow_cf
from mlflow_cf.evaluation.measure import reported

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def loans():
    return small_loans.table()


@pytest.fixture(scope="module")
def explained(loans):
    return mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good", constraints=small_loans.CONSTRAINTS)


def text_of(found):
    return mlflow.artifacts.load_text(f"runs:/{found.run_id}/{found.report}")


def test_an_evaluation_has_its_report(loans, explained, tmp_path):
    found = mlflow_cf.evaluate(explained, loans.head(30), groups=["job"], seed=2)
    assert found.report == "counterfactual/report.html"
    path = mlflow_cf.report(explained, loans.head(30), tmp_path / "report.html", groups=["job"], seed=2)
    assert text_of(found) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("failing", ["page", "material"])
def test_an_evaluation_outlives_its_report(loans, explained, monkeypatch, caplog, failing):
    def fail(*_args, **_options):
        raise RuntimeError("no paper")

    monkeypatch.setattr(reported, "page" if failing == "page" else "_lines", fail)
    with caplog.at_level(logging.WARNING):
        found = mlflow_cf.evaluate(explained, loans.head(10))
    assert found.report == ""
    assert found.metrics["cf/coverage"] > 0
    assert len(found.table) == 10
    assert "no report was made (RuntimeError: no paper)" in caplog.text


def test_a_comparison_sets_versions_side_by_side(loans, explained):
    other = small_loans.fitted(loans.head(50))
    again = mlflow_cf.wrap(other, loans, target="good", constraints=small_loans.CONSTRAINTS)
    found = mlflow_cf.compare({"<old>": explained, "new": again}, loans, groups="job")
    assert found.report == "compare/report.html"
    text = text_of(found)
    assert "&lt;old&gt; to new</h1>" in text
    assert "<old>" not in text
    share = found.survival_matrix().loc["<old>", "new"]
    assert f">{share:.0%}</td>" in text
    assert f"{share:.0%} of the answers that &lt;old&gt; gave still hold under new." in text
    for part in ("Side by side", "Who bears what", "What answers change", "Rows of new"):
        assert part in text


def test_a_comparison_outlives_its_report(loans, explained, monkeypatch):
    monkeypatch.setattr("mlflow_cf.evaluation.compare.versions_compared.material_of_versions", lambda *_: 1 / 0)
    found = mlflow_cf.compare({"old": explained, "new": explained}, loans.head(10))
    assert found.report == ""
    assert found.versions == ("old", "new")
