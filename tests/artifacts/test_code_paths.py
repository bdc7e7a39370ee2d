"""Code of the user's own: the artifact brings it along, seals it, and is tried where nothing else of theirs is."""

import importlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.models import Model
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import mlflow_cf
from mlflow_cf.artifact import sources as code
from mlflow_cf.artifact.load import verify_folder
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.model.own_code import listed, names_in, own_modules

NAME = "loan_features_of_ours"
MODULE = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

def doubled(rows):
    return np.asarray(rows) * 2

def effort(before, after):
    return abs(after["income"] - before["income"])

def score(rows):
    return (np.asarray(rows)[:, 0] > 50).astype(float)

class Halved(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X) / 2
"""
RNG = np.random.default_rng(0)
DATA = pd.DataFrame({"income": RNG.integers(10, 90, 120), "debt": RNG.integers(0, 50, 120)})
ROWS = DATA.head(4)
PREDICT = """
import sys, mlflow
rows = mlflow.models.Model.load(sys.argv[1]).load_input_example(sys.argv[1])
print(list(mlflow.pyfunc.load_model(sys.argv[1]).predict(rows)["status"]))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module of the user's own, imported from a folder that no other process looks in."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / f"{NAME}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    before = list(sys.path)
    yield importlib.import_module(NAME)
    assert sys.path == before
    del sys.modules[NAME]


def code_of(module: ModuleType) -> str:
    return str(module.__file__)


def fitted(*steps: object) -> Any:
    return make_pipeline(*steps, LogisticRegression()).fit(DATA, (DATA["income"] - DATA["debt"] > 20).astype(int))


