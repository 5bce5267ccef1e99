"""A network from a file is the certified one: eval mode, p = inf, the same bits."""

import pytest
import torch

from linfdist.baselines import ReLUNet
from linfdist.files import load_tensors, save_tensors
from linfdist.models import ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP, load, save

from ..ops.processes import python


def test_round_trip_through_a_file(tmp_path):
    net = DistNetMLP((1, 4, 4), 3, 20, 2, [0.5], 0.3, head=6)
    for _ in range(3):
        net(torch.rand(8, 1, 4, 4), 8.0)
    save(net, tmp_path / "model.safetensors", {})
    again = load(tmp_path)
    assert net.training
    assert not any(module.training for module in again.modules())
    x = torch.rand(8, 1, 4, 4)
    assert torch.equal(again(x), net.eval()(x))
    assert again.lipschitz == net.lipschitz
    assert again.config == net.config


def test_a_file_keeps_its_precision_whatever_the_default(tmp_path):
    for dtype, other in ((torch.float32, torch.float64), (torch.float64, torch.float32)):
        net = DistNet((1, 3, 3), 4, 5, 2, [0.3], 0.3).to(dtype).eval()
        save(net, tmp_path / "net.safetensors")
        default = torch.get_default_dtype()
        torch.set_default_dtype(other)
        try:
            loaded = load(tmp_path / "net.safetensors")
        finally:
            torch.set_default_dtype(default)
        assert loaded.any_tensor.dtype == dtype
        x = torch.rand(3, 1, 3, 3, dtype=dtype)
        assert torch.equal(loaded(x), net(x))


def test_a_file_of_baselines_imports_what_it_needs(tmp_path):
    path = tmp_path / "model.safetensors"
    save(ReLUNet((1, 4, 4), 3, [0.5], 0.3, hidden=[5]), path)
    program = (
        "import sys, linfdist\n"
        "assert 'linfdist.baselines' not in sys.modules\n"
        f"assert type(linfdist.load({str(path)!r})).__name__ == 'ReLUNet'\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


def trained_a_little(net):
    for _ in range(3):
        net(torch.rand(8, *net.shape), 8.0)
    return net.eval()


NETS = {
    "plain": lambda: DistNet((1, 4, 4), 3, 20, 3, [0.5], 0.3),
    "learned bias": lambda: DistNet((1, 4, 4), 3, 20, 3, [0.5], 0.3, mean_shift=False),
    "head": lambda: DistNetMLP((1, 4, 4), 3, 20, 2, [0.5], 0.3, head=6),
    "plain convolutions": lambda: ConvDistNet((3, 8, 8), 3, 4, 4, [0.5] * 3, 0.3, dense=9, per_class=2),
    "convolutions": lambda: ConvDistNetMLP((3, 8, 8), 3, 4, 4, [0.5] * 3, 0.3, head=6),
}


@pytest.mark.parametrize("name", NETS)
def test_a_compact_file_rounds_matrices_only_and_by_half_a_step_at_most(name, tmp_path):
    net = trained_a_little(NETS[name]())
    path = tmp_path / "model.safetensors"
    save(net, path, {"note": "kept"}, compact=True)
    stored, header = load_tensors(path)
    learned = dict(net.named_parameters())
    again = load(path).state_dict()
    assert header["note"] == "kept"
    assert header["steps"].keys() == {key for key, tensor in learned.items() if tensor.dim() > 1}
    for key, tensor in net.state_dict().items():
        assert again[key].dtype == torch.float32
        if key not in header["steps"]:  # Normalize's mean has three dimensions, but is no weight
            assert torch.equal(again[key], tensor)
            continue
        step = 2.0 ** int(header["steps"][key].removeprefix("2^"))
        assert stored[key].dtype == torch.int16
        assert torch.equal(again[key].double(), stored[key].double() * step)  # exact, so the same everywhere
        assert (again[key].double() - tensor.double()).abs().max() <= step / 2
        assert tensor.abs().max() > 32767 * step / 2  # half the step would not do
    assert max(tensor.abs().max() for key, tensor in stored.items() if key in header["steps"]) > 16000


def test_a_compact_network_saved_again_is_the_same(tmp_path):
    save(NETS["head"](), tmp_path / "once.safetensors", {}, compact=True)
    once = load(tmp_path / "once.safetensors")
    save(once, tmp_path / "twice.safetensors", {}, compact=True)
    twice = load(tmp_path / "twice.safetensors")
    assert all(torch.equal(one, two) for one, two in zip(once.parameters(), twice.parameters(), strict=True))


@pytest.mark.parametrize("largest", [32767.0, 32767.0 * 2**-9, 32768.0, 0.7, 1e-40, 0.0])
def test_the_largest_weight_fits_whatever_its_size(largest, tmp_path):
    net = NETS["plain"]()
    with torch.no_grad():
        net.last.weight.zero_()[0, 0] = -largest
    save(net, tmp_path / "model.safetensors", {}, compact=True)
    _, header = load_tensors(tmp_path / "model.safetensors")
    step = 2.0 ** int(header["steps"]["last.weight"].removeprefix("2^"))
    assert abs(load(tmp_path / "model.safetensors").last.weight[0, 0].item() + largest) <= step / 2
    assert step == 2.0**-100 or step / 2 * 32767 < largest


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e38])
def test_weights_that_do_not_fit_are_not_saved(wrong, tmp_path):
    net = NETS["plain"]()
    with torch.no_grad():
        net.last.weight[0, 0] = wrong
    with pytest.raises(ValueError, match=r"last\.weight cannot be rounded to 16 bits"):
        save(net, tmp_path / "model.safetensors", {}, compact=True)
    assert not list(tmp_path.iterdir())


