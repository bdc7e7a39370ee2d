"""What all tests share: data files, a throw-away MLflow store, a clock to be moved, the hypothesis profiles."""

import importlib
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from mlflow_cf.testing.watched import Clock

# Derandomized, so that one commit gives one answer; `nightly` looks for rows nobody has seen yet.
settings.register_profile("dev", max_examples=9, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=500, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

CHECKOUT = Path(__file__).resolve().parent.parent
BENCHMARK = CHECKOUT / "example_projects" / "benchmark"
# Whole programs: servers, examples and the pages as a user runs them, and what takes long because it goes through
# MLflow's runs and registry, starts processes or draws. `make test` leaves them to `make system`.
PROGRAMS = ("serving/", "test_example_", "test_docs.py", "test_benchmark")
RUNS = (
    "test_autolog.py",
    "test_compare.py",
    "test_evaluate.py",
    "test_evaluator_plugin.py",
    "test_report_logged.py",
    "test_audit.py",
    "test_pictures.py",
    "artifacts/test_publish.py",
    "artifacts/test_code_paths.py",
    "artifacts/test_sources.py",
    "test_gate.py",
    "test_packaging.py",
)
SYSTEM = (*PROGRAMS, *RUNS, "test_helpers.py", "test_cli.py", "test_spark")
# So that no worker is left alone with them in the end: files with tests of a minute or more come first, and pages of
# docs, which know nothing of each other, come last and one by one.
LONG = ("test_benchmark", "test_example_", "test_spark", "test_warm.py")
APART = "test_docs.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of whole programs, and put long ones first."""
    names = {item: str(item.path.relative_to(Path(__file__).parent)) for item in items}
    for item, name in names.items():
        if name.startswith(SYSTEM):
            item.add_marker(pytest.mark.system)
    sizes = Counter(names.values())
    items.sort(key=lambda item: _turn(names[item], sizes[names[item]]))


def _turn(name: str, size: int) -> tuple[int, int, str]:
    """Return when a file with so many tests has its turn: long programs, then what has most tests."""
    return (2 if name == APART else 0 if name.startswith(LONG) else 1), -size, name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests file by file in their order, those of `APART` one by one."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  not where tests run in one process

    class Apart(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return nodeid if file.endswith(APART) else file

    return Apart(config, log)


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """Return a function from the name of a public data file to its path; it skips the test if there is none."""
    folders = [CHECKOUT.parent / "shared" / "data"]
    if "MLFLOW_CF_DATA" in os.environ:
        folders.insert(0, Path(os.environ["MLFLOW_CF_DATA"]).resolve())

    def find(name: str) -> Path:
        for folder in folders:
            if (folder / name).exists():
                return folder / name
        looked = " or ".join(map(str, folders))
        return pytest.skip(f"{name} is not in {looked}; name the folder of public data sets in MLFLOW_CF_DATA")

    return find


@pytest.fixture(scope="module")
def benchmark() -> Iterator[SimpleNamespace]:
    """Return the modules of the benchmark by name; they are scripts that import each other, so all leave again."""
    scripts = {path.stem: path.relative_to(BENCHMARK) for path in BENCHMARK.rglob("*.py")}
    modules = {name: ".".join(path.with_suffix("").parts) for name, path in scripts.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARK)
        yield SimpleNamespace(**{name: importlib.import_module(module) for name, module in sorted(modules.items())})
        for name in {*modules.values(), *(path.parts[0] for path in scripts.values())}:
            sys.modules.pop(name, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that everything reads now: it stands still, nearly, unless a test or its model moves it."""
    stopped = Clock()
    monkeypatch.setattr(time, "perf_counter", stopped)
    return stopped


@pytest.fixture(scope="session", autouse=True)
def throw_away_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give MLflow an empty sqlite store in a temporary folder, also for the processes that tests start.

    MLflow puts artifacts under the working directory, so that moves into the folder too.
    """
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        # MLflow reads each model that it logs in a process of its own, for six seconds, to list what it requires.
        patch.setenv("MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT", "0")
        # Each tracking server starts processes for jobs that judge answers of language models.
        patch.setenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
        yield folder


@pytest.fixture(autouse=True)
def no_experiment_of_other_tests() -> None:
    """Leave out what MLflow tells child processes: an experiment or a run of another test is not in their store."""
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID"):
        os.environ.pop(name, None)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures out where no test looks at them: they take half of an evaluation of few rows."""
    monkeypatch.setattr("mlflow.log_figure", lambda *_: None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a session of a local Spark with two workers, which tries a task three times."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    sql = pytest.importorskip("pyspark.sql")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        here = [str(CHECKOUT / "tests"), *filter(None, sys.path)]  # workers import what tests import
        patch.setenv("PYTHONPATH", os.pathsep.join(here))
        builder = sql.SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.session.timeZone", "Europe/Vienna")
        builder = builder.config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        session = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "16").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
