"""Our explainers pass the tests that `mlflow_cf.testing` has for everybody's."""

import json
import os
import subprocess
import sys

import pytest
from laws import SOME, THOROUGH, kinds

from mlflow_cf import (
    CEOCL,
    CERTIFAI,
    CSCF,
    FACE,
    MDPSO,
    SCF,
    UFCE,
    Exact,
    GeCo,
    GrowingSpheres,
    NearestRow,
    RandomSearch,
    SimCF,
)
from mlflow_cf.testing import ExplainerSuite, Scenario
from mlflow_cf.testing.conduct import records
from mlflow_cf.testing.trial import Trial

# they share most of what they do with the others: a few problems are enough
FEWER = SOME if THOROUGH else SOME[::4]


class TestGeCo(ExplainerSuite):
    scenarios = SOME
    kinds = kinds("sklearn", "pyfunc")

    def explainer(self):
        return GeCo()


class TestExact(ExplainerSuite):
    scenarios = SOME
    kinds = kinds("xgboost", "function")

    def explainer(self):
        return Exact()


class TestCEOCL(ExplainerSuite):
    """Models that cannot be opened are refused, and so are the functions by which a search is watched."""

    scenarios = tuple(scenario for scenario in SOME if scenario.kind in ("xgboost", "lightgbm"))
    kinds = kinds("xgboost")
    test_evaluations_are_limited = test_the_deadline_is_kept = test_nothing_exists = None
    test_it_learns_once = test_it_refuses_a_count_before_it_searches = test_requests_set_declared_options_only = None
    test_something_is_found = None

    def explainer(self):
        return CEOCL()


class TestMDPSO(ExplainerSuite):
    scenarios = FEWER
    kinds = kinds("xgboost", "function")

    def explainer(self):
        return MDPSO(particles=15, iterations=5, box="absolute")


class TestUFCE(ExplainerSuite):
    scenarios = FEWER
    kinds = kinds("function")

    def explainer(self):
        return UFCE()


class TestCSCF(ExplainerSuite):
    """Without actions each mutable feature has one; where values are observed ones, few numbers are hit."""

    scenarios = FEWER
    kinds = kinds("function")

    def explainer(self):
        return CSCF(population=60, offspring=40, mutants=20, generations=10)


class TestSCF(ExplainerSuite):
    scenarios = FEWER[:1]
    kinds = kinds("xgboost")

    def explainer(self):
        return SCF(population=40, offspring=30, mutants=10, generations=5)


class TestNearestRow(ExplainerSuite):
    scenarios = SOME if THOROUGH else SOME[::2]
    kinds = kinds("lightgbm", "function")

    def explainer(self):
        return NearestRow()


class TestRandomSearch(ExplainerSuite):
    scenarios = SOME if THOROUGH else SOME[::2]
    kinds = kinds("xgboost", "pyfunc")

    def explainer(self):
        return RandomSearch()


class TestSimCF(ExplainerSuite):
    scenarios = FEWER
    kinds = kinds("function")

    def explainer(self):
        return SimCF()


class TestCERTIFAI(ExplainerSuite):
    scenarios = FEWER
    kinds = kinds("function")

    def explainer(self):
        return CERTIFAI(generations=10)


class TestFACE(ExplainerSuite):
    scenarios = FEWER
    kinds = kinds("function")

    def explainer(self):
        return FACE()


class TestGrowingSpheres(ExplainerSuite):
    scenarios = FEWER
    kinds = kinds("function")

    def explainer(self):
        return GrowingSpheres(samples=40)


CASE = Scenario("function", "multiclass", "rules", "continuous")


def answers_of_all():
    unrestricted = (GeCo(), Exact(), NearestRow(), RandomSearch(), SimCF())
    learning = (UFCE(), MDPSO(box="absolute"), CERTIFAI(generations=10), GrowingSpheres(), FACE())
    return [records(Trial.of(CASE, explainer).answers) for explainer in (*unrestricted, *learning)]


@pytest.mark.system
def test_another_process_gives_the_same_answers():
    """Python shuffles sets of strings anew in every process; answers must not notice."""
    code = (
        f"import sys; sys.path = {sys.path!r}; import json, test_explainers as t; print(json.dumps(t.answers_of_all()))"
    )
    seed = str(int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0")) + 1)
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert json.loads(run.stdout) == json.loads(json.dumps(answers_of_all()))
