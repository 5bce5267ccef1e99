"""Networks of one's own layers: saved as data, loaded from data alone, and taken from `torch.nn.Sequential`."""

import copy
import json
import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import linfdist as ld
from linfdist import baselines
from linfdist.files import save_tensors
from linfdist.models import Composed, Mean, as_network, from_config, load, save
from linfdist.nn import (
    CenterCrop,
    Clip,
    DistConv2d,
    DistLinear,
    Flatten,
    Head,
    Logits,
    MeanPool,
    MeanShift,
    MirrorPairs,
    NearestClass,
    Normalize,
    Stack,
    View,
)

from ..contract.foreign import GroupMean


def plain(per_class=1):
    """Every layer of linfdist.nn but `Flatten`, which the pool makes needless."""
    torch.manual_seed(per_class)
    layers = [CenterCrop(6), Clip(0.1, 0.9), View("shift:1,0"), Normalize([0.3, 0.4], 0.31), MirrorPairs()]
    layers += [DistConv2d(2, 3, (3, 1), stride=1, padding=(1, 0), bias=True), MeanShift(3), MeanPool([1, 2])]
    layers += [DistLinear(3 * 36 + 3 * 9, 17, identity_init=False), MeanShift(17), DistLinear(17, 11, bias=True)]
    network = Composed(Stack(*layers), NearestClass(11, 3, per_class), (2, 8, 8))
    network(torch.rand(5, 2, 8, 8))  # the shifts see a batch
    return network.eval()


def of_layers(*layers, readout, shape=(1, 4, 4)):
    torch.manual_seed(0)
    return Composed(Stack(*layers), readout, shape).eval()


