"""Drawn networks of PyTorch: what is opened scores as they do and bounds them; exported ones are read alike."""

from threading import Barrier, Event, Thread

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.structures import Layers, score_rows

torch = pytest.importorskip("torch")
recording = pytest.importorskip("mlflow_cf_flavors.pytorch.recording")
chain = pytest.importorskip("mlflow_cf_flavors.pytorch.chain")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.torch

LINES = ("relu", "leaky", "prelu", "relu6", "hardtanh", "hardsigmoid", "clamp", "above", "below", "abs", "in place")
CURVES = ("tanh", "sigmoid")
PLAIN = ("linear", "norm", "dropout", "flatten", "times", "minus", "divided", "from", "negative")


class Drawn(nn.Module):
    """Layers of drawn kinds one after the other."""

    def __init__(self, kinds, features, outputs):
        super().__init__()
        self.kinds, self.parts, width = kinds, nn.ModuleList(), features
        for kind in (*kinds, "end"):
            part = nn.Identity()
            if kind in ("linear", "end"):
                wider = outputs if kind == "end" else int(torch.randint(1, 6, ()))
                part, width = nn.Linear(width, wider), wider
            elif kind == "norm":
                part = nn.BatchNorm1d(width, affine=bool(torch.rand(()) < 0.5))
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
            elif kind == "prelu":
                part = nn.PReLU(width if torch.rand(()) < 0.5 else 1, init=float(torch.rand(())))
            self.parts.append(part)
        self.register_buffer("number", torch.rand(()) + 0.5)

    def forward(self, x):
        for kind, part in zip((*self.kinds, "end"), self.parts, strict=True):
            x = FUNCTIONS.get(kind, lambda x, _, part=part: part(x))(x, self.number)
        return x


FUNCTIONS = {
    "relu": lambda x, _: x.relu(),
    "leaky": lambda x, number: F.leaky_relu(x, float(number) / 4),
    "relu6": lambda x, _: F.relu6(x),
    "hardtanh": lambda x, _: F.hardtanh(x, -0.5, 1.0),
    "hardsigmoid": lambda x, _: F.hardsigmoid(x),
    "clamp": lambda x, _: torch.clamp(x, -1, 2),
    "above": lambda x, _: x.clamp(min=-0.5),
    "below": lambda x, _: x.clamp(max=0.5),
    "abs": lambda x, _: x.abs(),
    "in place": lambda x, _: (x + 0).relu_(),
    "tanh": lambda x, _: torch.tanh(x),
    "sigmoid": lambda x, _: F.sigmoid(x),
    "dropout": lambda x, _: F.dropout(x, 0.4, training=False),
    "flatten": lambda x, _: x.view(x.shape[0], -1),
    "times": lambda x, number: 2 * x * number,
    "minus": lambda x, number: x - number,
    "divided": lambda x, number: x / number,
    "from": lambda x, number: number - x,
    "negative": lambda x, _: -x,
}
KINDS = st.lists(st.sampled_from(LINES + PLAIN), max_size=6) | st.lists(st.sampled_from(CURVES + PLAIN), max_size=6)


def drawn(kinds, features, outputs, seed):
    torch.manual_seed(seed)
    return Drawn(tuple(kinds), features, outputs).eval()


def rows_of(features, seed, count=120):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-1, 3, features)
    return pd.DataFrame(rng.normal(size=(count, features)) * scales, columns=[f"f{k}" for k in range(features)])


def asked(network, rows):
    with torch.no_grad():
        return network(torch.from_numpy(rows.to_numpy(dtype=np.float32, copy=True))).numpy().astype(float)


