"""What is left out never matters, on no image of the domain."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist import exact
from linfdist.exact.bounds import Entries, prune, winners
from linfdist.exact.freeze import to_grid
from linfdist.exact.stem import Stem

from .nets import dense_logits, images, random_net


def layer_of(seed: int, size: int, span: int):
    """Ranges and weights (8, 10) of small integers: many ties, some constant inputs."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.randint(-size, size + 1, (10,), generator=generator)
    high = low + torch.randint(0, span + 1, (10,), generator=generator)
    return low, high, torch.randint(-2 * size, 2 * size + 1, (8, 10), generator=generator)


def kept_only(entries: list[Entries], x: torch.Tensor) -> torch.Tensor:
    for layer in entries:
        x = (x[:, None] - layer.weight).abs().masked_fill(~layer.mask, -1).amax(2) + layer.bias
    return -x


@given(seed=st.integers(0, 10**6), size=st.integers(0, 30), span=st.integers(0, 30))
def test_no_dropped_entry_wins_on_its_best_input(seed, size, span):
    """For each dropped entry the input that favours it most: its own distance largest, all others smallest."""
    low, high, weight = layer_of(seed, size, span)
    mask = winners(low, high, weight)
    assert mask.any(1).all()
    for o, i in (~mask).nonzero().tolist():
        x = torch.minimum(torch.maximum(weight[o], low), high)  # nearest to every weight
        x[i] = low[i] if (low[i] - weight[o, i]).abs() > (high[i] - weight[o, i]).abs() else high[i]
        distance = (x - weight[o]).abs()
        assert distance[i] <= distance[mask[o]].max()


@given(seed=st.integers(0, 10**6), size=st.integers(1, 30), span=st.integers(0, 30))
def test_kept_entries_are_needed(seed, size, span):
    """An entry stays only if it wins strictly somewhere, or holds the floor: pruning is as strong as it can be."""
    low, high, weight = layer_of(seed, size, span)
    mask = winners(low, high, weight)
    for o in range(len(weight)):
        needed = 0
        for i in mask[o].nonzero().flatten().tolist():
            x = torch.minimum(torch.maximum(weight[o], low), high)
            x[i] = low[i] if (low[i] - weight[o, i]).abs() > (high[i] - weight[o, i]).abs() else high[i]
            distance = (x - weight[o]).abs()
            others = mask[o].clone()
            others[i] = False
            needed += not others.any() or bool(distance[i] > distance[others].max())
        assert needed >= int(mask[o].sum()) - 1  # all but the holder of the floor


@given(seed=st.integers(0, 10**6), width=st.integers(1, 12), depth=st.integers(1, 4), k=st.integers(0, 4))
def test_networks_keep_every_bit(seed, width, depth, k):
    net = random_net(seed, width=width, depth=depth)
    frozen = exact.freeze(net, k=k)
    x = images(20, seed=seed)
    rounded, _ = to_grid(net, Stem(k))
    assert torch.equal(frozen(x).long(), dense_logits(rounded, Stem(k)(x).long()))


@given(seed=st.integers(0, 10**6), bits=st.integers(0, 8))
def test_networks_keep_every_bit_on_small_domains(seed, bits):
    """Down to a single image: then everything is constant."""
    generator = torch.Generator().manual_seed(seed)
    lower = torch.randint(0, 256 - 2**bits + 1, (1, 3, 3), generator=generator)
    reach = torch.randint(0, 2**bits, (1, 3, 3), generator=generator)
    upper = (lower + reach).clamp_max(255)
    net = random_net(seed, depth=4)
    frozen = exact.freeze(net, k=3, domain=(lower.to(torch.uint8), upper.to(torch.uint8)))
    share = torch.rand(20, 1, 3, 3, generator=generator)
    x = (lower + (share * (upper - lower + 1)).floor()).clamp_max(upper).to(torch.uint8)
    x = torch.cat([x, lower.to(torch.uint8)[None], upper.to(torch.uint8)[None]])
    rounded, _ = to_grid(net, Stem(3))
    assert torch.equal(frozen(x).long(), dense_logits(rounded, Stem(3)(x).long()))
    if bits == 0:
        assert [len(layer.bias) for layer in frozen.layers] == [1, 1, 1, 4]  # one constant stands for all


def test_attacked_images(trained):
    """Steps along the gradient lead to where decisions are close."""
    x = (trained.images[:100].float() / 255).requires_grad_()
    loss = torch.nn.functional.cross_entropy(trained.network(x, 8.0), trained.labels[:100])
    (gradient,) = torch.autograd.grad(loss, x)
    rounded, _ = to_grid(trained.network, trained.frozen.stem)
    for levels in (1, 10, 60, 255):
        attacked = (trained.images[:100].long() + levels * gradient.sign().long()).clamp(0, 255).to(torch.uint8)
        whole = dense_logits(rounded, Stem(trained.frozen.k)(attacked).long())
        assert torch.equal(trained.frozen(attacked).long(), whole)
    assert (trained.frozen(attacked).argmax(1) != trained.labels[:100]).any()  # the last one did attack