KINDS = {
    "plain": plain,
    "several per class": lambda: plain(4),
    "head": lambda: of_layers(Normalize([0.5], 0.3), Flatten(), DistLinear(16, 7), MeanShift(7), readout=Head(7, 5, 3)),
    "logits": lambda: of_layers(Normalize([0.5], 0.3), Flatten(), DistLinear(16, 3), readout=Logits(3)),
    "conventional": lambda: of_layers(
        Normalize([0.5], 0.3),
        baselines.Conv2d(1, 4, 3, 1, 1),
        baselines.GroupSort(2),
        Flatten(),
        baselines.Linear(64, 6),
        baselines.ReLU(),
        readout=baselines.Scores(6, 3),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_composition_is_saved_and_loaded_with_the_same_bits(tmp_path, kind, dtype):
    network = KINDS[kind]().to(dtype)
    network.class_names = ("a", "b", "c")
    save(network, tmp_path / "model.safetensors")
    again = load(tmp_path)
    assert type(again) is Composed
    assert not again.training
    assert again.class_names == ("a", "b", "c")
    assert again.config == network.config == json.loads(json.dumps(network.config))
    assert again.checksum() == network.checksum()
    x = torch.rand(7, *network.shape, dtype=dtype)
    assert torch.equal(again(x), network(x))
    one, other = (ld.certify(each, x, "0.01") for each in (network, again))
    assert torch.equal(one.radius, other.radius)
    assert torch.equal(one.certified, other.certified)


def test_a_crop_in_front_takes_images_that_are_cropped_already():
    network, x = plain(), torch.rand(4, 2, 8, 8)
    assert torch.equal(network(x), network(x[..., 1:7, 1:7]))
    with pytest.raises(ValueError, match=r"need images \(B, 2, 8, 8\) or \(B, 2, 6, 6\)"):
        network(x[..., 1:])


def test_means_of_compositions_are_saved(tmp_path):
    mean = Mean([plain(1), plain(4)], views=["same", "mirror"])
    save(mean, tmp_path / "model.safetensors")
    x = torch.rand(3, 2, 8, 8)
    assert torch.equal(load(tmp_path)(x), mean(x))


def test_a_composition_is_exported(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    network, x = KINDS["logits"](), torch.rand(5, 1, 4, 4)
    save(network, tmp_path / "model.safetensors")
    ld.export.to_onnx(load(tmp_path), tmp_path / "net.onnx")
    logits, radius = onnxruntime.InferenceSession(tmp_path / "net.onnx").run(None, {"images": x.numpy()})
    assert torch.equal(torch.from_numpy(logits), network(x))
    assert (torch.from_numpy(radius) <= ld.certify(network, x, None, method="margin").radius).all()


class Louder(DistLinear):
    def forward(self, x, p=math.inf):
        return 1000 * super().forward(x, p)


class OwnStack(Stack):
    def forward(self, x, p=math.inf):
        return 1000 * super().forward(x, p)


class OwnComposed(Composed):
    def forward(self, x, p=math.inf):
        return 1000 * super().forward(x, p)


class OwnNet(ld.models.DistNet):
    def forward(self, x, p=math.inf):
        return 1000 * super().forward(x, p)


def test_what_is_no_exact_class_is_not_saved(tmp_path):
    """A file names a class, and what a subclass computes would be lost."""
    path, readout = tmp_path / "never", Logits(3)
    loud = of_layers(Flatten(), Louder(16, 3), readout=readout)
    with pytest.raises(TypeError, match=r"body.layers.1: a Louder cannot be saved \(it inherits from DistLinear"):
        save(loud, path)
    group = of_layers(Flatten(), DistLinear(16, 6), GroupMean(2), readout=readout)
    with pytest.raises(TypeError, match=r"body.layers.2: a GroupMean cannot be saved; .*arguments_of.register"):
        save(group, path)
    layers = Flatten(), DistLinear(16, 3)
    for network in (
        Composed(OwnStack(*layers), readout, (1, 4, 4)),
        OwnComposed(Stack(*layers), readout, (1, 4, 4)),
        OwnNet((1, 4, 4), 3, 5, 2, [0.5], 0.3),
    ):
        with pytest.raises(ValueError, match=rf"a {type(network).__name__} cannot be saved"):
            save(network, path)
    other = KINDS["logits"]()
    other.body.layers[2].weight = nn.Parameter(torch.zeros(3, 17))
    with pytest.raises(ValueError, match=r"body.layers.2.weight has shape \(3, 17\)"):
        save(other, path)
    assert not path.exists()


def test_a_stack_keeps_a_stack_of_another_class_whole():
    assert [type(each) for each in Stack(Stack(Flatten()), OwnStack(Flatten()))] == [Flatten, OwnStack]


def test_a_layer_of_ones_own_is_saved_once_it_is_registered(tmp_path, monkeypatch):
    registry = ld.models.composed.arguments_of
    monkeypatch.setattr(registry, "_functions", dict(registry._functions))
    registry.register(GroupMean)(lambda layer: {"size": layer.size})
    network = of_layers(Flatten(), DistLinear(16, 6), GroupMean(2), readout=Logits(3))
    save(network, tmp_path / "model.safetensors")
    x = torch.rand(2, 1, 4, 4)
    assert torch.equal(load(tmp_path)(x), network(x))
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"no layer of class '.*\.GroupMean': the classes are .*DistLinear"):
        load(tmp_path)


# --- files from the attacker's side ---------------------------------------------------------------

GOOD = KINDS["head"]()
LAYER = {"class": "DistLinear", "in_features": 16, "out_features": 7, "bias": False}


def changed(place, change):
    """The configuration with another layer at a place; "readout" or keys of the network elsewhere."""
    config = copy.deepcopy(GOOD.config)
    if isinstance(place, int):
        config["body"][place] = change
    else:
        config[place] = change
    return config


HOSTILE = {
    "unknown class": changed(2, {"class": "os.system", "command": "true"}),
    "class of another package": changed(2, {**LAYER, "class": "torch.nn.Linear"}),
    "class of a rival that is none": changed(2, {**LAYER, "class": "baselines.train"}),
    "no class": changed(2, {"in_features": 16, "out_features": 7}),
    "class is a list": changed(2, {**LAYER, "class": ["DistLinear"]}),
    "layer is text": changed(2, "DistLinear"),
    "layer is a network": changed(2, GOOD.config),
    "readout as a layer": changed(2, {"class": "NearestClass", "in_features": 16, "classes": 7}),
    "layer as the readout": changed("readout", LAYER),
    "a stack, which has no arguments": changed(2, {"class": "Stack"}),
    "unknown key": changed(2, {**LAYER, "code": "x"}),
    "missing key": changed(2, {"class": "DistLinear", "in_features": 16}),
    "huge": changed(2, {**LAYER, "in_features": 2**40, "out_features": 2**40}),
    "overflow": changed(2, {**LAYER, "in_features": 2**62}),
    "negative": changed(2, {**LAYER, "out_features": -7}),
    "fraction": changed(2, {**LAYER, "out_features": 7.5}),
    "text": changed(2, {**LAYER, "out_features": "7"}),
    "wider": changed(2, {**LAYER, "out_features": 8}),
    "with a bias": changed(2, {**LAYER, "bias": True}),
    "shift of another width": changed(3, {"class": "MeanShift", "num_features": 6}),
    "wrong order": changed("body", [GOOD.config["body"][k] for k in (0, 2, 1, 3)]),
    "crop larger than the image": changed(1, {"class": "CenterCrop", "size": 9}),
    "no body": changed("body", {}),
    "no readout": changed("readout", None),
    "many layers": changed("body", [{"class": "Flatten"}] * 10**5),
    "huge shape": changed("shape", [1, 2**31, 2**31]),
    "another shape": changed("shape", [1, 4, 5]),
    "shape is text": changed("shape", "144"),
    "shape of two": changed("shape", [4, 4]),
    "shape of truth values": changed("shape", [True, 4, 4]),
    "std is 0": changed(0, {"class": "Normalize", "mean": [0.5], "std": 0.0}),
    "std is NaN": changed(0, {"class": "Normalize", "mean": [0.5], "std": math.nan}),
    "another number of channels": changed(0, {"class": "Normalize", "mean": [0.5, 0.5], "std": 0.3}),
    "no classes": changed("readout", {"class": "Head", "in_features": 7, "hidden": 5, "classes": 0}),
}


@pytest.mark.parametrize("config", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_lies_is_refused_at_once(tmp_path, config):
    """No memory is taken on its word, and nothing is imported."""
    save_tensors(tmp_path / "model.safetensors", GOOD.state_dict(), {"config": config})
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load(tmp_path)


def test_a_file_whose_layers_would_need_a_terabyte_is_refused(tmp_path):
    """A few weights suffice to ask for it: padding has none."""
    convolution = {"class": "DistConv2d", "in_channels": 1, "out_channels": 1, "kernel_size": [1, 1], "padding": 10**6}
    config = changed("body", [convolution, {"class": "CenterCrop", "size": 1}, {"class": "Flatten"}])
    config["readout"] = {"class": "NearestClass", "in_features": 1, "classes": 2}
    network = of_layers(DistConv2d(1, 1, 1), CenterCrop(1), Flatten(), readout=NearestClass(1, 2))
    save_tensors(tmp_path / "model.safetensors", network.state_dict(), {"config": config})
    with pytest.raises(ValueError, match=r"more than 268,435,456 outputs or inputs for one image"):
        load(tmp_path)


def test_weights_that_are_not_finite_or_have_another_shape_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    for name, tensor in GOOD.state_dict().items():
        for wrong in (torch.full_like(tensor, math.nan), torch.zeros(*tensor.shape, 2)):
            save_tensors(path, {**GOOD.state_dict(), name: wrong}, {"config": GOOD.config})
            with pytest.raises(ValueError, match=name.replace(".", r"\.")):
                load(tmp_path)


def test_a_key_twice_is_refused(tmp_path):
    text = json.dumps({"config": GOOD.config}).replace('"bias": false', '"bias": false, "bias": false')
    save_file(GOOD.state_dict(), tmp_path / "model.safetensors", metadata={"linfdist": text})
    with pytest.raises(ValueError, match="'bias' twice"):
        load(tmp_path)


# --- torch's own containers -----------------------------------------------------------------------


def layers():
    torch.manual_seed(3)
    return [Normalize([0.3], 0.4), Flatten(), DistLinear(25, 9), MeanShift(9), DistLinear(9, 4)]


def test_a_sequential_is_certified_as_the_stack_of_its_layers():
    x, own = torch.rand(30, 1, 5, 5), layers()
    stack = ld.certify(Stack(*own).eval(), x, "0.03")
    for model in (
        nn.Sequential(*own),
        nn.Sequential(nn.Sequential(own[0], nn.Flatten()), Stack(own[2], own[3]), own[4]),
    ):
        proof = ld.certify(model.eval(), x, "0.03")
        assert torch.equal(proof.radius, stack.radius)
        assert torch.equal(proof.prediction, model(x).argmax(1))
        assert torch.equal(ld.Certifier(model, shape=(1, 5, 5))(x, "0.03").radius, stack.radius)
    assert stack.certified.any()
    assert not stack.certified.all()


def test_a_readout_may_end_a_sequential_and_a_stack():
    x, readout = torch.rand(9, 1, 5, 5), NearestClass(4, 3)
    expected = ld.certify(Composed(Stack(*layers()).eval(), readout.eval(), (1, 5, 5)), x, "0.03")
    for model in (nn.Sequential(*layers(), readout), Stack(*layers(), readout)):
        assert torch.equal(ld.certify(model.eval(), x, "0.03").radius, expected.radius)
    with pytest.raises(TypeError, match=r"Sequential.1 comes after a NearestClass, a readout"):
        ld.certify(nn.Sequential(readout, *layers()).eval(), x, "0.03")


def test_a_sequential_with_relus_holds_on_all_images_of_the_ball():
    torch.manual_seed(0)
    first, last = baselines.Linear(25, 12), baselines.Linear(12, 3)
    relu = nn.ReLU(inplace=True)
    model = nn.Sequential(Normalize([0.3], 0.4), nn.Flatten(), first, relu, MeanShift(12), relu, last).eval()
    assert [type(each) for each in as_network(model, (1, 5, 5)).body][3:6] == [
        baselines.ReLU,
        MeanShift,
        baselines.ReLU,
    ]
    x = torch.rand(40, 1, 5, 5)
    assert torch.equal(as_network(model, (1, 5, 5))(x), model(x))
    proof = ld.certify(model, x, "0.01")
    assert proof.certified.any()
    for _ in range(20):
        moved = (x + 0.01 * (2 * torch.rand_like(x) - 1).sign()).clamp(0, 1)
        assert (model(moved).argmax(1) == proof.prediction)[proof.certified].all()


class OwnSequential(nn.Sequential):
    def forward(self, x):
        return 1000 * super().forward(x)


class OwnReLU(nn.ReLU):
    def forward(self, x):
        return -1000 * x


@pytest.mark.parametrize(
    ("place", "layer", "named"),
    [
        (2, nn.Linear(25, 25), "Sequential.2 is a Linear"),
        (2, nn.Flatten(0), "Sequential.2 is a Flatten"),
        (2, nn.Flatten(1, 2), "Sequential.2 is a Flatten"),
        (2, nn.Sequential(nn.ReLU(), nn.Tanh()), "Sequential.2.1 is a Tanh"),
        (2, nn.ModuleList([DistLinear(25, 25)]), "Sequential.2 is a ModuleList"),
        (2, Stack(DistLinear(25, 25), nn.ReLU()), "Sequential.2.layers.1 is a ReLU"),
        (2, OwnSequential(DistLinear(25, 25)), "Sequential.2 is a OwnSequential"),
        (2, OwnReLU(), "Sequential.2 is a OwnReLU"),
        (2, OwnStack(DistLinear(25, 25)), "OwnStack, which inherits"),
        (2, Louder(25, 25), "Louder, which inherits"),
        (2, ld.models.DistNet((1, 5, 5), 3, 5, 2, [0.5], 0.3), "Sequential.2 is a DistNet"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_first_layer_that_is_not_covered_is_named(place, layer, named):
    own = layers()
    model = nn.Sequential(*own[:place], layer, *own[place:], nn.Softmax(1)).eval()
    if "inherits" in named:
        model = model[:-1].eval()
    with pytest.raises(TypeError, match=named.replace(".", r"\.")):
        ld.certify(model, torch.rand(2, 1, 5, 5), "0.1")


def test_what_is_changed_on_a_container_or_a_layer_of_torch_is_refused():
    """They are left out of the network that is certified, but not of what is called."""
    for change, reason in (
        (lambda module: module.register_forward_hook(lambda *_: None), "has forward hooks"),
        (lambda module: module.register_forward_pre_hook(lambda *_: None), "has forward hooks"),
        (lambda module: setattr(module, "forward", lambda x: 2 * x), "has its own forward"),
    ):
        for place in (None, 1, 2, 3):
            own = layers()
            inner = Stack(*own[2:])
            model = nn.Sequential(own[0], nn.Flatten(), nn.Sequential(nn.ReLU()), inner).eval()
            change(model if place is None else model[place])
            with pytest.raises(ValueError, match=reason):
                ld.certify(model, torch.rand(2, 1, 5, 5), "0.1")
    with pytest.raises(ValueError, match="training mode"):
        ld.certify(nn.Sequential(*layers()), torch.rand(2, 1, 5, 5), "0.1")
    with pytest.raises(ValueError, match="end with logits"):
        ld.certify(nn.Sequential().eval(), torch.rand(2, 1, 5, 5), "0.1")


def test_a_configuration_is_built_anew():
    again = from_config(GOOD.config)
    assert again.config == GOOD.config
    assert not torch.equal(again.body.layers[2].weight, GOOD.body.layers[2].weight)


def test_networks_without_a_configuration_differ_by_their_attributes():
    """Rows name the network by its checksum: two that compute different things must not share it."""

    class Own(Composed):
        pass

    def made(view):
        torch.manual_seed(0)
        return Own(Stack(View(view), Flatten()), NearestClass(9, 2), (1, 3, 3))

    assert made("mirror").config == {}
    assert made("mirror").checksum() == made("mirror").checksum() != made("same").checksum()
