"""Conventional networks as citizens: certified, attacked, evaluated, saved and refused like every other network."""

import copy
import subprocess
import sys

import pytest
import torch

import linfdist as ld
from linfdist import certificates
from linfdist.attacks import attack
from linfdist.baselines import ReLUNet
from linfdist.data import Dataset
from linfdist.eps import parse_eps
from linfdist.files import load_tensors, save_tensors
from linfdist.models import Mean
from linfdist.models.base import flush_error, rounding_error

from .nets import cnn, mlp, pixels

METHODS = [
    name for name, method in certificates.METHODS.items() if method.data_sets
]  # all that are not for tiny networks


@pytest.mark.parametrize("make", [mlp, cnn])
@torch.no_grad()
def test_no_certificate_is_broken_and_no_method_is_weaker_than_the_box(make):
    net = make(1)
    x = pixels(net, 8)
    proofs = {method: ld.certify(net, x, "0.01", method=method) for method in METHODS}
    for method, proof in proofs.items():
        assert torch.equal(proof.prediction, net(x).argmax(1))
        if method != "margin":
            assert (proof.radius >= proofs["margin"].radius).all()
        if method not in ("margin", "box"):
            assert (proof.radius >= proofs["box"].radius).all()
    best = torch.stack([proof.radius for proof in proofs.values()]).amax(0)
    assert (best > proofs["box"].radius).any()  # linear bounds are worth their time
    assert proofs["crown"].certified.any()
    sure = torch.stack([proof.certified for proof in proofs.values()]).any(0).nonzero()[:, 0]
    prediction = proofs["box"].prediction
    for name in ("pgd", "strong"):
        assert not attack(name)(net, x[sure], prediction[sure], parse_eps("0.01")).broken.any()
        found = attack(name)(net, x, prediction, [parse_eps(radius) for radius in best.tolist()])
        assert not found.broken.any()
        assert attack(name)(net, x, prediction, parse_eps("0.6")).broken.any()  # the attacks are not blind
    for corner in (torch.zeros_like(x), torch.ones_like(x), torch.rand_like(x).round()):
        moved = x + (best[:, None, None, None] * 0.9999).float() * (2 * corner - 1)
        assert torch.equal(net(moved.clamp(0, 1)).argmax(1), prediction)


@torch.no_grad()
def test_a_point_that_is_proved_is_the_same_in_other_batches_and_precisions_of_flushing():
    net, x = cnn(2), pixels(cnn(2), 30)
    proof = ld.certify(net, x, "0", method="crown-ibp", radii=False)
    assert proof.certified.sum() > 25
    alone = torch.cat([net(each[None]).argmax(1) for each in x])
    assert torch.equal(alone[proof.certified], proof.prediction[proof.certified])


@torch.no_grad()
def test_eps_per_pixel_and_exact_eps():
    net, x = mlp(1), pixels(mlp(1), 6)
    still = torch.zeros(3, 3)
    still[1, 1] = 0.2
    for method in ("box", "crown-ibp"):
        some = ld.certify(net, x, still, method=method, radii=False).certified
        assert some.sum() >= ld.certify(net, x, "0.2", method=method, radii=False).certified.sum()
    with pytest.raises(ValueError, match="one number per pixel"):
        ld.certify(net, x, still, method="margin")
    radius = ld.certify(net, x, None, method="crown").radius
    assert ld.certify(net, x[:1], float(radius[0]), method="crown", radii=False).certified.all()


@torch.no_grad()
def test_the_rounding_error_of_the_whole_network_is_declared():
    for net in (mlp(0, gain=20.0), cnn(0, gain=5.0)):
        x, error = pixels(net, 50), rounding_error(net)
        apart = (net(x).double() - copy.deepcopy(net).double()(x.double())).abs().max()
        assert 0 < apart <= error


@torch.no_grad()
def test_when_nothing_is_left_to_prove():
    net, x = mlp(1), pixels(mlp(1), 6)
    sure = x[ld.certify(net, x, "0", radii=False).certified]
    for method in METHODS[1:]:
        assert ld.certify(net, sure, "0", method=method, radii=False).certified.all()
        assert len(ld.certify(net, sure[:0], "0", method=method)) == 0


def test_networks_that_cannot_be_trusted_are_refused():
    net, x = mlp(0), torch.rand(2, 1, 3, 3)
    with pytest.raises(ValueError, match="training mode"):
        ld.certify(mlp(0).train(), x, "0.1", method="crown")
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        ld.certify(net, x + 1, "0.1", method="crown")
    with pytest.raises(TypeError, match="no form in integers"):
        ld.exact.freeze(net)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ValueError, match="bounds of the network do not cover"):
            ld.certify(net, x, "0.1")
    finally:
        torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        net.scores.linear.weight[0, 0] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        ld.certify(net, x, "0.1")


