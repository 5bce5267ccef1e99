"""Certificates of networks that compute on a device: sound there, and refused where nothing is known."""

from fractions import Fraction

import pytest
import torch
from torch.overrides import TorchFunctionMode

import linfdist as ld
from linfdist import attacks
from linfdist.attacks.strong import STAGES
from linfdist.bounds.head import TANH_EPS
from linfdist.certificates import checks as proofs
from linfdist.certificates import on_device
from linfdist.data import Dataset
from linfdist.evaluation import evaluate
from linfdist.exact import freeze
from linfdist.ops.machine import DeviceError

from ..certificates.nets import random_net, trained_net
from ..certificates.test_margin import images


def head_net():
    torch.manual_seed(3)
    return ld.models.DistNetMLP((1, 3, 3), 4, 12, 3, [0.3], 0.31, head=9).eval()


NETWORKS = {"plain": lambda: trained_net()[0], "shifts and biases": lambda: random_net(2), "head": head_net}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", ["margin", "box"])
def test_they_are_those_of_the_cpu(device, network, method):
    """The search may end elsewhere by a rounding; where it ends is proved on the device itself, below."""
    network, x = NETWORKS[network](), images(20, seed=8)
    there = ld.certify(network, x, "4/255", method=method, device=device)
    here = ld.certify(network, x, "4/255", method=method)
    assert there.radius.device == x.device == network.any_tensor.device
    assert torch.equal(there.prediction, here.prediction)
    torch.testing.assert_close(there.radius, here.radius, rtol=2**-9, atol=2**-13)
    assert here.radius.max() > 0


@pytest.mark.parametrize("network", NETWORKS)
def test_attacks_on_the_device_find_nothing_within_the_radius(device, network):
    network, x = on_device(NETWORKS[network](), device), images(9, seed=9).to(device)
    proof = ld.certify(network, x, None)
    sure = (proof.radius > 0).nonzero()[:, 0]
    radii = [Fraction(radius) for radius in proof.radius[sure].tolist()]
    attack = attacks.Strong(stages=STAGES[:2])
    assert len(radii) > 4
    assert not attack(network, x[sure], proof.prediction[sure], radii).broken.any()


def test_the_attack_can(device):
    """The one above, at four times the radius."""
    network, x = on_device(trained_net()[0], device), images(9, seed=9).to(device)
    proof = ld.certify(network, x, None)
    radii = [min(4 * Fraction(radius), Fraction(1)) for radius in proof.radius.tolist()]
    assert attacks.Strong(stages=STAGES[:2])(network, x, proof.prediction, radii).broken.any()


def test_an_evaluation_says_where(device, tmp_path):
    network, x = trained_net()
    x = (x[:6] * 255).round().to(torch.uint8)
    data = Dataset("mine", x, network(x / 255).argmax(1), tuple("abcd"))
    summary = evaluate(network, data, "2/255", tmp_path, attacks=("pgd",), device=device).summary
    assert summary.get("device", "cpu") == device.type
    assert summary["certified"] <= summary["robust"] <= summary["clean"] == 100
    if device.type != "cpu":
        with pytest.raises(ValueError, match=f"device: {device.type} there, cpu now"):
            evaluate(network, data, "2/255", tmp_path, attacks=("pgd",))


def test_arrays_and_one_radius_for_each_pixel(device):
    network, x = trained_net()[0], images(7, seed=4)
    proof = ld.certify(network, (x.numpy() * 255).round().astype("uint8"), "1/255", device=device)
    assert torch.equal(proof.prediction, ld.certify(network, x, None).prediction)
    eps = torch.full((3, 3), 1 / 255)
    assert torch.equal(ld.certify(network, x, eps, device=device).certified, ld.certify(network, x, eps).certified)
    assert torch.equal(ld.predict(network, x, "1/255", device=device), ld.predict(network, x, "1/255"))


def test_the_exact_radius(device):
    pytest.importorskip("highspy", reason="the extra `milp`")
    network, x = random_net(1, width=3, depth=2), images(2, seed=2)
    there = ld.certify(network, x, None, method="milp", device=device)
    torch.testing.assert_close(there.radius, ld.certify(network, x, None, method="milp").radius, rtol=0, atol=1e-4)


def test_its_arithmetic_is_that_of_ieee_754(device):
    assert proofs.wrong_arithmetic(device) == []


@pytest.mark.gpu
def test_tanh_everywhere(gpu):
    """Every float32 from 2^-12 to 12; smaller ones are their own tanh, larger ones give 1."""
    first, last = (torch.tensor(end).view(torch.int32).item() for end in (2.0**-12, 12.0))
    for start in range(first, last, 1 << 24):
        x = torch.arange(start, min(last, start + (1 << 24)), dtype=torch.int32, device=gpu).view(torch.float32)
        wrong = (x.tanh().double() - x.double().tanh()).abs().max()
        assert wrong <= (TANH_EPS - 1) * torch.finfo(torch.float32).eps


# --- what is refused, whatever the device; where nothing real is at hand, torch's functions are made to err ---------


class Errs(TorchFunctionMode):
    """Changes what some functions of torch give."""

    def __init__(self, names, change):
        self.names, self.change = names, change

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return self.change(*args) if function.__name__ in self.names else result


def in_tf32(a, b):
    """Factors with ten digits after the point, as tensor cores take them."""
    if a.dtype != torch.float32:
        return torch.mm(a, b)
    return torch.mm(*((each.view(torch.int32) & -(1 << 13)).view(each.dtype) for each in (a, b)))


def test_products_in_less_than_their_precision_are_found():
    with Errs({"matmul"}, in_tf32):
        assert proofs.wrong_arithmetic(torch.device("cpu")) == ["matrix products in float32"]


def test_fast_division_is_found():
    with Errs({"div"}, lambda a, b: a * torch.reciprocal(b)):
        found = proofs.wrong_arithmetic(torch.device("cpu"))
    assert "division in float32" in found
    assert "division in float64" in found
    assert "subtraction in float32" not in found


def test_a_device_that_errs_certifies_nothing(monkeypatch):
    """No GPU that errs is at hand: one that is said to."""
    monkeypatch.setattr(proofs, "_tried", lambda device: ("matrix products in float32",))
    with pytest.raises(ValueError, match=r"do not hold on cuda:0.*matrix products in float32.*--device cpu"):
        proofs.check_device(torch.device("cuda", 0))


@pytest.mark.parametrize("kind", ["mps", "xpu", "meta"])
def test_other_devices_are_refused_with_what_to_do(kind):
    with pytest.raises(ValueError, match=rf"not known of {kind}.*device='cpu'"):
        proofs.check_device(torch.device(kind))


def test_exact_networks_stay_on_the_cpu():
    network = random_net(3)
    assert on_device(freeze(network), "cpu") is not None
    with pytest.raises(DeviceError, match="cuda"):
        ld.certify(network, images(1), None, device="cuda:99")
