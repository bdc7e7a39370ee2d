"""The code of README and of every page of docs, run as it stands, page by page; their links, names and commands.

* Blocks marked `python` run in order, all blocks of a page in one process with a store of its own. Pages stand on the
  data of `docs/getting-started.md`: its first blocks run before theirs. README and that page stand on nothing.
* Blocks below a line with a file's name, as in `docs/development`, are files of a package. It is tried as pip would
  install it.
* Commands are not run, because they start servers and need networks; whether `mlflow-cf` and `make` know them is
  looked up.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from laws import THOROUGH

import mlflow_cf
from mlflow_cf.cli import COMMANDS, main
from mlflow_cf.problem import Problem

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [ROOT / "example_projects" / "README.md", *sorted(ROOT.glob("example_projects/*/README.md"))]
LINKED = [*PAGES, ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *EXAMPLES]
PACKAGES = ROOT / "tests" / "conformance" / "third_party"
START = ROOT / "docs" / "getting-started.md"
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAME = re.compile(r"`((?:mlflow_cf|mlflow_cf_flavors)(?:\.\w+)+)`")

# what else has to be there before some pages
ALSO = {
    "README.md": """
import joblib
import pandas as pd
from sklearn.linear_model import LogisticRegression

table = pd.DataFrame({"age": range(20, 60), "income": [20 + 7 * (at % 6) for at in range(40)]})
table["label"] = ["good" if income > 40 else "bad" for income in table["income"]]
table.to_csv("training.csv", index=False)
joblib.dump(LogisticRegression().fit(table[["age", "income"]], table["label"]), "model.joblib")
""",
    "endpoints.md": f"""
import atexit
import os
import sys

sys.path.insert(0, {str(ROOT / "tests")!r})
from endpoints import endpoint

served = endpoint(pipeline.predict)
atexit.register(served.__exit__, None, None, None)
os.environ["MODEL_URL"] = served.__enter__().url
os.environ["MODEL_TOKEN"] = "secret"
""",
    "packaging.md": """
from pathlib import Path

Path("dist").mkdir()
Path("dist/mlflow_cf-0.1.0-py3-none-any.whl").write_bytes(b"")  # copied, not installed
Path("our_package").mkdir()
Path("our_package/__init__.py").write_text("HOURS = 1_800\\n")
Path("features.py").write_text(
    "from our_package import HOURS\\n\\n\\n"
    "def per_hour(rows):\\n    return rows.assign(income=rows['income'] / HOURS)\\n"
)
""",
}
# the tests of a suite that are enough here: the conformance tests run all of them on the same files
BRIEFLY = {"explainer": "all_constraints or something_is_found or nothing_exists or name_and_options"}
# what must hold after some pages
AFTER = {
    "endpoints.md": """
assert {answer.status for answer in answers} == {"found"}
assert answers[0].diagnostics["judge_calls"] <= 40 * len(rows)
""",
    "getting-started.md": """
assert {answer.status for answer in answers} == {"found"}
assert set(pipeline.predict(changed[X_train.columns])) == {1}
assert changed.index.name == "applicant"
""",
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str = "python") -> list[str]:
    """Return the blocks of a page that are no files."""
    return re.findall(rf"^```{language}\n(.*?)^```", FILE.sub("", text_of(page)), re.MULTILINE | re.DOTALL)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def before(page: Path) -> list[str]:
    """Return what stands before the blocks of a page: the data, an explained model, and one in the registry."""
    if page in (START, ROOT / "README.md"):
        return [ALSO.get(page.name, "")]
    data, explained, logged = blocks(START)[:3]
    needs_logged = "models:/credit" in "".join(blocks(page))
    return [data, explained.splitlines()[0], *([logged] if needs_logged else []), ALSO.get(page.name, "")]


def variables_of(folder: Path) -> dict[str, str]:
    """Return the environment of a store of MLflow in a folder."""
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'runs.db'}"}


def run(command: list[str], folder: Path, **variables: str) -> None:
    """Run a command in a process and a store of its own."""
    mine = {**os.environ, **variables_of(folder), **variables}
    done = subprocess.run(command, cwd=folder, env=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def runner() -> Iterator[Callable[[Path], None]]:
    """Return what runs a script as Python does, in its folder and with a store of its own."""
    command = [sys.executable, str(Path(__file__).with_name("page_runner.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, tells = process.stdin, process.stdout

        def run_script(script: Path) -> None:
            folder = script.parent
            asked = {"script": str(script), "folder": str(folder), "variables": variables_of(folder)}
            asks.write(json.dumps(asked) + "\n")
            asks.flush()
            code, printed = json.loads(tells.readline())
            assert code == 0, printed

        yield run_script
        asks.close()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=page_id)
def test_code_runs(page: Path, tmp_path: Path, runner: Callable[[Path], None]) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join([*before(page), *blocks(page), AFTER.get(page.name, "")]), encoding="utf-8")
    runner(script)


def test_scripts_that_fail_are_told(tmp_path: Path, runner: Callable[[Path], None]) -> None:
    script = tmp_path / "page.py"
    script.write_text("print('so far')\nraise ValueError('no further')\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"(?s)so far.*line 2.*ValueError: no further"):
        runner(script)
    script.write_text("import os\nassert os.getcwd() == os.path.dirname(os.path.abspath(__file__))\n", encoding="utf-8")
    runner(script)


def test_pages_with_code_were_found() -> None:
    found = {page.name: len(blocks(page)) for page in PAGES if blocks(page)}
    assert found["getting-started.md"] == 3
    assert set(found) >= {"README.md", "targets.md", "answers.md", "plans.md", "causal.md", "evaluate.md", "compare.md"}
    assert sum(found.values()) >= 19


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the examples are about."""
    script = tmp_path_factory.mktemp("docs") / "data.py"
    script.write_text(blocks(START)[0], encoding="utf-8")
    return runpy.run_path(str(script))