def steps(**changes):
    return lambda header: header["steps"].update(changes)


HOSTILE = {
    "no such matrix": (steps(nothing="2^-11"), "not a matrix of its network"),
    "a buffer": (steps(**{"body.layers.0.mean": "2^-11"}), "not a matrix of its network"),
    "a bias": (steps(**{"last.bias": "2^-11"}), "not a matrix of its network"),
    "no power of two": (steps(**{"last.weight": "3^-11"}), "expected 2^-100 to 2^100"),
    "a number": (steps(**{"last.weight": 0.5}), "expected 2^-100 to 2^100"),
    "huge": (steps(**{"last.weight": "2^101"}), "expected 2^-100 to 2^100"),
    "longer than memory": (steps(**{"last.weight": "2^" + "9" * 4000}), "expected 2^-100 to 2^100"),
    "no object": (lambda header: header.update(steps=["last.weight"]), "must be a JSON object"),
    "one missing": (lambda header: header["steps"].pop("last.weight"), "last.weight is torch.int16"),
    "all missing": (lambda header: header.pop("steps"), "is torch.int16"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_steps_that_nobody_wrote_are_refused(case, tmp_path):
    path = tmp_path / "model.safetensors"
    save(NETS["plain"](), path, {}, compact=True)
    tensors, header = load_tensors(path)
    change, message = HOSTILE[case]
    change(header)
    save_tensors(path, tensors, header)
    with pytest.raises(ValueError, match=r"model\.safetensors") as refused:
        load(path)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("key", ["identity_init", "mean_shift", "mirror_pairs"])
@pytest.mark.parametrize("value", ["false", 0, None, []], ids=str)
def test_a_switch_of_a_file_is_true_or_false(key, value, tmp_path):
    path = tmp_path / "model.safetensors"
    save(NETS["plain"](), path, {})
    tensors, header = load_tensors(path)
    save_tensors(path, tensors, {**header, "config": {**header["config"], key: value}})
    with pytest.raises(ValueError, match=f"'{key}' must be true or false, got "):
        load(path)


def test_a_step_for_float_weights_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save(NETS["plain"](), path, {})
    tensors, header = load_tensors(path)
    save_tensors(path, tensors, {**header, "steps": {"last.weight": "2^3"}})
    with pytest.raises(ValueError, match=r"last\.weight has a step, but is torch\.float32"):
        load(path)
