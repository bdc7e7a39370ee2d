"""What pages show that is no Python: constraints and rules of gates as files, and the bodies of requests."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from mlflow.cli import cli
from test_docs import FILE, PAGES, ROOT, blocks, page_id, text_of, world

import mlflow_cf
from mlflow_cf import Constraints, InputError
from mlflow_cf.gating.rules import read_rules
from mlflow_cf.policy import Limits, Query

__all__ = ["world"]  # a fixture

CONSTRAINTS = ROOT / "docs" / "constraints.md"
MARKS = re.compile(r"^# ([\w-]+\.yaml)")


def files() -> list[tuple[Path, str, str]]:
    """Return page, name and text of every block of YAML."""
    found = [(page, block) for page in PAGES for block in blocks(page, "yaml")]
    return [(page, MARKS.match(text)[1], text) for page, text in found]


def bodies(page: Path) -> Iterator[Any]:
    """Yield the bodies of requests that a page shows: as JSON, and as what curl sends."""
    yield from (json.loads(block) for block in blocks(page, "json"))
    for block in blocks(page, "bash"):
        for line in re.findall(r"^curl .*?(?:'$|\"$|\Z)", block, re.MULTILINE | re.DOTALL):
            words = shlex.split(line)
            if "-d" in words and not words[words.index("-d") + 1].startswith("@"):
                yield json.loads(words[words.index("-d") + 1])


def test_every_block_of_yaml_is_a_file_of_a_known_kind() -> None:
    assert {name for _, name, _ in files()} == {"constraints.yaml", "gate.yaml", "inference-service.yaml"}
    assert all(isinstance(yaml.safe_load(text), dict) for _, _, text in files())


def test_rules_of_gates_are_read(tmp_path: Path) -> None:
    for _, name, text in files():
        if name == "gate.yaml":
            (tmp_path / name).write_text(text, encoding="utf-8")
            assert read_rules(tmp_path / name)


def shown_constraints() -> list[str]:
    return [text for _, name, text in files() if name == "constraints.yaml"]


def test_the_example_of_constraints_has_every_key() -> None:
    (text,) = shown_constraints()
    assert set(yaml.safe_load(text)) == set(Constraints.model_fields)
    said = CONSTRAINTS.read_text(encoding="utf-8").partition("## What a request may tighten")[2]
    table = " ".join(line.split("|")[1] for line in said.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(\w+)`", table)) == set(Constraints.model_fields)


def test_the_example_of_constraints_is_met_by_answers(world: dict[str, Any], tmp_path: Path) -> None:
    (text,) = shown_constraints()
    (tmp_path / "constraints.yaml").write_text(text, encoding="utf-8")
    explained = mlflow_cf.wrap(
        world["pipeline"], world["X_train"], target=1, constraints=tmp_path / "constraints.yaml", distance=(1, 0, 0)
    )
    answers = explained.explain(world["rows"])
    assert "found" in {answer.status for answer in answers}


REFUSED = {
    "constraints.immutable": {"immutable": []},
    "constraints.ranges.income": {"ranges": {"income": [0, 50_000]}},
    "constraints.relative.income.up_percent": {"relative": {"income": {"up_percent": 80}}},
    "constraints.levels.education": {"levels": {"education": ["school"]}},
    "constraints.max_changes": {"max_changes": 5},
    "constraints.ranges.sex": {"ranges": {"sex": ["f", "m"]}},
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_a_request_is_told_is_what_the_table_says(path: str, world: dict[str, Any]) -> None:
    policy = {
        "immutable": ["sex"],
        "ranges": {"income": [0, 40_000]},
        "relative": {"income": {"up_percent": 50}},
        "levels": {"education": ["bachelor", "master"]},
        "max_changes": 3,
    }
    explained = mlflow_cf.wrap(world["pipeline"], world["X_train"], target=1, constraints=policy)
    with pytest.raises(InputError) as told:
        explained.predict(world["rows"], {"counterfactual": {"constraints": REFUSED[path]}})
    text = CONSTRAINTS.read_text(encoding="utf-8")
    shown = next(words for words in re.findall(r"`(constraints\.[^`]*)`", text) if words.startswith(f"{path}: "))
    assert str(told.value).startswith(shown), str(told.value)


@pytest.mark.parametrize("page", [page for page in PAGES if list(bodies(page))], ids=page_id)
def test_requests_shown_are_requests(page: Path) -> None:
    for body in bodies(page):
        assert set(body) <= {"dataframe_records", "dataframe_split", "inputs", "params"}, body
        assert set(body.get("params", {})) <= {"counterfactual"}, body
        Query.asked(body.get("params"), Limits())


def test_requests_were_found() -> None:
    assert {page.name for page in PAGES if list(bodies(page))} >= {"README.md", "getting-started.md", "requests.md"}


def of_mlflow() -> list[tuple[str, str]]:
    """Return page and line of every call of MLflow's command line."""
    found = []
    for page in PAGES:
        lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
        calls = [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line) for line in lines]
        found += [(page_id(page), line) for line in calls if line.startswith("mlflow ")]
    return found


@pytest.mark.parametrize(("page", "line"), of_mlflow())
def test_commands_of_mlflow_are_known(page: str, line: str) -> None:
    """Each has the options that it is shown with; nothing is run."""
    _, *words = shlex.split(line, comments=True)
    command: click.Command = cli
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert not isinstance(command, click.Group), f"{page}: {line}"
    try:
        command.make_context(command.name, words)
    except click.ClickException as error:
        pytest.fail(f"{page}: {line}: {error.format_message()}")


@pytest.mark.parametrize(
    ("page", "file", "most"), [("explainer", "single_changes", 30), ("one-file-flavor", "weakest_flavor", 60)]
)
def test_what_is_shown_to_extend_is_as_short_as_it_says(page: str, file: str, most: int) -> None:
    text = text_of(ROOT / "docs" / "development" / f"{page}.md")
    lines = [line for line in dict(FILE.findall(text))[f"{file}.py"].splitlines() if line.strip()]
    assert len(lines) < most
    assert f"fewer than {most} lines" in text
