"""The values of p = inf with the gradients of a finite p."""

import math

import pytest
import torch

import linfdist as ld
from linfdist.attacks.surrogate import Surrogate, gradient, surrogate
from linfdist.models import ConvDistNetMLP, DistNet, DistNetMLP

from .nets import random_net

NETWORKS = {
    "plain": lambda: random_net(1),
    "mlp": lambda: DistNetMLP((1, 6, 6), 4, 36, 2, [0.3], 0.3, head=8).eval(),
    "conv": lambda: ConvDistNetMLP((1, 6, 6), 4, 4, 4, [0.3], 0.3, head=8).eval(),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("p", [math.inf, 1000.0, 8.0])
def test_values_are_those_of_the_network(name, p):
    net = NETWORKS[name]()
    x = torch.rand(5, *net.shape)
    logits, slope = gradient(net, x, lambda z: z[:, 0].sum(), p)
    assert torch.equal(logits, net(x))
    assert slope.shape == x.shape
    assert not logits.requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_tend_to_those_of_p_inf(name):
    """Through every kind of layer; but for near ties, where p = 10000 still sees both."""
    net = NETWORKS[name]().double()
    x = torch.rand(5, *net.shape, dtype=torch.float64)
    exact, near, far = (gradient(net, x, lambda z: z[:, 0].sum(), p)[1] for p in (math.inf, 1e4, 8.0))
    scale = exact.abs().max()
    assert ((near - exact).abs() < 0.01 * scale).double().mean() > 0.9
    assert (far - exact).abs().max() > 0.01 * scale


def test_gradients_by_hand():
    """Two layers: at the values of p = inf, each by its own formula sign(x - w) (|x - w| / y_p)^(p - 1)."""
    net = DistNet((1, 1, 3), 2, 4, 2, [0.0], 1.0, identity_init=False, mean_shift=False).double().eval()
    x, p = torch.rand(1, 1, 1, 3, dtype=torch.float64), 20.0
    first, last = next(layer for layer in net.body if isinstance(layer, ld.nn.DistLinear)), net.last
    h = first(x.flatten(1))

    def jacobian(point, w):
        d = point[:, None] - w[None]  # (1, O, I)
        y = d.abs().pow(p).sum(2, keepdim=True).pow(1 / p)
        return (d.sign() * (d.abs() / y).pow(p - 1))[0]  # (O, I)

    expected = -(jacobian(h, last.weight) @ jacobian(x.flatten(1), first.weight))  # (2, 3)
    for k in range(2):
        slope = gradient(net, x, lambda z, k=k: z[:, k].sum(), p)[1]
        torch.testing.assert_close(slope.flatten(), expected[k].detach(), rtol=1e-9, atol=1e-12)


def test_an_unknown_network_gets_the_gradients_of_its_own_forward():
    class Louder(DistNet):
        def forward(self, x, p=math.inf):
            return 3 * super().forward(x, p)

    net = Louder((1, 3, 3), 4, 6, 2, [0.3], 0.3, identity_init=False).eval()
    x = torch.rand(4, 1, 3, 3)
    logits, slope = gradient(net, x, lambda z: z.sum(), 8.0)
    assert torch.equal(logits, net(x))
    pixels = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(net(pixels, 8.0).sum(), pixels)
    torch.testing.assert_close(slope, expected)


def test_the_module_for_other_attacks():
    net = random_net(1).requires_grad_(False)
    module = Surrogate(net, 8.0)
    x = torch.rand(4, 1, 3, 3)
    assert not module.training
    assert torch.equal(module(x), net(x))
    pixels = x.clone().requires_grad_()
    module(pixels)[:, 0].sum().backward()
    assert torch.equal(pixels.grad, gradient(net, x, lambda z: z[:, 0].sum(), 8.0)[1])
    double = Surrogate(net.double(), 8.0)
    assert torch.equal(double(x), net(x.double()).float())
    assert torch.equal(surrogate(net, x.double(), math.inf), net(x.double()))
