"""PyTorch: networks answer as they do in MLflow, are opened where they are chains, and refused where unclear."""

import copy
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.neural_network import MLPClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.flavors import flavor_of, open_folder, open_native
from mlflow_cf.structures import Layers

torch = pytest.importorskip("torch")
flavor = pytest.importorskip("mlflow_cf_flavors.pytorch.flavor")
nn = torch.nn

pytestmark = pytest.mark.torch

NAMES = ("age", "income", "debt", "owner")
NEAR = {"rtol": 1e-5, "atol": 1e-6}


def people(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows),
            "income": rng.normal(40, 12, rows).round(2),
            "debt": rng.gamma(2, 5, rows).astype(np.float32),
            "owner": rng.random(rows) < 0.5,
        }
    )


PEOPLE = people()


class Scaled(nn.Module):
    """Brings its inputs to one scale before the layers, and fills gaps."""

    def __init__(self, *layers, fill=None):
        super().__init__()
        self.fill = fill
        self.register_buffer("mean", torch.tensor([45.0, 40.0, 10.0, 0.5]))
        self.register_buffer("scale", torch.tensor([15.0, 12.0, 7.0, 0.5]))
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        if self.fill is not None:
            x = torch.nan_to_num(x, nan=self.fill)
        return self.layers((x - self.mean) / self.scale)


class Written(nn.Module):
    """A chain whose layers are functions and methods."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 5, bias=False), nn.Linear(5, 1)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        x = torch.flatten(x, 1) * 0.1
        x = nn.functional.leaky_relu(self.norm(self.first(x)), 0.1, inplace=True)
        x = nn.functional.dropout(self.second(x), 0.3, self.training).clamp(min=-1.0)
        return torch.sigmoid(2 * self.last(x).squeeze(-1) - 0.25)


class Skipping(nn.Module):
    """No chain: a layer's input is added to its output."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return torch.sigmoid(self.last(x + torch.relu(self.first(x))))


