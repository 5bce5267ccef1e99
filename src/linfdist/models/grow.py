"""Larger networks that compute the same at p = inf: starts for the training of deeper and wider ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..nn import Clip, DistLinear, MeanShift, Stack
from .base import PixelNet
from .dist_net import DistNet, DistNetMLP
from .loading import from_config

GROW = ("DistNet", "DistNetMLP", "ConvDistNet", "ConvDistNetMLP")
SMALLEST = 1e-30  # of what is divided by
LEAD = 5.0  # nats, by which images lead at most, on the average, when a head is added: if all are right, more is better
HOW_WEIGHTS_ARE_DRAWN = {"identity_init"}  # the keys of a config that are no part of a network's shape


def grow(
    network: PixelNet,
    config: Mapping[str, Any],
    noise: float = 0.0,
    samples: tuple[Tensor, Tensor] | None = None,
) -> PixelNet:
    """Return the network in the shape of `config`: with a clip or a head, deeper, wider, more neurons per class.

    The result is in eval mode. Every step except a clip (see `clip_pixels`) keeps the function. Raises ValueError if
    the configuration cannot be reached so, and TypeError for networks that cannot grow. noise: see `deepen`, `widen`
    and `multiply_classes`. samples: see `add_head`.
    """
    for name in (network.config.get("class"), config.get("class")):
        if name not in GROW:
            raise TypeError(f"a {name or type(network).__name__} cannot grow: only {', '.join(GROW)} can")
    if network.config["classes"] != config["classes"]:
        raise ValueError(f"it has {network.config['classes']} classes, and cannot become one of {config['classes']}")
    if config.get("clip") is not None and network.config.get("clip") is None:
        network = clip_pixels(network, config["clip"])
    if (network.config["class"], config["class"]) == ("DistNet", "DistNetMLP"):
        if config["depth"] < network.config["depth"]:
            network = replace_last(network, config["head"])
        else:
            network = add_head(network, config["head"], samples)
    factor = _factor(network, config, "width")
    if factor > 1:
        network = widen(network, factor, noise)
    while isinstance(network, DistNet | DistNetMLP) and network.config["depth"] < config["depth"]:
        network = deepen(network, noise)
    factor = _factor(network, config, "per_class")
    if factor > 1:
        network = multiply_classes(network, factor, noise)
    found = network.config
    different = [key for key in config if found.get(key) != config[key] and key not in HOW_WEIGHTS_ARE_DRAWN]
    if different:
        changes = ", ".join(f"{key}: {found.get(key)!r} there, {config[key]!r} here" for key in different)
        raise ValueError(
            f"it has another shape ({changes}), and can only become deeper, become wider or get more neurons per class "
            "by a whole factor, get a head on top of its last layer, or in place of it, or get a clip if it has none"
        )
    return network


def _factor(network: PixelNet, config: Mapping[str, Any], key: str) -> int:
    """Return the whole factor by which a number of the configuration grows; 1 if there is none."""
    now = network.config.get(key, 1)
    wanted = config.get(key, now)
    return wanted // now if wanted % now == 0 else 1


@torch.no_grad()
def clip_pixels(network: PixelNet, clip: Sequence[float]) -> PixelNet:
    """Return the network with a `Clip` in front: the same weights see pixels that are stretched from clip to [0, 1].

    Pixels of 0 and 1 keep their values, so black and white images keep their logits; other images do not.
    """
    clipped = from_config({**network.config, "clip": list(clip)})
    others = [layer for layer in clipped.body if not isinstance(layer, Clip)]
    for new, old in zip(others, network.body, strict=True):
        new.load_state_dict(old.state_dict())
    above = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("body.")}
    clipped.load_state_dict({**clipped.state_dict(), **above})
    return clipped.eval()


@torch.no_grad()
def add_head(network: PixelNet, hidden: int, samples: tuple[Tensor, Tensor] | None = None) -> PixelNet:
    """Return a network with a head that starts as the plain network: the same classes, with the same radii.

    The neurons of the last layer become the first ones of another hidden layer, whose other neurons pass features on.
    Unit c of the head is tanh(s (z_c − m)), with the plain network's logit z_c, and s and m such that tanh is nearly
    straight for all images of [0, 1]; logit c is this unit times a gain. The other units have random weights, and are
    not read out yet. As tanh is monotone, interval bounds of the head prove what the margin proves.

    samples: pixels (B, C, H, W) and labels (B,), some of those to train on. They give the running means of the new
    neurons, which training mode replaces by those of a batch, and the gain with the smallest cross-entropy: with larger
    logits, misclassified images would dominate the loss, and training would first damage the rest. Without samples,
    logits are about those of the plain network.
    """
    if not isinstance(network, DistNet) or network.config["depth"] < 2:
        raise TypeError("only a DistNet with hidden layers can get a head on top of its last layer")
    last, width, classes = network.last, network.config["width"], network.classes
    if len(last.weight) > width or classes > hidden:
        raise ValueError(
            f"a head of {hidden} neurons on layers of {width} cannot start as a plain network with {classes} classes "
            f"and {len(last.weight)} neurons for them: it needs at least as many"
        )
    config = {key: value for key, value in network.config.items() if key != "per_class"}  # of the last layer
    headed = cast(DistNetMLP, from_config({**config, "class": "DistNetMLP", "head": hidden}))
    own = headed.state_dict()
    for name, tensor in network.body.state_dict().items():
        own[f"body.{name}"].copy_(tensor)  # names stay: the new layer is the last one of the body

    _pass_on(headed.body, _range(network))
    added, shift = _last_layer(headed.body)
    neurons = slice(len(last.weight))
    added.weight[neurons] = last.weight
    whole = network.all_images
    x = (whole.lower + whole.upper) / 2 if samples is None else samples[0]
    with network.in_eval_mode():
        logits, lower, upper = network(x), *network.forward_box(whole)
        means = added(network.features(x)).mean(0)[neurons]
    if shift is not None:
        shift.running_mean[neurons] = means  # features are distances minus these
        offsets = means + last.bias
    else:
        added.bias[neurons] = last.bias  # type: ignore[index]  # it has one, as there is no shift
        offsets = torch.zeros_like(last.bias)

    highest, lowest = float(upper.max()), float(lower.min())
    middle, slope = (highest + lowest) / 2, 2 / max(highest - lowest, SMALLEST)
    first, second = headed.head.hidden, headed.head.output
    first.weight[:classes].zero_()
    by_class = (classes, len(last.weight) // classes)
    mean_of_class = torch.eye(classes).repeat_interleave(by_class[1], 1) / by_class[1]  # (classes, neurons)
    first.weight[:classes, neurons] = -slope * math.sqrt(first.in_features) * mean_of_class
    first.bias[:classes] = -slope * (offsets.unflatten(0, by_class).mean(1) + middle)
    gain = 1.0 if samples is None else _calibrated(logits, samples[1])
    second.weight.zero_()
    second.weight[:, :classes].fill_diagonal_(gain / slope * math.sqrt(second.in_features))
    return headed.eval()


def _calibrated(logits: Tensor, labels: Tensor) -> float:
    """Find the factor of the logits with the least cross-entropy, of those whose mean margin is 0.01 to `LEAD`."""
    best = logits.topk(2, 1).values
    lead = float((best[:, 0] - best[:, 1]).mean())
    if not SMALLEST < lead < math.inf:
        return 1.0  # there is nothing to tell classes apart by
    factors = torch.logspace(-2, math.log10(LEAD), 55) / lead
    losses = torch.stack([cross_entropy(factor * logits, labels) for factor in factors])
    return float(factors[losses.argmin()])


@torch.no_grad()
def replace_last(network: PixelNet, hidden: int) -> PixelNet:
    """Return a network with the hidden layers, and so the features, of a plain one, below a new random head."""
    if not isinstance(network, DistNet) or network.config["depth"] < 2:
        raise TypeError("only a DistNet with hidden layers can get a head in place of its last layer")
    config = {key: value for key, value in network.config.items() if key != "per_class"}  # of the last layer
    headed = from_config({**config, "class": "DistNetMLP", "depth": config["depth"] - 1, "head": hidden})
    headed.body.load_state_dict(network.body.state_dict())
    return headed


@torch.no_grad()
def deepen(network: PixelNet, noise: float = 0.0) -> PixelNet:
    """Return the same network with one more hidden layer, the identity, after the others; fully connected only.

    With w[k, k] = -C and 0 elsewhere, max_i |x_i - w[k, i]| = x_k + C for all x with |x_i| <= C/2, and the shift takes
    C away. The box of the features shows that they lie in such a range for every image of [0, 1]. Only the rounding of
    x_k + C, half an ulp of it, moves the features. noise: the standard deviation of the weights that are 0 otherwise,
    for a start like `identity_init`; C is then larger by the largest of them.
    """
    if not isinstance(network, DistNet | DistNetMLP):
        raise TypeError(f"only DistNet and DistNetMLP can be deepened, not {type(network).__name__}")
    config = network.config
    if isinstance(network, DistNet) and config["depth"] < 2:
        raise ValueError("a DistNet of depth 1 has no hidden layer to follow: build a new one of depth 2")
    deeper = from_config({**config, "depth": config["depth"] + 1})
    own = deeper.state_dict()
    for name, tensor in network.state_dict().items():
        own[name].copy_(tensor)  # names stay: the new layer is the last one of the body
    _pass_on(deeper.body, _range(network), noise)
    return deeper


@torch.no_grad()
def widen(network: PixelNet, factor: int, noise: float = 0.0) -> PixelNet:
    """Return the same network with `factor` copies of every hidden neuron or channel, k at k, width + k, ...

    A distance does not change when coordinates are repeated, so the features and the logits of a plain net keep their
    bits. A head's sums are split over the copies, and rounded anew. At finite p every distance grows by factor^(1/p),
    and copies stay identical in training unless noise separates them. noise: the standard deviation of what is added to
    the weights of all copies except the first, which changes the network slightly.
    """
    if factor < 1:
        raise ValueError(f"factor = {factor}: must be at least 1")
    wider = from_config({**network.config, "width": factor * network.config["width"]})
    own = wider.state_dict()
    for name, tensor in network.state_dict().items():
        times = [new // old for new, old in zip(own[name].shape, tensor.shape, strict=True)]
        own[name].copy_(tensor.repeat(times))  # what has grown is tiled
        if name == "head.hidden.weight":
            own[name].div_(math.sqrt(factor))  # it is divided by the root of its inputs, and adds up the copies
        elif noise and name.endswith("weight") and times[0] > 1:
            copies = own[name][len(tensor) :]
            copies.add_(torch.randn_like(copies), alpha=noise)
    return wider


@torch.no_grad()
def multiply_classes(network: PixelNet, factor: int, noise: float = 0.0) -> PixelNet:
    """Return the same network with `factor` copies of every last neuron, averaged by class.

    A mean does not change when all its numbers are repeated, so the logits are the same at every p, up to the rounding
    of longer sums. Copies stay identical in training unless noise separates them. noise: the standard deviation of what
    is added to the weights of all copies except the first, which changes the network slightly.
    """
    if not isinstance(network, DistNet):
        raise TypeError(f"only a DistNet has neurons for each class in its last layer, not {type(network).__name__}")
    if factor < 1:
        raise ValueError(f"factor = {factor}: must be at least 1")
    before = network.config["per_class"]
    larger = from_config({**network.config, "per_class": factor * before})
    own = larger.state_dict()
    for name, tensor in network.state_dict().items():
        if not name.startswith("last."):
            own[name].copy_(tensor)
            continue
        classes = tensor.unflatten(0, (network.classes, before))  # (classes, per_class, ...)
        copies = classes.repeat(1, factor, *[1] * (tensor.dim() - 1))
        if noise and name == "last.weight":
            copies[:, before:] += noise * torch.randn_like(copies[:, before:])
        own[name].copy_(copies.flatten(0, 1))
    return larger


def _pass_on(body: Stack, reach: float, noise: float = 0.0) -> None:
    """Make the identity of the body's last dist layer, for inputs with |x| <= reach: see `deepen`."""
    layer, shift = _last_layer(body)
    layer.weight.normal_(0, noise) if noise else layer.weight.zero_()
    far = float(math.ceil(2 * reach + float(layer.weight.abs().max())))  # whole, hence exact
    layer.weight.fill_diagonal_(-far)
    if shift is not None:
        shift.running_mean.fill_(far)
    elif layer.bias is not None:
        layer.bias.fill_(-far)


def _last_layer(body: Stack) -> tuple[DistLinear, MeanShift | None]:
    """Return the last dist layer of a body, and the shift after it, if there is one."""
    layers = list(body)
    shift = layers[-1] if isinstance(layers[-1], MeanShift) else None
    return [layer for layer in layers if isinstance(layer, DistLinear)][-1], shift


def _range(network: PixelNet) -> float:
    """Bound the largest |feature| over all images of [0, 1]."""
    with network.in_eval_mode():
        box = network.features_box(network.all_images)
    return max(float(side.abs().max()) for side in box)