@torch.no_grad()
def test_tiny_weights_do_not_cost_the_proof_of_layers_that_absorb_flushes():
    """Trained weights are often denormal; the bounds of sums have room for whatever becomes of such numbers."""
    net = mlp(0)
    net.body.layers[2].weight[0] = 1e-41
    assert flush_error(net, rounding_error(net)) == 0.0
    assert ld.certify(net, pixels(net, 8), "0.001", radii=False).certified.any()
    net.body.layers[0].std.fill_(1e-33)  # but this one multiplies what was flushed, before a layer absorbs it
    assert flush_error(net, 1.0) == 2.0


@torch.no_grad()
def test_means_of_conventional_networks_are_certified():
    mean = Mean([mlp(0), mlp(1)]).eval()
    x = pixels(mlp(0), 10)
    proof = ld.certify(mean, x, "0.001", radii=False)
    sure = proof.certified
    assert not attack("strong")(mean, x[sure], proof.prediction[sure], parse_eps("0.001")).broken.any()


def test_evaluate_and_report_take_them(tmp_path):
    net = mlp(1)
    images = (pixels(net, 9) * 255).round().to(torch.uint8)
    labels = net(net.from_bytes(images)).argmax(1)
    dataset = Dataset("noise", images, labels, tuple("abcd"))
    result = ld.evaluate(net, dataset, "0.01", tmp_path, method="crown-ibp", attacks=["pgd"])
    assert result.summary["method"] == "crown-ibp"
    assert 0 < result.summary["certified"] <= result.summary["robust"] <= 100
    page = ld.report.write(tmp_path).read_text(encoding="utf-8")
    assert "crown-ibp" in page


def test_files_hold_them_and_loading_needs_no_import_before(tmp_path):
    net, file = cnn(0), tmp_path / "net.safetensors"
    ld.models.save(net, file)
    program = (
        "import sys, linfdist as ld, torch\n"
        "assert 'linfdist.baselines' not in sys.modules\n"
        f"net = ld.load({str(file)!r})\n"
        "print(type(net).__name__, net(torch.full((1, 2, 9, 8), 0.3)).sum().item())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    name, total = run.stdout.split()
    assert name == "ReLUNet"
    assert float(total) == pytest.approx(net(torch.full((1, 2, 9, 8), 0.3)).sum().item(), abs=1e-5)
    both = tmp_path / "both.safetensors"
    ld.models.save(Mean([cnn(0), cnn(1)]), both)
    assert isinstance(ld.load(both), Mean)
    loaded = ld.load(file)
    assert isinstance(loaded, ReLUNet)
    assert loaded.config == net.config


def test_files_that_lie_are_refused(tmp_path):
    net = cnn(0)
    for key, value, what in [
        ("hidden", [12], "does not fit"),
        ("hidden", [10**12], "does not fit"),
        ("convolutions", [[3, 3, 2]], "cannot be built"),
        ("convolutions", {"a": 1}, "cannot be built"),
        ("class", "baselines.Unknown", "no network of class 'baselines.Unknown': the classes are DistNet, .*baselines"),
        ("class", "baselines.__init__", "no network of class"),
    ]:
        file = tmp_path / "net.safetensors"
        ld.models.save(net, file)
        tensors, header = load_tensors(file)
        save_tensors(file, tensors, {**header, "config": {**header["config"], key: value}})
        with pytest.raises(ValueError, match=what):
            ld.load(file)


@pytest.mark.parametrize(("dtype", "large", "denormal"), [(torch.float32, 1e36, 1e-39), (torch.float64, 1e305, 1e-308)])
@pytest.mark.parametrize("method", ["margin", "box", "crown", "zonotope"])
def test_denormal_weights_that_a_thread_may_flush_are_worth_what_they_multiply(dtype, large, denormal, method):
    """Kept, they decide the class; flushed, they are 0: an image that either thread may get has no certificate."""
    net = ReLUNet((1, 1, 1), 2, [0.0], 1.0, hidden=[16]).to(dtype).eval()
    with torch.no_grad():
        first, last = net.body.layers[2], net.scores.linear
        first.weight.fill_(large)
        first.bias.zero_()
        last.weight.zero_()
        last.weight[0] = denormal
        last.bias.copy_(torch.tensor([0.0, 1e-3]))

    def certified(pixel, eps):
        return ld.certify(net, torch.full((1, 1, 1, 1), pixel, dtype=dtype), eps, method=method).certified.item()

    assert not certified(0.9, "0.01")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormal numbers")
    try:
        assert not certified(0.01, "0.5")
        assert not certified(0.41, "0")
    finally:
        torch.set_flush_denormal(False)