class Branching(nn.Module):
    """No chain either: what it does depends on the numbers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return torch.sigmoid(self.layer(x) if x.sum() > -1 else -self.layer(x))


def seeded(make):
    """Return a network with drawn weights, and statistics of batches that are not those of a new one."""
    torch.manual_seed(0)
    network = make()
    with torch.no_grad():
        network(torch.from_numpy(PEOPLE.to_numpy(dtype=np.float32))[:64])
    return network.eval()


def sharp(outputs=1, *end):
    return lambda: Scaled(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs), *end)


OPENED = {
    "sigmoid": (sharp(1, nn.Sigmoid()), None, "network 8-1"),
    "softmax of two": (sharp(2, nn.Softmax(dim=1)), None, "network 8-1"),
    "softmax of three": (sharp(3, nn.Softmax(dim=-1)), None, "network 8-3"),
    "logarithms": (sharp(3, nn.LogSoftmax(dim=1)), None, "network 8-3"),
    "logit": (sharp(), "score", "network 8-2"),
    "logits": (sharp(3), "score", "network 8-3"),
    "value": (sharp(), "value", "network 8-1"),
    "value from 0 to 1": (
        lambda: Scaled(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid()),
        "value",
        "network 8-1-1",
    ),
    "value that is rectified": (sharp(1, nn.ReLU()), "value", "network 8-1-1"),
    "linear": (lambda: Scaled(nn.Linear(4, 1), nn.Sigmoid()), None, "linear"),
    "leaky": (lambda: Scaled(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid()), None, "network 16-1"),
    "a slope of each unit": (
        lambda: Scaled(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 1), nn.Sigmoid()),
        None,
        "network 16-1",
    ),
    "clipped": (
        lambda: Scaled(nn.Linear(4, 5), nn.Hardtanh(), nn.Linear(5, 4), nn.ReLU6(), nn.Linear(4, 1), nn.Sigmoid()),
        None,
        "network 10-8-1",
    ),
    "hyperbolic": (lambda: Scaled(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid()), None, "network 8-1"),
    "curves of both kinds": (
        lambda: Scaled(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid()),
        None,
        "network 8-3-1",
    ),
    "normalised": (
        lambda: Scaled(
            nn.BatchNorm1d(4),
            nn.Linear(4, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(8, 1),
            nn.Sigmoid(),
        ),
        None,
        "network 8-1",
    ),
    "nested": (
        lambda: Scaled(
            nn.Flatten(),
            nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Identity())),
            nn.Linear(8, 1),
            nn.Sigmoid(),
        ),
        None,
        "network 8-1",
    ),
    "written out": (Written, None, "network 12-5-1"),
    "double": (lambda: sharp(1, nn.Sigmoid())().double(), None, "network 8-1"),
}


def seeded_double(make):
    """Return a network that may take double precision alone."""
    torch.manual_seed(0)
    return make().eval()


def drawn(name):
    make, output, _ = OPENED[name]
    return (seeded_double(make) if name == "double" else seeded(make)), output


def raw(network, rows):
    """Ask a network as MLflow does, (n, k)."""
    dtype = next(network.parameters()).dtype
    numbers = torch.from_numpy(rows.to_numpy(dtype=np.float32, copy=True)).to(dtype)
    with torch.no_grad():
        return network(numbers).numpy().astype(np.float64).reshape(len(rows), -1)


def expected(name, answers):
    """Return the scores that raw answers mean, or the values."""
    if name == "logarithms":
        return np.exp(answers)
    if answers.shape[1] > 1 or OPENED[name][1] == "value":
        return answers
    return np.column_stack([-answers if name == "logit" else 1 - answers, answers])


@pytest.mark.parametrize("name", OPENED)
def test_a_chain_is_opened_and_answers_as_the_network_does(name):
    network, output = drawn(name)
    truth = expected(name, raw(network, PEOPLE))
    opened = open_native(network, output=output, rows=PEOPLE)
    assert opened.flavor == "pytorch"
    if output == "value":
        np.testing.assert_allclose(opened.decide(PEOPLE), truth[:, 0], **NEAR)
        target = mlflow_cf.Target(low=float(np.median(truth)))
    else:
        np.testing.assert_allclose(opened.score(PEOPLE), truth, **NEAR)
        assert opened.decide(PEOPLE).tolist() == truth.argmax(axis=1).tolist()
        assert opened.classes == tuple(range(truth.shape[1]))
        assert opened.score_kind == ("margin" if output == "score" else "probability")
        target = 1
    explained = mlflow_cf.wrap(network, PEOPLE, target=target, output=output)
    assert isinstance(explained.opened.structure, Layers), explained.opened.note
    assert explained.opened.structure.kind == OPENED[name][2]


@pytest.mark.parametrize("name", [name for name in OPENED if name != "double"])
def test_a_stored_network_is_an_exported_graph_that_is_opened_and_answers_alike(name, tmp_path):
    network, output = drawn(name)
    signature = mlflow.models.infer_signature(PEOPLE.astype(float))
    flavor.save(network, tmp_path / "m", signature=signature, pip_requirements=["torch"])
    assert (tmp_path / "m" / "data" / "model.pt2").is_file()
    assert not [*tmp_path.rglob("*.pth"), *tmp_path.rglob("*.pkl")]
    before, after = (open_native(model, output=output, rows=PEOPLE) for model in (network, tmp_path / "m"))
    assert before.classes == after.classes
    if output == "value":
        np.testing.assert_allclose(after.decide(PEOPLE), before.decide(PEOPLE), **NEAR)
    else:
        np.testing.assert_allclose(after.score(PEOPLE), before.score(PEOPLE), **NEAR)
    target = mlflow_cf.Target(low=0.0) if output == "value" else 1
    explained = mlflow_cf.wrap(tmp_path / "m", PEOPLE, target=target, output=output)
    assert explained.opened.structure.kind == OPENED[name][2]


def test_an_explained_network_is_logged_without_any_pickle_and_answers_alike(tmp_path):
    explained = mlflow_cf.wrap(seeded(sharp()), PEOPLE, target=1, output="score")
    mlflow_cf.save_model(seeded(sharp()), tmp_path / "m", PEOPLE, target=1, output="score")
    assert not [*tmp_path.rglob("*.pth"), *tmp_path.rglob("*.pkl")]
    again = mlflow_cf.load_model(tmp_path / "m")
    assert again.opened.note == explained.opened.note
    told, expected = (one.predict(PEOPLE.head(12)).to_dict("records") for one in (again, explained))
    assert told == expected


UNKNOWN = {
    "no layer of ours": (lambda: Scaled(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1), nn.Sigmoid()), "the layer gelu"),
    "normalised by row": (lambda: Scaled(nn.LayerNorm(4), nn.Linear(4, 1), nn.Sigmoid()), "the layer layer_norm"),
    "softmax inside": (
        lambda: Scaled(nn.Linear(4, 3), nn.Softmax(dim=1), nn.Linear(3, 1), nn.Sigmoid()),
        "the layer softmax",
    ),
    "lines and curves": (
        lambda: Scaled(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid()),
        "piecewise linear activations beside curved ones",
    ),
    "shortcut": (Skipping, "not one chain of layers"),
    "branches": (Branching, "the layer sum"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_no_chain_of_known_layers_is_scored_and_says_so(name):
    make, why = UNKNOWN[name]
    network = seeded(make)
    explained = mlflow_cf.wrap(network, PEOPLE, target=1)
    assert explained.opened.structure is None
    assert why in explained.opened.note
    np.testing.assert_allclose(explained.model.score(PEOPLE)[:, 1], raw(network, PEOPLE)[:, 0], **NEAR)


def test_half_precision_is_scored_and_says_so():
    network = seeded(sharp(1, nn.Sigmoid())).half()
    explained = mlflow_cf.wrap(network, PEOPLE, target=1)
    assert explained.opened.structure is None
    assert "calculates in float16" in explained.opened.note


def test_torch_script_is_scored_and_says_so():
    network = seeded(sharp(1, nn.Sigmoid()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are such models, and MLflow logs them
        traced = torch.jit.trace(network, torch.zeros(2, 4))
    explained = mlflow_cf.wrap(traced, PEOPLE, target=1, output="score")
    assert "does not show its layers (TorchScript" in explained.opened.note
    np.testing.assert_allclose(explained.model.score(PEOPLE)[:, 1], raw(network, PEOPLE)[:, 0], **NEAR)


@pytest.mark.parametrize(
    ("make", "output", "message"),
    [
        (sharp(), None, r"answers one number, behind its last function, linear; .*output='value'.*label 1 above 0"),
        (sharp(3), None, r"answers 3 numbers, behind its last function, linear; pass output='score'"),
        (sharp(3, nn.Sigmoid()), None, r"answers 3 numbers, behind its last function, sigmoid"),
        (sharp(3), "value", r"answers 3 values per row; wrap one model per output"),
        (sharp(3), "label", r"answers 3 numbers per row; pass output='score'"),
        (sharp(), "logit", r"'logit' is not known; use 'label', 'score' or 'value'"),
    ],
)
def test_answers_that_may_mean_several_things_are_refused_with_the_way_out(make, output, message):
    with pytest.raises(InputError, match=message):
        mlflow_cf.wrap(seeded(make), PEOPLE, target=1, output=output)


class Labels(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer((x - 30) / 20).argmax(dim=1)


def test_whole_numbers_are_labels():
    opened = open_native(seeded(Labels), rows=PEOPLE)
    assert set(opened.classes) <= {0, 1, 2}
    assert opened.score is None


def test_independent_probabilities_are_scores_that_are_no_probabilities():
    explained = mlflow_cf.wrap(seeded(sharp(3, nn.Sigmoid())), PEOPLE, target=1, output="score")
    assert explained.model.score_kind == "margin"
    assert "independent probabilities" in explained.opened.note


class TestMissingNumbers:
    rows = PEOPLE.assign(income=PEOPLE["income"].mask(PEOPLE.index % 7 == 3))

    def test_a_network_that_fills_them_is_opened(self):
        network = seeded(lambda: Scaled(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid(), fill=35.0))
        explained = mlflow_cf.wrap(network, self.rows, target=1)
        assert isinstance(explained.opened.structure, Layers), explained.opened.note
        assert explained.explain(self.rows.iloc[3])[0].status in ("found", "already")

    def test_another_one_is_refused_with_the_way_out(self):
        with pytest.raises(InputError, match=r"fill what is missing in \['income'\].*nan_to_num"):
            mlflow_cf.wrap(seeded(sharp(1, nn.Sigmoid())), self.rows, target=1)

    def test_a_row_with_one_is_invalid_and_others_are_answered(self):
        explained = mlflow_cf.wrap(seeded(sharp(1, nn.Sigmoid())), PEOPLE, target=1)
        told = explained.explain(self.rows.iloc[2:5])
        assert [one.status == "invalid" for one in told] == [False, True, False]


def test_text_is_refused_with_the_columns():
    with pytest.raises(InputError, match=r"takes numbers alone: encode \['word'\]"):
        mlflow_cf.wrap(seeded(sharp(1, nn.Sigmoid())), PEOPLE.drop(columns="owner").assign(word="a"), target=1)


def test_another_number_of_columns_is_refused():
    with pytest.raises(InputError, match=r"cannot answer these rows \(RuntimeError: mat1 and mat2"):
        mlflow_cf.wrap(seeded(lambda: nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())), PEOPLE[["age", "debt"]], target=1)


def test_the_given_network_stays_in_training_mode_and_may_be_trained_on():
    network = seeded(OPENED["normalised"][0]).train()
    explained = mlflow_cf.wrap(network, PEOPLE, target=1)
    before = explained.model.score(PEOPLE)
    assert network.training
    with torch.no_grad():
        network.layers[1].weight.mul_(-1)
    np.testing.assert_array_equal(explained.model.score(PEOPLE), before)


def test_a_graph_that_was_exported_in_training_mode_is_refused(tmp_path):
    torch.manual_seed(0)
    network = Scaled(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1), nn.Sigmoid()).train()
    batch = torch.export.Dim("batch", min=1)
    graph = torch.export.export(network, (torch.zeros(3, 4),), dynamic_shapes=({0: batch},)).module()
    with pytest.raises(InputError, match=r"in another way when it is asked alone; .*model\.eval\(\)"):
        open_native(graph, rows=PEOPLE)


def logged(network, path, **options):
    mlflow.pytorch.save_model(network, path, pip_requirements=["torch"], **options)
    return path


class TestLoggedByMLflow:
    network = seeded(sharp(1, nn.Sigmoid()))
    named = mlflow.models.infer_signature(PEOPLE.astype(float)[list(NAMES)])

    def test_a_pickle_is_read_where_mlflow_allows_it(self, tmp_path, monkeypatch):
        folder = logged(self.network, tmp_path / "m", serialization_format="pickle")
        opened = open_folder(folder, rows=PEOPLE)
        np.testing.assert_allclose(opened.score(PEOPLE)[:, 1], raw(self.network, PEOPLE)[:, 0], **NEAR)
        monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        with pytest.raises(mlflow_cf.errors.ArtifactError, match="is a pickle of a PyTorch module"):
            open_folder(folder, rows=PEOPLE)

    def test_an_exported_graph_is_read_where_no_pickle_is_allowed(self, tmp_path, monkeypatch):
        folder = logged(
            self.network, tmp_path / "m", serialization_format="pt2", input_example=np.zeros((2, 4), np.float32)
        )
        monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        explained = mlflow_cf.wrap(folder, PEOPLE, target=1)
        assert isinstance(explained.opened.structure, Layers), explained.opened.note

    @pytest.mark.parametrize("loaded", [False, True])
    def test_columns_are_those_of_the_signature(self, tmp_path, loaded):
        folder = logged(self.network, tmp_path / "m", serialization_format="pickle", signature=self.named)
        mixed = PEOPLE[["owner", "debt", "age", "income"]].assign(more=1.0)
        opened = open_native(mlflow.pyfunc.load_model(str(folder)) if loaded else folder, rows=mixed)
        assert opened.columns == NAMES
        np.testing.assert_allclose(opened.score(mixed)[:, 1], raw(self.network, PEOPLE)[:, 0], **NEAR)
        with pytest.raises(InputError, match=r"lacks the columns \['debt'\]"):
            open_folder(folder, rows=PEOPLE.drop(columns="debt"))

    def test_the_pyfunc_answers_the_same(self, tmp_path):
        folder = logged(self.network, tmp_path / "m", serialization_format="pickle")
        theirs = mlflow.pyfunc.load_model(str(folder)).predict(PEOPLE)
        np.testing.assert_allclose(open_folder(folder, rows=PEOPLE).score(PEOPLE)[:, 1], theirs[0], **NEAR)


def weights_into(model, network):
    """Give a classifier of scikit-learn the weights of the linear layers of a network."""
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    model.coefs_ = [layer.weight.detach().double().numpy().T for layer in linear]
    model.intercepts_ = [layer.bias.detach().double().numpy() for layer in linear]
    return model


def test_a_network_and_scikit_learns_with_the_same_weights_have_one_structure_and_one_certified_answer():
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.normal(size=(400, 5)).round(2).astype(np.float32), columns=list("abcde"))
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Linear(5, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1), nn.Sigmoid()
    )
    small = rows.head(20)
    other = MLPClassifier((100, 100), solver="lbfgs", max_iter=100, random_state=0).fit(small, small["a"] > 0)
    other = weights_into(other, network)
    other.classes_ = np.array([0, 1])
    other._label_binarizer.classes_ = other.classes_
    one, two = (mlflow_cf.wrap(model, rows, target=1) for model in (network, other))
    mine, theirs = one.opened.structure, two.opened.structure
    assert mine.kind == theirs.kind == "network 100-100-1"
    for left, right in zip((mine.first.table, *mine.weights), (theirs.first.table, *theirs.weights), strict=True):
        np.testing.assert_array_equal(left, right)
    refused = rows[other.predict(rows) == 0].head(4)
    limits = {"max_evaluations": 20_000, "certify": True, "constraints": {"max_changes": 1}}
    answers = [explained.explain(refused, **limits) for explained in (one, two)]
    for left, right in zip(*answers, strict=True):
        assert (left.status, [c.proof for c in left.counterfactuals]) == (
            right.status,
            [c.proof for c in right.counterfactuals],
        )
        assert [c.row for c in left.counterfactuals] == [c.row for c in right.counterfactuals]
    assert any(c.proof == "optimal" for answer in answers[0] for c in answer.counterfactuals)


def test_threads_get_the_answers_of_one_and_opening_disturbs_none_of_them():
    network = seeded(sharp(1, nn.Sigmoid()))
    opened = open_native(network, rows=PEOPLE)
    alone, stop = opened.score(PEOPLE), threading.Event()

    def opening():
        while not stop.is_set():
            mlflow_cf.wrap(network, PEOPLE, target=1)

    other = threading.Thread(target=opening)
    other.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            for scores in pool.map(lambda _: opened.score(PEOPLE), range(40)):
                np.testing.assert_array_equal(scores, alone)
    finally:
        stop.set()
        other.join()


def test_modules_and_logged_ones_are_ours_and_others_are_not():
    assert flavor.accepts(nn.Linear(1, 1))
    assert not flavor.accepts(object())
    assert flavor_of(nn.Linear(1, 1)) is flavor
    assert flavor.requirements(None)[0] == f"torch=={torch.__version__.partition('+')[0]}"


def test_a_network_that_cannot_be_exported_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(InputError, match=r"cannot export Branching .*serialization_format='pickle'"):
        mlflow_cf.save_model(seeded(Branching), tmp_path / "m", PEOPLE, target=1)


def test_rows_are_needed_to_learn_what_a_network_answers():
    with pytest.raises(InputError, match="rows are needed"):
        flavor.open(nn.Linear(1, 1))


def test_a_network_that_cannot_be_copied_is_refused_with_the_way_out():
    network = seeded(sharp(1, nn.Sigmoid()))
    network.lock = threading.Lock()
    with pytest.raises(InputError, match=r"cannot be copied .*mlflow\.pytorch\.log_model"):
        open_native(network, rows=PEOPLE)
    assert copy.deepcopy(network.layers) is not None


def test_nothing_imports_the_library_before_a_model_needs_it():
    code = "import sys, mlflow_cf, mlflow_cf_flavors.pytorch.flavor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
