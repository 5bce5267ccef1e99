"""Bad input is refused with a message that names the value, what was expected, and the remedy."""

import math

import numpy as np
import pytest
import torch

import linfdist as ld

X, W = torch.rand(5, 7), torch.rand(4, 7)
IMAGES, KERNELS = torch.rand(2, 4, 6, 5), torch.rand(6, 2, 3, 3)


@pytest.mark.parametrize("p", [0.5, 0, -1, -math.inf, math.nan, 0.999999])
def test_p_below_one(p):
    with pytest.raises(ValueError, match=rf"p must be a real number in \[1, inf\], got {p}"):
        ld.dist(X, W, p)
    with pytest.raises(ValueError, match=rf"p must be a real number in \[1, inf\], got {p}"):
        ld.dist_conv2d(IMAGES, KERNELS, p, groups=2)


@pytest.mark.parametrize("p", [True, "8", None, 2j, [2.0]], ids=repr)
def test_p_that_is_no_number(p):
    with pytest.raises(TypeError, match=r"p must be a real number in \[1, inf\], got "):
        ld.dist(X, W, p)


@pytest.mark.parametrize("p", [torch.tensor([2.0]), torch.tensor(2), torch.tensor(2.0, requires_grad=True)], ids=str)
def test_p_as_a_tensor_of_the_wrong_kind(p):
    with pytest.raises(
        ValueError, match="as a tensor, p must be floating-point, have no dimensions and need no gradient"
    ):
        ld.dist(X, W, p)


@pytest.mark.parametrize("p", [0.5, math.nan])
def test_p_as_a_tensor_below_one(p):
    with pytest.raises(ValueError, match=rf"p must be a real number in \[1, inf\], got {p}"):
        ld.dist(X, W, torch.tensor(p))


@pytest.mark.parametrize("p", [3, np.float32(3), np.int64(3), torch.tensor(3.0), torch.tensor(3.0).half()], ids=repr)
def test_p_of_any_numeric_type(p):
    assert torch.equal(ld.dist(X, W, p), ld.dist(X, W, 3.0))


@pytest.mark.parametrize("p", [math.inf, np.inf, torch.tensor(math.inf)], ids=repr)
def test_inf_of_any_type(p):
    assert torch.equal(ld.dist(X, W, p), ld.dist(X, W))


@pytest.mark.parametrize("p", [1e6, 1e300, 1.7e308])
def test_huge_p_is_a_number_like_any_other(backend, p):
    x, w = X.clone().requires_grad_(), W.clone()
    y = ld.dist(x, w, p)
    torch.testing.assert_close(y, ld.dist(X, W), rtol=1e-5, atol=0)
    y.sum().backward()
    assert (x.grad.abs() <= 4).all()


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float16, torch.bfloat16]
)
def test_dtypes_that_are_not_computed(dtype):
    with pytest.raises(TypeError, match=rf"x must be float32 or float64, got {dtype}: convert it, e.g. x.float()"):
        ld.dist(X.to(dtype), W)
    with pytest.raises(TypeError, match=rf"w must be float32 or float64, got {dtype}: convert it, e.g. w.float()"):
        ld.dist(X, W.to(dtype))
    with pytest.raises(TypeError, match=rf"upper must be float32 or float64, got {dtype}"):
        ld.dist_box(X, X.to(dtype), W)


def test_two_dtypes():
    with pytest.raises(TypeError, match=r"need one dtype, got x: torch.float32, w: torch.float64"):
        ld.dist(X, W.double())
    with pytest.raises(
        TypeError, match=r"need one dtype, got lower: torch.float32, upper: torch.float64, w: torch.float32"
    ):
        ld.dist_box(X, X.double(), W)


def test_two_devices():
    with pytest.raises(ValueError, match="need one device, got x: cpu, w: meta"):
        ld.dist(X, W.to("meta"))


def test_no_tensor():
    with pytest.raises(TypeError, match="x must be a tensor, got list"):
        ld.dist([[1.0]], W)
    with pytest.raises(TypeError, match="w must be a tensor, got ndarray"):
        ld.dist(X, W.numpy())


@pytest.mark.parametrize(
    ("x", "w"),
    [(X, W[:, :3]), (X, W[0]), (X, W[None]), (X[0, 0], W), (X[:0], W.T), (X[:, :0], W)],
    ids=["I differs", "w 1-D", "w 3-D", "x 0-D", "w transposed", "x without inputs"],
)
def test_shapes_that_do_not_fit(x, w):
    with pytest.raises(ValueError, match=r"need x \(\.\.\., I\) and w \(O, I\), got \(.*\) and \(.*\)"):
        ld.dist(x, w)
    with pytest.raises(ValueError, match=r"need lower \(\.\.\., I\), upper \(\.\.\., I\) and w \(O, I\), got"):
        ld.dist_box(x, x, w)


def test_bounds_of_two_shapes():
    with pytest.raises(ValueError, match=r"got \(5, 7\), \(1, 7\) and \(4, 7\)"):
        ld.dist_box(X, X[:1], W)
    with pytest.raises(ValueError, match=r"lower and upper must have one shape"):
        ld.dist_box_conv2d(IMAGES, IMAGES[:1], KERNELS, groups=2)