def elsewhere(folder: Path, tmp_path: Path) -> str:
    """Return what a process in another folder gets of MLflow."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PREDICT, str(folder)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return done.stdout


class TestPipelines:
    def test_are_served_with_their_code_where_nobody_else_has_it(self, module, tmp_path):
        model = fitted(FunctionTransformer(module.doubled), module.Halved())
        mlflow_cf.save_model(model, tmp_path / "m", DATA, code_paths=[code_of(module)])
        expected = list(mlflow_cf.wrap(model, DATA).predict(DATA.head(3))["status"])
        assert elsewhere(tmp_path / "m", tmp_path).strip() == str(expected)

    def test_their_code_is_sealed(self, module, tmp_path):
        mlflow_cf.save_model(
            fitted(module.Halved()), tmp_path / "m", DATA, code_paths=[code_of(module)], validate="here"
        )
        code = tmp_path / "m" / "model" / "code" / f"{NAME}.py"
        assert verify_folder(tmp_path / "m").files
        code.write_text(code.read_text().replace("/ 2", "* 2"))
        for read in (mlflow_cf.load_model, verify_folder):
            with pytest.raises(ArtifactError, match="has other bytes"):
                read(tmp_path / "m")

    def test_mlflows_switch_forbids_their_code(self, module, tmp_path, monkeypatch):
        mlflow_cf.save_model(
            fitted(module.Halved()), tmp_path / "m", DATA, code_paths=[code_of(module)], validate="here"
        )
        monkeypatch.setenv("MLFLOW_ALLOW_MODEL_CODE_EXECUTION", "false")
        with pytest.raises(ArtifactError, match="is code that the model brings, and MLFLOW_ALLOW_MODEL_CODE_EXECUTION"):
            mlflow_cf.load_model(tmp_path / "m")

    def test_a_package_comes_as_a_whole_without_what_python_compiled(self, module, tmp_path):
        package = tmp_path / "project" / "loan_package_of_ours"
        (package / "__pycache__").mkdir(parents=True)
        (package / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"")
        (package / "__init__.py").write_text(f"from {NAME} import Halved\n")
        paths = [package, code_of(module)]
        mlflow_cf.save_model(fitted(module.Halved()), tmp_path / "m", DATA, code_paths=paths, validate="here")
        brought = sorted(path.name for path in (tmp_path / "m" / "model" / "code").rglob("*"))
        assert brought == ["__init__.py", f"{NAME}.py", "loan_package_of_ours"]

    def test_without_their_code_the_error_says_what_to_pass(self, module, tmp_path):
        steps = FunctionTransformer(module.doubled), FunctionTransformer(lambda rows: rows)
        with pytest.raises(InputError) as error:
            mlflow_cf.save_model(fitted(steps[0]), tmp_path / "m", DATA)
        assert error.value.fact == f"uses functions or classes of modules that are not installed: ['{NAME}.doubled']"
        assert error.value.fix == f"pass code_paths=['{code_of(module)}'], so that the artifact brings it along"
        with pytest.raises(InputError) as error:
            mlflow_cf.save_model(fitted(*steps), tmp_path / "m", DATA)
        assert error.value.fact.endswith("no other process can import: ['test_code_paths.<lambda>']")
        assert f"it needs code_paths=['{code_of(module)}'] there" in error.value.fix


class TestModelsByUri:
    @pytest.fixture
    def plain(self, module, tmp_path) -> Path:
        """Return what our advice used to lead to: a pickle that names a module, and does not bring it along."""
        model, folder = fitted(module.Halved()), tmp_path / "plain"
        needed = ["scikit-learn", "cloudpickle"]
        mlflow.sklearn.save_model(model, folder, serialization_format="cloudpickle", pip_requirements=needed)
        return folder

    def test_are_refused_without_the_code_that_they_need(self, plain, module, tmp_path):
        with pytest.raises(InputError) as error:
            mlflow_cf.save_model(plain, tmp_path / "m", DATA)
        assert error.value.message == (
            f"code_paths: the model needs the module '{NAME}', which a clean process cannot import; "
            f"pass code_paths=['{code_of(module)}'], so that the artifact brings it along, "
            "or validate='here' if servers have it all the same"
        )
        assert not (tmp_path / "m").exists()

    def test_nobody_needs_to_try_them(self, plain, tmp_path):
        mlflow_cf.save_model(plain, tmp_path / "m", DATA, validate="here")
        assert len(mlflow_cf.load_model(tmp_path / "m").predict(ROWS)) == len(ROWS)

    def test_load_anywhere_with_it(self, plain, module, tmp_path):
        mlflow_cf.save_model(plain, tmp_path / "m", DATA, code_paths=[code_of(module)])
        flavors = Model.load(str(tmp_path / "m" / "model")).flavors
        assert {name: conf["code"] for name, conf in flavors.items()} == {"sklearn": "code", "python_function": "code"}

    def test_code_that_they_bring_is_not_overwritten(self, plain, module, tmp_path):
        mlflow_cf.save_model(plain, tmp_path / "m", DATA, code_paths=[code_of(module)], validate="here")
        with pytest.raises(InputError, match=rf"code_paths\[0\]: the model brings a '{NAME}.py' of its own"):
            mlflow_cf.save_model(tmp_path / "m" / "model", tmp_path / "n", DATA, code_paths=[code_of(module)])


def test_functions_of_a_module_are_tried_in_a_clean_process(module, tmp_path):
    options: dict[str, Any] = {"output": "score", "allow_functions": True}
    with pytest.raises(InputError, match=f"needs the module '{NAME}'"):
        mlflow_cf.save_model(module.score, tmp_path / "m", DATA, **options)
    actions = [{"name": "earn", "feature": "income", "effort": module.effort}]
    options |= {"constraints": {"actions": actions}, "code_paths": [code_of(module)]}
    mlflow_cf.save_model(module.score, tmp_path / "m", DATA, **options)


def test_a_model_that_must_hold_too_may_need_the_same_code(module, tmp_path):
    other = {"model": fitted(module.Halved()), "name": "other"}
    mlflow_cf.save_model(fitted(), tmp_path / "m", DATA, robust_to=[other], code_paths=[code_of(module)])
    assert (tmp_path / "m" / "robust_to" / "other").is_dir()


def test_a_process_is_asked_for_by_name(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("mlflow_cf.artifact.publish.build.prove_elsewhere", lambda *arguments: asked.append(arguments))
    mlflow_cf.save_model(fitted(), tmp_path / "m", DATA)
    assert not asked
    mlflow_cf.save_model(fitted(), tmp_path / "n", DATA, validate="process")
    assert len(asked) == 1


def test_what_fails_there_is_told(module, tmp_path):
    (Path(code_of(module)).parent / "rate_of_ours.txt").write_text("1")
    file = Path(code_of(module))
    file.write_text(f"from pathlib import Path\nPath(__file__).with_name('rate_of_ours.txt').read_text()\n{MODULE}")
    with pytest.raises(InputError, match=r"cannot be loaded in a clean process .*FileNotFoundError.*rate_of_ours"):
        mlflow_cf.save_model(fitted(module.Halved()), tmp_path / "m", DATA, code_paths=[file])


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("features.py", r"code_paths: must be a list, got 'features.py'; write \['features.py'\]"),
        (["nowhere.py"], r"code_paths\[0\]: there is no file or folder 'nowhere.py'"),
        ([3], r"code_paths\[0\]: there is no file or folder '3'"),
        (["{here}/a.py", "{here}/b/a.py"], r"code_paths\[1\]: there is another 'a.py' before it"),
    ],
)
def test_what_is_no_code_is_refused(paths, message, tmp_path):
    (tmp_path / "b").mkdir()
    for file in ("a.py", "b/a.py"):
        (tmp_path / file).write_text("")
    given = [path.format(here=tmp_path) if isinstance(path, str) else path for path in paths]
    with pytest.raises(InputError, match=message):
        mlflow_cf.save_model(fitted(), tmp_path / "m", DATA, code_paths=paths if isinstance(paths, str) else given)
    with pytest.raises(InputError, match="validate: 'somewhere' is unknown"):
        mlflow_cf.save_model(fitted(), tmp_path / "m", DATA, validate="somewhere")


@given(st.text("abz_", min_size=1, max_size=120), st.text("abz.", max_size=60))
def test_names_are_found_in_pickles_of_any_length(name, rest):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "own_modules", lambda: {name: Path("x.py")})
        (Path(folder) / "model.pkl").write_bytes(pickle.dumps((1, [f"{name}.{rest}"[:255], "f"])))
        assert code.needed(Path(folder))
        (Path(folder) / "model.pkl").write_bytes(pickle.dumps((1, ["sklearn.linear_model", f"0.{name}"])))
        assert not code.needed(Path(folder))


def test_which_modules_are_the_users_own(module, monkeypatch):
    assert own_modules([f"{NAME}.Halved", "numpy.ndarray", "os", "sklearn", "mlflow_cf.wrap", "not_imported"]) == {
        NAME: Path(code_of(module)).resolve()
    }
    assert NAME in own_modules()
    monkeypatch.chdir(Path(code_of(module)).parent)
    assert listed(own_modules([NAME]).values()) == f"code_paths=['{NAME}.py']"
    assert names_in(["a/b.py", "c/d"]) == {"b", "d"}
