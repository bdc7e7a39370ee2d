"""What an artifact requires, and how it gets where no index has it: wheels inside, images built from it."""

import json
import logging
from importlib.metadata import PackageNotFoundError

import mlflow
import pytest
import small_loans
from click.testing import CliRunner
from mlflow.models import cli

import mlflow_cf
from mlflow_cf.artifact.publish import requirements as needed
from mlflow_cf.artifact.publish.requirements import PIN, WHEELS, requirements, warn_of_pin
from mlflow_cf.errors import InputError

TABLE = small_loans.table()
WHEEL = f"mlflow_cf-{mlflow_cf.__version__}-py3-none-any.whl"
ADDRESS = "mlflow-cf @ https://host/mlflow_cf.whl"


@pytest.fixture
def wheel(tmp_path):
    """Return the path of a file in the role of our wheel."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / WHEEL).write_bytes(b"wheel")
    return str(tmp_path / "dist" / WHEEL)


@pytest.mark.parametrize(
    ("given", "lines", "merged"),
    [
        (None, ["A==2", "a", "b", "# note", "", "-c constraints.txt"], ["A==2", "b", "-c {folder}/constraints.txt"]),
        (None, ["X_y>=3 ; python_version>'3'", "x.Y[z]==1"], ["X_y>=3 ; python_version>'3'"]),
        (None, ["mlflow_cf==0.0.1", "a"], ["a"]),
        (["b==2", "b==3", "a"], ["c"], ["b==2", "a"]),
        ([], ["c"], []),
        ("other.txt", ["c"], ["-r other.txt"]),
        (None, ["git+https://host/b.git", "--pre"], ["git+https://host/b.git", "--pre"]),
    ],
)
def test_requirements_are_merged_without_repetition(given, lines, merged, tmp_path):
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    expected = [PIN, *(line.format(folder=tmp_path) for line in merged)]
    assert requirements([tmp_path], given).lines == expected


def test_another_address_of_mlflow_cf_comes_on_top(tmp_path):
    (tmp_path / "requirements.txt").write_text("c")
    assert requirements([tmp_path], [ADDRESS]).lines == [ADDRESS, "c"]
    assert requirements([tmp_path], ["d", ADDRESS]).lines == [ADDRESS, "d"]


def test_wheels_are_looked_up_beside_the_requirements(wheel, tmp_path):
    (tmp_path / "requirements.txt").write_text("c")
    (tmp_path / "our_tool-1.2-1-cp311-cp311-linux_x86_64.whl").touch()
    tool = str(tmp_path / "our_tool-1.2-1-cp311-cp311-linux_x86_64.whl")
    found = requirements([tmp_path], [tool, wheel])
    assert found.lines == ["--find-links wheels", PIN, "our-tool==1.2", "c"]
    assert [str(path) for path in found.wheels] == [tool, wheel]
    assert requirements([tmp_path], ["d", wheel]).lines == ["--find-links wheels", PIN, "d"]


@pytest.mark.parametrize("name", [WHEEL, "mlflow_cf.whl"])
def test_a_wheel_that_is_not_there(name, tmp_path):
    with pytest.raises(InputError, match=f"pip_requirements: there is no wheel '{name}'; pass the path"):
        requirements([tmp_path], [name])


def test_a_wheel_of_another_version(tmp_path):
    (tmp_path / "mlflow_cf-0.0.1-py3-none-any.whl").touch()
    with pytest.raises(InputError, match=r"pip_requirements: mlflow_cf-0.0.1-py3-none-any.whl is not version"):
        requirements([tmp_path], [str(tmp_path / "mlflow_cf-0.0.1-py3-none-any.whl")])


def test_an_image_has_the_wheel(wheel, tmp_path):
    """What `mlflow models build-docker` builds; pip takes the folder of wheels from beside the requirements."""
    model = small_loans.fitted(TABLE)
    mlflow_cf.save_model(model, tmp_path / "m", TABLE, target="good", pip_requirements=[wheel])
    options = ["--model-uri", str(tmp_path / "m"), "--output-directory", str(tmp_path / "image")]
    assert CliRunner().invoke(cli.commands, ["generate-dockerfile", *options]).exit_code == 0
    steps = (tmp_path / "image" / "Dockerfile").read_text().splitlines()
    (copied,) = [step.split() for step in steps if step.startswith("COPY")]
    (installed,) = [step for step in steps if "_install_pyfunc_deps" in step]
    assert copied[2] == "/opt/ml/model"
    assert "'/opt/ml/model'" in installed
    assert "env_manager='local'" in installed
    context = tmp_path / "image" / copied[1]
    assert (context / "python_env.yaml").read_text().endswith("- -r requirements.txt\n")
    lines = (context / "requirements.txt").read_text().splitlines()
    assert lines[:2] == ["--find-links wheels", PIN]
    assert "scikit-learn" in " ".join(lines)
    assert [path.name for path in (context / WHEELS).iterdir()] == [WHEEL]


class Installed:
    """A distribution that was installed from somewhere."""

    def __init__(self, url):
        self.url = url

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.url and json.dumps({"url": self.url, "dir_info": {"editable": True}})


@pytest.fixture
def installed(monkeypatch):
    """Return a function that says where mlflow-cf came from."""
    return lambda url: monkeypatch.setattr(needed, "distribution", lambda _: Installed(url))


@pytest.mark.parametrize(
    ("url", "proposed"),
    [
        ("file:///home/me/mlflow-cf", f"dist/{WHEEL}"),
        (f"file:///home/me/{WHEEL}", f"/home/me/{WHEEL}"),
        (f"https://host/{WHEEL}", f"dist/{WHEEL}"),
    ],
)
def test_a_pin_that_no_index_may_have(url, proposed, installed, caplog):
    installed(url)
    for given in (None, "requirements.txt", ["scikit-learn"]):
        caplog.clear()
        warn_of_pin(given)
        (said,) = caplog.records
        assert (said.name, said.levelno) == ("mlflow_cf.artifact.publish.requirements", logging.WARNING)
        assert f"requires {PIN}, and this one was installed from {url}" in said.getMessage()
        assert said.getMessage().endswith(f"pip_requirements=['{proposed}']")


@pytest.mark.parametrize("given", [[f"dist/{WHEEL}"], ["scikit-learn", ADDRESS]])
def test_no_warning_where_its_own_address_is_named(given, installed, caplog):
    installed("file:///home/me/mlflow-cf")
    warn_of_pin(given)
    assert not caplog.records


def test_no_warning_where_it_came_from_an_index(installed, caplog):
    installed(None)
    warn_of_pin(None)
    assert not caplog.records


def test_a_checkout_that_is_not_installed(monkeypatch, caplog):
    def nowhere(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(needed, "distribution", nowhere)
    warn_of_pin(None)
    assert "was installed from file:///" in caplog.text


def test_logging_says_it_once(installed, caplog):
    installed("file:///home/me/mlflow-cf")
    mlflow.set_experiment("requirements")
    mlflow_cf.log_model(small_loans.fitted(TABLE), "m", TABLE, target="good")
    assert [line for line in caplog.messages if "no index has it" in line] == caplog.messages[-1:]