BAD_CONVOLUTIONS = [
    (IMAGES[0, 0], KERNELS, {}, r"must have (one )?shape,? \(N, C, H, W\) or \(C, H, W\), got \(6, 5\)"),
    (IMAGES, KERNELS[0], {}, r"w must have shape \(O, C/groups, KH, KW\), got \(2, 3, 3\)"),
    (IMAGES, KERNELS, {}, r"x has 4 channels, but w \(6, 2, 3, 3\) with groups=1 takes 2"),
    (IMAGES, KERNELS[:5], {"groups": 2}, r"the 5 output channels of w do not divide into groups=2"),
    (IMAGES, KERNELS[..., :0], {"groups": 2}, r"the kernel must be at least 1x1, got w of shape \(6, 2, 3, 0\)"),
    (IMAGES, KERNELS, {"groups": 2, "dilation": 3}, r"dilation \(3, 3\) is larger than the image \(6, 5\)"),
    (IMAGES, KERNELS, {"groups": 0}, r"groups must be an int of at least 1, got 0"),
    (IMAGES, KERNELS, {"groups": True}, r"groups must be an int of at least 1, got True"),
    (IMAGES, KERNELS, {"groups": 2, "stride": 0}, r"stride must be an int or a pair of ints of at least 1, got 0"),
    (IMAGES, KERNELS, {"groups": 2, "stride": (1, 2, 3)}, r"stride must be .* of at least 1, got \(1, 2, 3\)"),
    (IMAGES, KERNELS, {"groups": 2, "padding": -1}, r"padding must be an int or a pair of ints of at least 0, got -1"),
    (IMAGES, KERNELS, {"groups": 2, "padding": "same"}, r"padding must be .* a pair of ints of at least 0, got 'same'"),
    (IMAGES, KERNELS, {"groups": 2, "dilation": 1.0}, r"dilation must be .* a pair of ints of at least 1, got 1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "w", "keywords", "message"), BAD_CONVOLUTIONS, ids=[m for *_, m in BAD_CONVOLUTIONS])
def test_convolutions_that_do_not_fit(x, w, keywords, message):
    with pytest.raises(ValueError, match=message):
        ld.dist_conv2d(x, w, **keywords)
    with pytest.raises(ValueError, match=message.replace("x has", "(x|lower) has")):
        ld.dist_box_conv2d(x, x, w, **keywords)


@pytest.mark.parametrize("p", [2.0, math.inf])
def test_meta_tensors_give_shapes(p):
    x, w = X.to("meta").requires_grad_(), W.to("meta")
    y = ld.dist(x, w, p)
    assert (y.shape, y.device.type, y.dtype) == ((5, 4), "meta", torch.float32)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert ld.dist_conv2d(IMAGES.to("meta"), KERNELS.to("meta"), p, groups=2, padding=1).shape == (2, 6, 6, 5)
    assert [bound.shape for bound in ld.dist_box(x, x, w)] == [(5, 4), (5, 4)]


def test_native_ops_check_what_memory_safety_needs():
    """Called past the package's own checks, the library refuses rather than reads beyond a tensor."""
    native = pytest.importorskip("linfdist.ops.backends.native")
    if native.missing():
        pytest.skip(native.missing())
    point = ([1, 1], [0, 0], [1, 1], 1)
    x, w = X[..., None, None], W[..., None, None]
    y, where = native.inf_dist_argmax(x, w, point)
    box = (y, y, y, y, where, where)
    for call in (
        lambda: native.inf_dist(x, w[:, :3], point),
        lambda: native.inf_dist(x, w.double(), point),
        lambda: native.inf_dist(X, W, point),
        lambda: native.inf_dist(x.int(), w.int(), point),
        lambda: native.inf_dist(x.transpose(0, 1).contiguous().transpose(0, 1), w, point),
        lambda: native.p_dist(x, w, 0.5, point),
        lambda: native.p_dist(x, w, 2.0, ([0, 1], [0, 0], [1, 1], 1)),
        lambda: native.box_dist(x, x[:3], w, point),
        lambda: native.inf_dist_backward(y, y, where + 7, x.shape, w.shape, point, True, True),
        lambda: native.inf_dist_backward(y[:3], y, where, x.shape, w.shape, point, True, True),
        lambda: native.box_dist_backward(*box[:5], where + 7, x.shape, w.shape, point, True, True, True),
        lambda: native.box_dist_backward(*box[:4], where + 7, where, x.shape, w.shape, point, False, False, True),
        lambda: native.box_dist_backward(y[:3], *box[1:], x.shape, w.shape, point, True, True, True),
        lambda: native.box_dist_backward(*box[:3], y.double(), where, where, x.shape, w.shape, point, *[True] * 3),
        lambda: native.p_dist_backward(y, x, w, y[:, :1], 2.0, point, True, True),
    ):
        with pytest.raises(RuntimeError, match="linfdist: "):
            call()
