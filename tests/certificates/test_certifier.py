"""A certifier, as somebody sees it who would like to change its network behind its back."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import linfdist as ld
from linfdist.models import Mean
from linfdist.models.composed import cache_lists
from linfdist.nn import DistLinear, Flatten, MeanShift, Stack

from .nets import head_net, images, random_net, trained_net

NETS = {
    "plain": lambda: trained_net()[0],
    "head": lambda: head_net(0),
    "conv": lambda: head_net(0, conv=True),
    "mean": lambda: Mean([trained_net()[0]], ["same", "mirror"]),
}


def same(one: ld.Certificate, other: ld.Certificate) -> bool:
    return one.to_dict() == other.to_dict()


@pytest.mark.parametrize("kind", NETS)
def test_the_certificates_are_those_of_certify(kind):
    net, x = NETS[kind](), images(40 if kind == "plain" else 6)  # from 32 on, without lists
    for method in ("margin", "box"):
        certifier = ld.Certifier(net, method)
        for some in (x[:1], x, x[:0]):
            assert same(certifier(some, "0.02"), ld.certify(net, some, "0.02", method=method))
    certifier = ld.Certifier(net)
    assert same(certifier(x.numpy(), "0.1", y=torch.zeros(len(x), dtype=torch.int64), radii=False),
                ld.certify(net, x.numpy(), "0.1", torch.zeros(len(x), dtype=torch.int64), radii=False))  # fmt: skip
    assert torch.equal(certifier.predict(x, "0.02"), ld.predict(net, x, "0.02"))
    assert same(certifier(x[:3], 0.1 * x[:3].double()), ld.certify(net, x[:3], 0.1 * x[:3].double()))


def _halve(net):
    for parameter in net.parameters():
        parameter.data.mul_(0.5)  # which torch's version counter does not see


def _by_numpy(net):
    net.last.weight.detach().numpy()[:] = 0


def _other_layer(net):
    list(net.body)[-1].register_forward_hook(lambda module, inputs, output: -output)


CHANGES = {
    "data": _halve,
    "numpy": _by_numpy,
    "no_grad": lambda net: nn.init.zeros_(net.last.weight),
    "state": lambda net: net.load_state_dict(random_net(9, width=24, depth=3).state_dict()),
    "train": lambda net: net.train(),
    "buffers": lambda net: [module.running_mean.fill_(7) for module in net.modules() if isinstance(module, MeanShift)],
    "hook": _other_layer,
    "double": lambda net: net.double(),
    "replaced": lambda net: setattr(net, "last", random_net(9, width=24, depth=3).last),
    "nan": lambda net: net.last.weight.data.fill_(torch.nan),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_becomes_of_the_network_later_changes_nothing(change):
    net, x = trained_net()
    certifier = ld.Certifier(net)
    before = certifier(x[:5], "0.05")
    CHANGES[change](net)
    assert same(certifier(x[:5], "0.05"), before)
    assert torch.equal(before.prediction, trained_net()[0](x[:5]).argmax(1))


def test_it_cannot_be_pickled_and_its_copy_is_itself():
    certifier = ld.Certifier(trained_net()[0])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=r"a Certifier cannot be pickled: .* make a new Certifier from it"):
            pickle.dumps(certifier, protocol)
    assert copy.copy(certifier) is certifier
    assert copy.deepcopy(certifier) is certifier


def test_what_it_proves_holds_at_the_corners_of_the_ball():
    net, x = trained_net()
    proof = ld.Certifier(net)(x[:30], None)
    assert (proof.radius > 0).sum() > 10
    for seed in range(20):
        torch.manual_seed(seed)
        moved = (x[:30] + proof.radius[:, None, None, None] * torch.randn_like(x[:30]).sign()).clamp(0, 1).float()
        inside = ((moved.double() - x[:30]).abs().amax((1, 2, 3)) <= proof.radius).logical_and(proof.radius > 0)
        assert torch.equal(net(moved).argmax(1)[inside], proof.prediction[inside])


def test_threads_share_one():
    net, x = trained_net()
    certifier, alone = ld.Certifier(net), [ld.certify(net, each[None], "0.05") for each in x[:24]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: certifier(each[None], "0.05"), x[:24]))
    assert all(same(one, other) for one, other in zip(found, alone, strict=True))


def test_what_is_refused_when_it_is_made():
    for spoil, words in (
        (lambda net: net.train(), "training mode"),
        (lambda net: net.body.layers[-1].train(), "training mode"),
        (lambda net: net.last.weight.data.fill_(torch.inf), "not finite"),
        (_other_layer, "forward hooks"),
        (lambda net: vars(net.last).update(forward=lambda x, p: x), "in place of its class's"),
    ):
        net = random_net(0)
        spoil(net)
        with pytest.raises(ValueError, match=words):
            ld.Certifier(net)
    with pytest.raises(ValueError, match=r"method = 'magic'"):
        ld.Certifier(random_net(0), "magic")
    with pytest.raises(TypeError, match="does not know its images"):
        ld.Certifier(Stack(Flatten(), DistLinear(9, 4)).eval())
    with pytest.raises(TypeError, match=r"'mnist-0\.3' is the name of a network: load it first"):
        ld.Certifier("mnist-0.3")
    with pytest.raises(TypeError, match="cannot be certified"):
        ld.Certifier(nn.Linear(3, 3), shape=(1, 1, 3))


def test_what_is_refused_at_every_call():
    net, x = head_net(0), images(2)
    certifier = ld.Certifier(net)
    for wrong in (x + 0.5, x * torch.nan, x.double(), x[:, :, :2]):
        with pytest.raises((ValueError, TypeError)):
            certifier(wrong, "0.1")
    with pytest.raises(ValueError, match=r"leave torch\.autocast"), torch.autocast("cpu", torch.bfloat16):
        certifier(x, "0.1")
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    with pytest.raises(ValueError, match="global forward hooks"):
        certifier(x, "0.1")
    handle.remove()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ValueError, match="float32 products"):
            certifier(x, "0.1")
    finally:
        torch.set_float32_matmul_precision("highest")
    certifier(x, "0.1")


class Shares(DistLinear):
    """Not copied with the network that it is part of."""

    def __deepcopy__(self, memo):
        return self


class LentMemory(nn.Parameter):
    def __deepcopy__(self, memo):
        return nn.Parameter(self.data)


def test_copies_that_are_none_are_refused():
    net = random_net(0)
    net.body.layers[-2].__class__ = Shares
    with pytest.raises(TypeError, match="copies that share modules or memory"):
        ld.Certifier(net)
    net = random_net(0)
    net.last._parameters["weight"] = LentMemory(net.last.weight.data)
    with pytest.raises(TypeError, match="copies that share modules or memory"):
        ld.Certifier(net)


def test_tensors_of_a_device_that_cannot_copy_storages_are_cloned(monkeypatch):
    def refuse(storage, memo):
        raise RuntimeError("the devices must match")

    net, x = NETS["mean"](), images(6)
    wanted = ld.certify(net, x, "0.02")
    monkeypatch.setattr(torch.UntypedStorage, "__deepcopy__", refuse)
    assert same(ld.Certifier(net)(x, "0.02"), wanted)


def test_a_stack_with_the_shape_of_its_images():
    stack = Stack(Flatten(), DistLinear(9, 8), DistLinear(8, 4, bias=True)).eval()
    x = images(5)
    assert same(ld.Certifier(stack, shape=(1, 3, 3))(x, "0.01"), ld.certify(stack, x, "0.01"))


def test_lists_are_of_no_use_to_anybody_else():
    """A layer that remembers its weights must not be certified: they may have changed since."""
    net = trained_net()[0]
    twin = cache_lists(net)
    assert any("_lists" in vars(module) for module in twin.modules())
    with pytest.raises(ValueError, match="has its own _lists"):
        ld.certify(twin, images(1), None)
    assert not any("_lists" in vars(module) for module in copy.deepcopy(net).modules())


def test_the_members_of_a_mean_keep_lists():
    """They see images of [0, 1], whatever the view, and what they compute has the same bits."""
    net, x = NETS["mean"]().eval(), images(3)
    cached = cache_lists(net)
    layers = [layer for member in cached.readout.networks for layer in (*member.body, member.readout)]
    assert any(layer._lists is not None for layer in layers if isinstance(layer, DistLinear))
    with torch.no_grad():
        assert torch.equal(cached(x), net(x))
