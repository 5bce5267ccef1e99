"""torch.compile without graph breaks, and without a new graph whenever p changes."""

import math

import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend

import linfdist as ld

from .layers import TwoLayers, gradients, images

# torch warns of what its own tracing does to any autograd.Function.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
RAMP = [8.0, 8.1, 8.5, 9.0, 12.0, 30.5, 99.0, 100.0, 999.0]


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()


class Counter:
    """A compiler that counts its graphs; forward and backward are traced, nothing is code-generated."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        compiled = lookup_backend("aot_eager")(graph, inputs)  # torch may stop here, and come again with the same graph
        self.graphs += 1
        return compiled


@pytest.fixture
def counter():
    return Counter()


def check_step(compiled, model, p):
    x = images()
    y, expected = compiled(x, p), model(x, p)
    assert torch.equal(y, expected)
    for actual, right in zip(gradients(model, y), gradients(model, expected), strict=True):
        assert torch.equal(actual, right)


def test_p_moves_every_step_and_two_graphs_are_enough(counter):
    """One for the first p, one for any p from then on."""
    model = TwoLayers()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for p in RAMP:
        check_step(compiled, model, p)
    assert counter.graphs <= 2


def test_p_becomes_infinite_at_the_end_and_comes_back(counter):
    model = TwoLayers()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for p in [*RAMP, math.inf, math.inf, 77.0, math.inf]:
        check_step(compiled, model, p)
    assert counter.graphs <= 3


def test_p_as_a_tensor_is_one_graph_up_to_infinity(counter):
    model = TwoLayers()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for p in [*RAMP, math.inf, 77.0]:
        check_step(compiled, model, torch.tensor(p, dtype=torch.float64))
    assert counter.graphs == 1


def test_p_as_an_attribute_of_a_module(counter):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p, self.w = 8.0, torch.nn.Parameter(torch.randn(4, 7))

        def forward(self, x):
            return ld.dist(x, self.w, self.p)

    layer, x = Layer(), torch.rand(5, 7)
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for layer.p in [*RAMP, math.inf]:
        assert torch.equal(compiled(x), layer(x))
    assert counter.graphs <= 3


def test_batches_of_any_size(counter):
    model = TwoLayers()
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    for n in (6, 5, 17, 33, 70):
        x = images(n)
        assert torch.equal(compiled(x), model(x))
    assert counter.graphs == 1


def test_boxes(counter):
    model = TwoLayers()
    compiled = torch.compile(model.forward_box, backend=counter, fullgraph=True)
    x = images()
    actual, expected = compiled(x - 0.1, x + 0.1), model.forward_box(x - 0.1, x + 0.1)
    for bound, right in zip(actual, expected, strict=True):
        assert torch.equal(bound, right)
    for gradient, right in zip(gradients(model, sum(actual)), gradients(model, sum(expected)), strict=True):
        assert torch.equal(gradient, right)
    assert counter.graphs == 1


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients(counter, context):
    model, x = TwoLayers(), images()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    with context():
        for p in (8.0, math.inf):
            assert torch.equal(compiled(x, p), model(x, p))


def test_a_bad_p_is_still_an_error(counter):
    x, w = torch.rand(5, 7), torch.rand(4, 7)
    compiled = torch.compile(ld.dist, backend=counter, fullgraph=True)
    compiled(x, w, torch.tensor(8.0))
    with pytest.raises(ValueError, match=r"p must be a real number in \[1, inf\], got 0.5"):
        compiled(x, w, torch.tensor(0.5))


@pytest.mark.slow  # a minute of torch's own compiler: what reaches it is traced by the tests above
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_code_generation():
    """The default compiler, with element-wise work around the distance to fuse."""
    model = TwoLayers()

    def loss(x, p):
        return torch.relu(1 - model(2 * x - 1, p)).square().mean()

    compiled = torch.compile(loss, fullgraph=True)
    x = images()
    for p in (8.0, 30.5, math.inf):
        parameters = list(model.parameters())
        actual, expected = compiled(x, p), loss(x, p)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(torch.autograd.grad(actual, parameters), torch.autograd.grad(expected, parameters))
