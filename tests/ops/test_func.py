"""torch.func: every transform against the plain formula, differentiated by torch."""

import math

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

import linfdist as ld

from .layers import TwoLayers, images

POWERS = [1, 3.5, 8, math.inf]


def plain(x, w, p):
    d = (x[..., None, :] - w).abs()
    return d.amax(-1) if p == math.inf else d.pow(p).sum(-1).pow(1 / p)


def plain_box(lower, upper, w):
    lower, upper = lower[..., None, :], upper[..., None, :]
    return torch.maximum(lower - w, w - upper).amax(-1).clamp(min=0), torch.maximum(upper - w, w - lower).amax(-1)


def data():
    return torch.rand(5, 7, dtype=torch.float64), torch.randn(4, 7, dtype=torch.float64)


def loss(f, p):
    return lambda x, w: f(x, w, p).square().sum()


# Name: what is done with the function f, the inputs x (5, 7), w (4, 7), and p.
TRANSFORMS = {
    "grad x": lambda f, x, w, p: grad(loss(f, p))(x, w),
    "grad w": lambda f, x, w, p: grad(loss(f, p), argnums=1)(x, w),
    "grad both": lambda f, x, w, p: grad(loss(f, p), argnums=(0, 1))(x, w),
    "vmap x": lambda f, x, w, p: vmap(lambda a: f(a, w, p))(x),
    "vmap w": lambda f, x, w, p: vmap(lambda b: f(x, b[None], p))(w),
    "vmap both": lambda f, x, w, p: vmap(lambda a, b: f(a, b[None], p))(x[:4], w),
    "vmap of another dim": lambda f, x, w, p: vmap(lambda a: f(a, w, p), 2, 1)(torch.stack([x, x + 1], 2)),
    "vmap of models": lambda f, x, w, p: vmap(lambda b: f(x, b, p))(torch.stack([w, w + 1, 2 * w])),
    "vmap of vmap": lambda f, x, w, p: vmap(lambda a: vmap(lambda b: f(a, b[None], p))(w))(x),
    "gradient per sample": lambda f, x, w, p: vmap(grad(loss(f, p), argnums=1), (0, None))(x, w),
    "grad of vmap": lambda f, x, w, p: grad(lambda b: vmap(lambda a: f(a, b, p))(x).square().sum())(w),
    "jacrev x": lambda f, x, w, p: jacrev(lambda a: f(a, w, p))(x),
    "jacrev w": lambda f, x, w, p: jacrev(lambda b: f(x, b, p))(w),
    "vmap of jacrev": lambda f, x, w, p: vmap(jacrev(lambda b, a: f(a, b, p)), (None, 0))(w, x),
}  # fmt: skip


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_dist(backend, transform, p):
    x, w = data()
    actual, expected = (TRANSFORMS[transform](f, x, w, p) for f in (ld.dist, plain))
    torch.testing.assert_close(actual, expected)


BOX_TRANSFORMS = {
    "jacrev": lambda f, lower, upper, w: jacrev(f, argnums=(0, 1, 2))(lower, upper, w),
    "vmap of models": lambda f, lower, upper, w: vmap(f, (None, None, 0))(lower, upper, torch.stack([w, w + 1])),
    "gradient per sample": lambda f, lower, upper, w: vmap(
        grad(lambda a, b, c: sum(bound.square().sum() for bound in f(a, b, c)), argnums=(0, 1, 2)), (0, 0, None)
    )(lower, upper, w),
}


@pytest.mark.parametrize("transform", BOX_TRANSFORMS)
def test_dist_box(backend, transform):
    x, w = data()
    upper = x + torch.rand_like(x)
    actual, expected = (BOX_TRANSFORMS[transform](f, x, upper, w) for f in (ld.dist_box, plain_box))
    torch.testing.assert_close(tree_leaves(actual), tree_leaves(expected))


@pytest.mark.parametrize("p", [2.5, math.inf])
@pytest.mark.parametrize("in_dims", [(0, None), (None, 1), (0, 1)], ids=str)
def test_convolutions_under_vmap(backend, p, in_dims):
    """Mapped images join the batch, mapped kernels become groups: also where there are groups already."""

    def f(x, w):
        return ld.dist_conv2d(x, w, p, stride=(2, 1), padding=1, dilation=(1, 2), groups=2)

    def gradients(x, w):
        return grad(lambda x, w: f(x, w).square().sum(), argnums=(0, 1))(x, w)

    x = torch.randn((3, 2, 4, 6, 7) if in_dims[0] == 0 else (2, 4, 6, 7), dtype=torch.float64)
    w = torch.randn((6, 3, 2, 3, 3) if in_dims[1] == 1 else (6, 2, 3, 3), dtype=torch.float64)
    xs = x if in_dims[0] == 0 else [x] * 3
    ws = w.unbind(1) if in_dims[1] == 1 else [w] * 3
    torch.testing.assert_close(vmap(f, in_dims)(x, w), torch.stack([f(a, b) for a, b in zip(xs, ws, strict=True)]))
    singles = [gradients(a, b) for a, b in zip(xs, ws, strict=True)]
    for mapped, each in zip(vmap(gradients, in_dims)(x, w), zip(*singles, strict=True), strict=True):
        torch.testing.assert_close(mapped, torch.stack(each))


@pytest.mark.parametrize("p", [8.0, math.inf])
def test_functional_call(p):
    model, x = TwoLayers(torch.float64), images(dtype=torch.float64)
    parameters = dict(model.named_parameters())
    actual = grad(lambda ps: functional_call(model, ps, (x, p)).square().sum())(parameters)
    model(x, p).square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(actual[name], parameter.grad)


def test_vmap_over_p_is_refused():
    x, w = data()
    with pytest.raises((NotImplementedError, RuntimeError), match="vmap"):
        vmap(lambda p: ld.dist(x, w, p))(torch.tensor([2.0, 3.0]))


@pytest.mark.parametrize("p", [3.5, math.inf])
def test_second_derivatives_are_refused(p):
    """Never zeros: they would look like an answer."""
    x, w = data()
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(ld.dist(leaf, w, p).square().sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first.sum().backward()
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad(lambda a: grad(lambda b: ld.dist(b, w, p).square().sum())(a).sum())(x)
    lower, upper = x.clone().requires_grad_(), x + 1
    (first,) = torch.autograd.grad(ld.dist_box(lower, upper, w)[1].square().sum(), lower, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, in forward mode
@pytest.mark.parametrize("p", [3.5, math.inf])
def test_forward_mode_is_refused(p):
    x, w = data()
    for call in (
        lambda: jvp(lambda a: ld.dist(a, w, p), (x,), (x,)),
        lambda: jacfwd(lambda a: ld.dist(a, w, p))(x),
        lambda: hessian(lambda a: ld.dist(a, w, p).square().sum())(x),
    ):
        with pytest.raises(NotImplementedError):
            call()
