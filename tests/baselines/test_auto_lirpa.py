"""An outside oracle: auto_LiRPA's bounds of the same networks are ours, but for the slack that a proof needs."""

import pytest
import torch
from safetensors.torch import load_file

from linfdist.bounds import LinearBounds, margins
from linfdist.bounds.interval import ball

from .make_auto_lirpa import EPS, FILE, THEIR_NAMES
from .nets import cnn, mlp

WAYS = {"crown-ibp": (False, False), "crown": (True, False), "fast-lin": (True, True)}


@pytest.mark.parametrize("method", THEIR_NAMES)
@pytest.mark.parametrize("name", EPS)
@torch.no_grad()
def test_bounds_are_those_of_auto_lirpa(name, method):
    kept = load_file(FILE)
    net = mlp(0, hidden=(9, 8, 7)) if name == "mlp" else cnn(0)
    net.load_state_dict({key.removeprefix(f"{name}.net."): kept[key] for key in kept if key.startswith(f"{name}.net.")})
    x, best, theirs = kept[f"{name}.x"], kept[f"{name}.best"], kept[f"{name}.{method}"]
    box = ball(x, torch.tensor(EPS[name]).double())
    if method == "box":
        ours = margins(net.readout)(net.features_box(box), best, 0.0).lower
    else:
        ours = LinearBounds(net, *WAYS[method]).margins(box, best)
    others = ours < torch.inf
    assert others.sum() == len(x) * (net.classes - 1)
    better = (ours - theirs)[others]
    assert (better >= -3e-4).all()
    if method in ("box", "crown-ibp"):
        assert (better <= 1e-5).all()  # theirs have no slack for rounding, and are float32
    else:
        assert (
            better <= 1e-3
        ).all()  # ours cut the boxes of neurons down to intervals as well, where these are smaller