def test_much_is_pruned(trained):
    facts = trained.frozen.facts
    assert facts["kept"] == sum(int(layer.mask.sum()) for layer in trained.frozen.layers)
    assert facts["kept"] < 0.3 * facts["weights"] == 0.3 * (64 * 64 + 64 * 64 + 64 * 10)


def test_dead_neurons_go_and_take_others_with_them():
    """Layer 3 looks at neuron 0 of layer 2 alone, which looks at neuron 1 of layer 1 alone."""
    far, near = 10**4, 0
    first = torch.tensor([[near, near], [far, near], [near, far]])
    second = torch.tensor([[near, 10 * far, near], [near, near, far]])
    third = torch.tensor([[100 * far, near], [-100 * far, near]])
    layers = [(weight, torch.zeros(len(weight), dtype=torch.int64)) for weight in (first, second, third)]
    low, high = torch.zeros(2, dtype=torch.int64), torch.full((2,), 255)
    pruned = prune(layers, low, high)
    assert [tuple(layer.weight.shape) for layer in pruned] == [(1, 2), (1, 1), (2, 1)]
    x = torch.cartesian_prod(torch.arange(0, 256, 17), torch.arange(0, 256, 17))
    assert torch.equal(kept_only(pruned, x), dense_logits(layers, x))


@given(seed=st.integers(0, 10**6))
def test_entries_are_in_the_order_of_their_limits(seed):
    for layer in exact.freeze(random_net(seed)).layers:
        start, index, weight, limit = layer.entries
        for o in range(len(layer.bias)):
            here = slice(int(start[o]), int(start[o + 1]))
            assert sorted(index[here].tolist()) == layer.mask[o].nonzero().flatten().tolist()
            assert torch.equal(layer.weight[o, index[here].long()], weight[here])
            assert (limit[here].diff() <= 0).all()
            own = torch.maximum(
                (layer.low[index[here].long()] - weight[here]).abs(),
                (layer.high[index[here].long()] - weight[here]).abs(),
            )
            assert torch.equal(limit[here].long(), own)


def test_a_domain_prunes_more_and_is_kept(trained):
    """The digits never use all of the first and last column."""
    lower, upper = torch.zeros(1, 8, 8, dtype=torch.uint8), torch.full((1, 8, 8), 255, dtype=torch.uint8)
    upper[:, :, 0] = 20
    upper[:, :2, 7] = 0
    inside = (trained.images <= upper).flatten(1).all(1)
    narrow = exact.freeze(trained.network, k=trained.frozen.k, domain=(lower, upper))
    assert narrow.facts["kept"] < trained.frozen.facts["kept"]
    assert torch.equal(narrow(trained.images[inside]), trained.frozen(trained.images[inside]))
    outside = trained.images[:1].clone()
    outside[0, 0, 1, 7] = 3
    with pytest.raises(ValueError, match=r"outside the domain .* channel 0, row 1, column 7 is 3, allowed are 0 ... 0"):
        narrow(outside)
    with pytest.raises(ValueError, match="layer 0 was made for inputs of other ranges"):
        replace(narrow, upper=trained.frozen.upper)  # the pruned layers say nothing about other images


@pytest.mark.parametrize(
    ("lower", "upper", "complaint"),
    [
        (torch.zeros(1, 3, 3), torch.ones(1, 3, 3), "least image of the domain must be uint8 .* torch.float32"),
        (torch.zeros(3, 3, dtype=torch.uint8), torch.zeros(1, 3, 3, dtype=torch.uint8), r"got torch.uint8 \(3, 3\)"),
        (torch.ones(1, 3, 3, dtype=torch.uint8), torch.zeros(1, 3, 3, dtype=torch.uint8), "domain is empty"),
    ],
)
def test_domains_are_checked(lower, upper, complaint):
    with pytest.raises(ValueError, match=complaint):
        exact.freeze(random_net(0), domain=(lower, upper))


@given(seed=st.integers(0, 10**6), fixed=st.integers(0, 4))
def test_constants_become_one(seed, fixed):
    """Inputs 0 ... fixed never change; biases make constant neurons negative as well."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randint(-40, 41, shape, generator=generator)

    layers = [(draw(6, 5), draw(6)), (draw(6, 6), draw(6)), (draw(3, 6), draw(3))]
    low = draw(5)
    high = low + torch.where(torch.arange(5) <= fixed, 0, draw(5).abs())
    pruned = prune(layers, low, high)
    x = torch.minimum(low + draw(50, 5).abs(), high)
    assert torch.equal(kept_only(pruned, x), dense_logits(layers, x))
    if fixed == 4:
        assert [len(layer.bias) for layer in pruned] == [1, 1, 3]