RULES = re.findall(r"^\| (?:``|`)(.*?x_cf\..*?)(?:``|`) \|", text_of(ROOT / "docs" / "constraints.md"), re.MULTILINE)


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_rules(rule: str, world: dict[str, Any]) -> None:
    explained = mlflow_cf.wrap(
        world["pipeline"],
        world["X_train"],
        constraints={"rules": [rule]},
        features={"education": {"kind": "ordinal", "levels": ["school", "bachelor", "master"]}},
    )
    assert explained.bound_policy.rules


def test_all_examples_of_rules_were_found() -> None:
    assert len(RULES) == 6


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "development").glob("*.md")), ids=page_id)
def test_files_shown_are_files_tested(page: Path) -> None:
    """What a page shows of a package is what the conformance tests try at length."""
    for name, shown in FILE.findall(text_of(page)):
        if (PACKAGES / name).exists():
            assert shown == (PACKAGES / name).read_text(encoding="utf-8"), f"{name} is another one"


@pytest.mark.parametrize("name", ["explainer", "flavor", "one-file-flavor"])
def test_packages_shown_work(name: str, tmp_path: Path) -> None:
    """Installed as pip would leave them, what pages of docs/development show passes the suites that they show."""
    files = dict(FILE.findall(text_of(ROOT / "docs" / "development" / f"{name}.md")))
    told = tomllib.loads(files.pop("pyproject.toml"))
    project = told["project"]
    ((group, points),) = project["entry-points"].items()
    assert {f"{module}.py" for module in told["tool"]["setuptools"]["py-modules"]} <= set(files)
    info = tmp_path / f"shown-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "\n".join(f"{key} = {at}" for key, at in points.items()))
    for file, shown in files.items():
        (tmp_path / file).write_text(shown, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    chosen = () if THOROUGH else ("-k", BRIEFLY.get(name, ""))
    run(
        [sys.executable, "-m", "pytest", "-q", *chosen, *(file for file in files if file[:5] == "test_")],
        tmp_path,
        PYTHONPATH=path,
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_table_of_examples_has_all_of_them() -> None:
    table = EXAMPLES[0].read_text(encoding="utf-8")
    assert [page.parent.name for page in EXAMPLES[1:] if f"]({page.parent.name}/README.md)" not in table] == []


@pytest.mark.parametrize("page", LINKED, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", text_of(page))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(text_of(index))}
    assert {page for page in PAGES if page.is_relative_to(index.parent) and page != index} <= linked


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_names_are_names(page: Path) -> None:
    """Modules and what is in them, where a page names them in full."""
    for name in NAME.findall(FENCED.sub("", text_of(page))):
        assert known(name), name
    for name in re.findall(r"`problem\.(\w+)`", text_of(page)):
        assert hasattr(Problem, name) or name in Problem.__dataclass_fields__, name


def known(name: str) -> bool:
    """Whether a dotted name is that of a module, of something in a module, or of a group of entry points."""
    if name in ("mlflow_cf.explainers", "mlflow_cf.flavors"):
        return True
    module, *rest = name.split(".")
    found: Any = import_module(module)
    for part in rest:
        module = f"{module}.{part}"
        if not hasattr(found, part):
            try:
                import_module(module)
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


def commands(page: Path) -> list[str]:
    """Return the lines of a page that call `mlflow-cf` or `make`, in blocks and in code within sentences."""
    text = text_of(page)
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    return [line.partition(" | ")[0] for line in lines if re.match(r"(mlflow-cf|make) ", line)]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=page_id)
def test_commands_are_known(page: Path) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in commands(page):
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            assert {word for word in words if "=" not in word} <= set(targets), line
        elif len(words) > 1:
            parses(words, line)
        else:
            assert words[0] in (*COMMANDS, "--help", "--version"), line


def parses(words: list[str], line: str) -> None:
    """Check the options of a command without running it."""
    name, *options = words
    command = main.get_command(click.Context(main), name)
    assert command is not None, line
    try:
        command.make_context(name, options)
    except click.ClickException as error:
        pytest.fail(f"{line}: {error.format_message()}")
