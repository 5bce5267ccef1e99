"""Networks and inputs about which nothing can be proved: each is refused, with the reason."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

import linfdist as ld
from linfdist.nn import Box, LipschitzModule

from .nets import head_net, images, random_net, two_classes

BY_MARGIN_AND_BY_BOX = pytest.mark.parametrize("method", ["margin", "box"])


@pytest.fixture(params=["plain", "head", "conv"])
def net(request):
    return random_net(0) if request.param == "plain" else head_net(0, conv=request.param == "conv")


@BY_MARGIN_AND_BY_BOX
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-45, 1 + 2**-23])
def test_pixels_outside_by_one_ulp(net, method, value):
    x = images(3)
    x[1, 0, 2, 2] = value
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        ld.certify(net, x, "0.1", method=method)
    x[1, 0, 2, 2] = min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
    ld.certify(net, x, "0.1", method=method, radii=False)


def test_bytes_and_other_shapes_and_precisions(net):
    with pytest.raises(TypeError, match=r"floating-point pixels .* x.float\(\) / 255"):
        ld.certify(net, torch.zeros(1, 1, 3, 3, dtype=torch.uint8), None)
    with pytest.raises(ValueError, match=r"need images \(B, 1, 3, 3\), got \(3, 4\)"):
        ld.certify(net, torch.zeros(3, 4), None)
    for dtype in (torch.float64, torch.float16):
        with pytest.raises(TypeError, match=rf"x is {dtype} on cpu, but the network is torch.float32"):
            ld.certify(net, images(1).to(dtype), None)
    with pytest.raises(TypeError, match="x: entry 0 is neither a sample nor a pair"):
        ld.certify(net, [0.0], None)


def test_training_mode_wherever_it_hides(net):
    for module in (net, net.body, list(net.body)[-1]):
        net.eval()
        module.train()
        with pytest.raises(ValueError, match="training mode"):
            ld.certify(net, images(2), None)


def test_hooks_wherever_they_hide(net):
    def change(module, inputs, output=None):
        return None

    for module in (net, net.body, next(iter(net.body))):
        for register in (module.register_forward_hook, module.register_forward_pre_hook):
            handle = register(change)
            with pytest.raises(ValueError, match="forward hooks"):
                ld.certify(net, images(2), None)
            handle.remove()
    ld.certify(net, images(2), None)


def test_global_hooks():
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    try:
        with pytest.raises(ValueError, match="global forward hooks"):
            ld.certify(random_net(0), images(2), None)
    finally:
        handle.remove()


def test_replaced_methods_and_constants():
    net = random_net(0)
    net.forward = lambda x, p=math.inf: 1000 * type(net).forward(net, x, p)
    with pytest.raises(ValueError, match=r"DistNet has its own forward"):
        ld.certify(net, images(2), None)
    net = random_net(0)
    next(iter(net.body)).forward_box = lambda box: box
    with pytest.raises(ValueError, match=r"body.layers.0 has its own forward_box"):
        ld.certify(net, images(2), None)
    net = random_net(0)
    net.last.lipschitz = 1e-3
    with pytest.raises(ValueError, match=r"last has its own lipschitz"):
        ld.certify(net, images(2), None)


def test_subclasses_and_strangers():
    class Steep(ld.models.DistNet):
        def forward(self, x, p=math.inf):
            return 1000 * super().forward(x, p)

    class Other(LipschitzModule):
        lipschitz = 1.0

        def forward(self, x, p=math.inf):
            return x

        def forward_box(self, box):
            return Box(*box)

    class Shift(ld.nn.MeanShift):
        pass

    steep = Steep((1, 3, 3), 4, 7, 2, [0.3], 0.31).eval()
    with pytest.raises(TypeError, match="Steep is a Steep, which inherits its declarations"):
        ld.certify(steep, images(2), None)
    for stranger in (nn.Linear(9, 4), nn.ModuleList([random_net(0)]).eval()):
        with pytest.raises(TypeError, match=rf"a {type(stranger).__name__} cannot be certified"):
            ld.certify(stranger, images(2), None)
    with pytest.raises(TypeError, match=r"abstract.* output_shape.* rounding"):
        Other()  # what does not declare its rounding is no layer at all
    for layer, reason in (
        (Shift(7), "which inherits its declarations"),
        (nn.BatchNorm1d(7), "whose Lipschitz constant"),
        (nn.ReLU(), "whose Lipschitz constant"),
    ):
        net = random_net(0)
        net.body.layers.append(layer.eval())
        with pytest.raises(TypeError, match=rf"body.layers.\d is a {type(layer).__name__}, {reason}"):
            ld.certify(net, images(2), None)


def test_parametrised_weights():
    net = random_net(0)
    nn.utils.parametrizations.weight_norm(net.last)
    with pytest.raises(TypeError, match="ParametrizedNearestClass"):
        ld.certify(net.eval(), images(2), None)


@BY_MARGIN_AND_BY_BOX
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite(net, method, value):
    for parameter in (next(net.parameters()), list(net.parameters())[-1]):
        kept = parameter.data.flatten()[0].item()
        parameter.data.flatten()[0] = value
        with pytest.raises(ValueError, match="not finite"):
            ld.certify(net, images(2), None, method=method)
        parameter.data.flatten()[0] = kept
    ld.certify(net, images(2), None, method=method, radii=False)


@pytest.mark.parametrize("std", [0.0, -0.31, math.nan, math.inf, 1e-40])
def test_a_std_that_is_no_scale(net, std):
    next(iter(net.body)).std.fill_(std)
    with pytest.raises(ValueError, match=r"std must be positive"):
        ld.certify(net, images(2), None)


def test_one_std_a_channel():
    """The ball would be a ball no more; the smallest std would have to count."""
    net = ld.models.DistNet((3, 2, 2), 4, 7, 2, [0.3] * 3, 0.31).eval()
    net.body.layers[0].std = torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    with pytest.raises(ValueError, match=r"std has shape \(3, 1, 1\), but had shape \(\) when"):
        ld.certify(net, torch.rand(2, 3, 2, 2), None)


def test_mixed_precision(net):
    net.body.layers[0].double()
    with pytest.raises(TypeError, match=r"float32 or float64 throughout.*torch.float32 on cpu, torch.float64 on cpu"):
        ld.certify(net, images(2), None)
    with pytest.raises(TypeError, match=r"this one: torch.bfloat16"):
        ld.certify(net.bfloat16(), images(2).bfloat16(), None)


def test_autocast_and_coarse_products():
    net = head_net(0)
    with torch.autocast("cpu"), pytest.raises(ValueError, match="autocast"):
        ld.certify(net, images(2), None)
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        with pytest.raises(ValueError, match="float32 products in bf16"):
            ld.certify(net, images(2), None)
        ld.certify(random_net(0), images(2), None)  # no product in it
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    ld.certify(net, images(2), None)


def test_one_class_alone():
    net = ld.models.DistNet((1, 1, 1), 1, 1, 1, [0.0], 1.0).eval()
    head = ld.models.DistNetMLP((1, 1, 1), 1, 1, 1, [0.0], 1.0, head=3).eval()
    for each in (net, head):
        with pytest.raises(ValueError, match="one class"):
            ld.certify(each, torch.zeros(1, 1, 1, 1), None)


@pytest.mark.parametrize(
    ("eps", "error", "message"),
    [
        (-0.1, ValueError, "negative"),
        ("-8/255", ValueError, "negative"),
        (math.nan, ValueError, "finite"),
        (math.inf, ValueError, "finite"),
        ("lots", ValueError, "not a number"),
        (None, TypeError, "needs an eps"),
        ([0.1], TypeError, "text or a number, not list"),
        (torch.tensor(-0.1), ValueError, "not negative, got -0.1"),
        (torch.tensor(math.nan), ValueError, "finite"),
        (torch.tensor(1), TypeError, "floating-point"),
        (torch.rand(2, 2), ValueError, r"\(2, 2\) does not broadcast to x \(2, 1, 3, 3\)"),
        (torch.rand(5, 1, 1, 3, 3), ValueError, "does not broadcast"),
    ],
)
def test_eps(eps, error, message):
    with pytest.raises(error, match=message):
        ld.predict(random_net(0), images(2), eps)


def test_eps_by_pixel_is_for_boxes():
    with pytest.raises(ValueError, match="is not for method 'margin': take 'box'"):
        ld.certify(random_net(0), images(2), torch.zeros(3, 3), method="margin")


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (torch.tensor([0, 1, 2]), ValueError, r"shape \(2,\), one class per image; got \(3,\)"),
        (torch.tensor([0, 4]), ValueError, "classes 0 to 3, got 0 to 4"),
        (torch.tensor([-1, 0]), ValueError, "classes 0 to 3, got -1 to 0"),
        (torch.tensor([0.0, 1.0]), TypeError, "integers, got torch.float32"),
        ([0.0, 1.0], TypeError, "whole numbers or names of classes, got float64"),
    ],
)
def test_labels(y, error, message):
    with pytest.raises(error, match=message):
        ld.certify(random_net(0), images(2), "0.1", y=y)


def test_certificates_are_those_of_the_limit():
    """At p = 8 the classes may be others: `certify` asks at p = inf, whatever training is at."""
    net, x = two_classes(0.0, 1.0), torch.tensor([0.3, 0.6])[:, None, None, None]
    proof = ld.certify(net, x, Fraction(1, 50))
    assert torch.equal(proof.prediction, net(x, math.inf).argmax(1))
    assert proof.certified.all()
