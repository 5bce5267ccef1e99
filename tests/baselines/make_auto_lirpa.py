"""Bounds of two small networks by auto_LiRPA, an outside oracle, kept in auto_lirpa.safetensors. It is no dependency.

Made on 2026-11-17 with auto_LiRPA 0.7.1 (github.com/Verified-Intelligence/auto_LiRPA, commit a050a3d) and torch 2.13.0:

    PYTHONPATH=path/of/auto_LiRPA python -m tests.baselines.make_auto_lirpa

from the repository's root, with appdirs, graphviz, tqdm and pyyaml installed beside the package's own requirements.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from linfdist.bounds.interval import ball

from .nets import cnn, mlp, pixels

FILE = Path(__file__).with_name("auto_lirpa.safetensors")
EPS = {"mlp": 0.06, "cnn": 0.02}
THEIR_NAMES = {  # ours by theirs
    "box": ("IBP", "adaptive"),
    "crown-ibp": ("CROWN-IBP", "adaptive"),
    "crown": ("backward", "adaptive"),
    "fast-lin": ("backward", "same-slope"),
}


class Plain(nn.Module):
    """The same network of torch's own modules."""

    def __init__(self, net):
        super().__init__()
        layers = []
        for layer in net.body:
            kind = type(layer).__name__
            if kind == "Conv2d":
                outputs, inputs = layer.weight.shape[:2]
                layers.append(nn.Conv2d(inputs, outputs, layer.kernel, layer.stride, layer.padding))
            elif kind == "Linear":
                layers.append(nn.Linear(layer.inputs, len(layer.weight)))
            else:
                layers += {"ReLU": [nn.ReLU()], "Flatten": [nn.Flatten()]}.get(kind, [])
                continue
            layers[-1].load_state_dict(layer.state_dict())
        last = net.scores.linear
        layers.append(nn.Linear(last.inputs, len(last.weight)))
        layers[-1].load_state_dict(last.state_dict())
        self.layers = nn.Sequential(*layers)
        normalize = next(layer for layer in net.body if type(layer).__name__ == "Normalize")
        self.register_buffer("mean", normalize.mean[None].clone())
        self.register_buffer("std", normalize.std.view(1, 1, 1, 1).clone())

    def forward(self, x):
        return self.layers((x - self.mean) / self.std)


def main():
    from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm

    kept = {}
    for name, net in {"mlp": mlp(11, hidden=(9, 8, 7)), "cnn": cnn(11)}.items():
        x = pixels(net, 3, seed=11)
        box, best = ball(x, torch.tensor(EPS[name]).double()), net(x).argmax(1)
        lower, upper = (net.body.layers[0](side) if name == "cnn" else side for side in box)  # the crop
        differences = torch.eye(net.classes)[best][:, None] - torch.eye(net.classes)[None]  # (B, classes, classes)
        kept |= {f"{name}.net.{key}": value for key, value in net.state_dict().items()}
        kept |= {f"{name}.x": x, f"{name}.best": best}
        for ours, (theirs, slopes) in THEIR_NAMES.items():
            plain = Plain(net).eval()
            bounded = BoundedModule(plain, lower, bound_opts={"activation_bound_option": slopes, "conv_mode": "matrix"})
            images = BoundedTensor((lower + upper) / 2, PerturbationLpNorm(x_L=lower, x_U=upper))
            found, _ = bounded.compute_bounds(x=(images,), C=differences, method=theirs)
            kept[f"{name}.{ours}"] = found.detach().contiguous()
    save_file(kept, FILE)


if __name__ == "__main__":
    main()