@given(KINDS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**31 - 1))
def test_a_drawn_network_is_opened_and_its_bounds_hold(kinds, features, outputs, seed):
    network, rows = drawn(kinds, features, outputs, seed), rows_of(features, seed)
    truth = asked(network, rows)
    if outputs == 1:
        explained = mlflow_cf.wrap(network, rows, target=mlflow_cf.Target(low=0.0), output="value")
    else:
        explained = mlflow_cf.wrap(network, rows, target=0, output="score")
    structure = explained.opened.structure
    assert isinstance(structure, Layers), explained.opened.note
    codes = explained.space.encode(rows)
    scores = score_rows(structure, codes)
    assert np.abs((scores - truth) / np.maximum(1, np.abs(truth))).max() < 1e-5
    low, high = structure.bounds([structure.encode(column, codes[:, column]) for column in range(features)])
    assert (low <= structure.sums([structure.encode(k, codes[:, k]) for k in range(features)])).all()
    assert (high >= scores).all()


@settings(max_examples=4)
@given(KINDS, st.integers(1, 4), st.integers(0, 2**31 - 1))
def test_an_exported_network_has_the_same_layers(kinds, features, seed):
    network = drawn(kinds, features, 1, seed)
    batch = {0: torch.export.Dim.AUTO}
    graph = torch.export.export(network, (torch.zeros(2, features),), dynamic_shapes={"x": batch}).module()
    one, two = (chain.read(recording.record(module, features, torch.float32)) for module in (network, graph))
    assert (one.unknown, one.ending) == (two.unknown, two.ending) == ("", "linear")
    assert [type(layer) for layer in one.layers] == [type(layer) for layer in two.layers]
    for left, right in zip(one.layers, two.layers, strict=True):
        for name in getattr(left, "__dataclass_fields__", ()):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def _changed(x):
    y = x.view(-1, 2)
    y.mul_(2)
    return x


def _written(x):
    x = x.clone()
    x[:, 0] = 1.0
    return x


MIXED = {
    "an alias that is changed in place": _changed,
    "a column that is written": _written,
    "a result that is used twice": lambda x: x * torch.tanh(x),
    "a value that leaves and comes back": lambda x: x + float(x.mean()),
    "a mean over rows": lambda x: x - x.mean(dim=0),
    "rows in another order": lambda x: x.flip(0),
    "features in another order": lambda x: x[:, [1, 0]],
    "a sum of two parts": lambda x: torch.relu(x) + torch.relu(-x),
    "a part that is sorted": lambda x: torch.sort(x, dim=1)[0],
    "an array of another library": lambda x: torch.from_numpy(np.sort(x.numpy(), axis=1)),
    "transposed twice, reshaped between": lambda x: x.T.reshape(-1, 2),
    "a multiple of what is added": lambda x: torch.add(x, torch.ones(2), alpha=2),
    "a gap filled behind a layer": lambda x: torch.nan_to_num(torch.relu(x)),
    "a normalisation of the batch": lambda x: F.batch_norm(x, None, None, training=True),
    "shares over rows": lambda x: torch.softmax(x, dim=0),
    "a limit for each feature": lambda x: torch.clamp(x, torch.zeros(2), torch.ones(2)),
    "a quotient the other way round": lambda x: 1.0 / (x + 3),
}


class Around(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.first, self.last = name, nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x):
        return self.last(MIXED[self.name](self.first(x)))


@pytest.mark.parametrize("name", MIXED)
def test_what_is_no_chain_is_never_read_as_one(name):
    torch.manual_seed(0)
    found = chain.read(recording.record(Around(name).eval(), 2, torch.float32))
    assert found.unknown
    assert found.layers == ()


def test_other_threads_are_not_recorded():
    network, other = drawn(["linear", "relu"], 2, 1, 0), drawn(["tanh"], 2, 1, 1)
    barrier, stop = Barrier(2), Event()

    def ask():
        barrier.wait()
        while not stop.is_set():
            asked(other, rows_of(2, 0, 10))

    thread = Thread(target=ask)
    thread.start()
    barrier.wait()
    try:
        found = [chain.read(recording.record(network, 2, torch.float32)) for _ in range(50)]
    finally:
        stop.set()
        thread.join()
    assert {len(one.layers) for one in found} == {3}
