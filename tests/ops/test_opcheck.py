"""torch's own examination of every registered operator: schema, fake kernel, autograd registration, tracing."""

import pytest
import torch
from torch.library import opcheck

import linfdist as ld  # noqa: F401  registers the operators
from linfdist.bounds.margin_reach import margin_reach

OPS = torch.ops.linfdist
POWER = torch.tensor(3.5, dtype=torch.float64)
POINT = ([1, 1], [0, 0], [1, 1], 1)
GROUPED = ([2, 1], [1, 1], [1, 2], 2)
PROBLEMS = {
    "linear": lambda: (torch.rand(5, 7, 1, 1), torch.randn(4, 7, 1, 1), POINT),
    "transposed": lambda: (torch.rand(7, 5, 1, 1).transpose(0, 1), torch.randn(4, 7, 1, 1), POINT),
    "convolution": lambda: (torch.rand(2, 4, 6, 7), torch.randn(6, 2, 3, 3), GROUPED),
    "float64": lambda: (torch.rand(2, 4, 6, 7).double(), torch.randn(6, 2, 3, 3).double(), GROUPED),
}
FORWARD = {
    "inf_dist": lambda x, w, g: (x, w, *g),
    "inf_dist_argmax": lambda x, w, g: (x, w, *g),
    "p_dist": lambda x, w, g: (x, w, POWER, *g),
    "box_dist": lambda x, w, g: (x, x.detach() + 1, w, *g),
    "box_dist_argmax": lambda x, w, g: (x, x.detach() + 1, w, *g),
}


# Which gradients are wanted, in turn: each check traces forward and backward, and takes half a second.
NEEDS = dict(zip(PROBLEMS, [(True, True), (False, False), (True, False), (False, True)], strict=True))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", FORWARD)
def test_forward_operators(name, problem):
    x, w, geometry = PROBLEMS[problem]()
    need_x, need_w = NEEDS[problem]
    arguments = FORWARD[name](x.requires_grad_(need_x), w.requires_grad_(need_w), geometry)
    opcheck(getattr(OPS, name).default, arguments)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_backward_operators(problem):
    x, w, geometry = PROBLEMS[problem]()
    need = NEEDS[problem] if any(NEEDS[problem]) else (True, True)
    y, where = OPS.inf_dist_argmax(x, w, *geometry)
    g = torch.randn_like(y)
    opcheck(OPS.inf_dist_backward.default, (g, y, where, list(x.shape), list(w.shape), *geometry, *need))
    box = *(torch.randn_like(y) for _ in range(2)), y, y, where, where, list(x.shape), list(w.shape)
    opcheck(OPS.box_dist_backward.default, (*box, *geometry, need[0], need[1], need[1]))
    opcheck(OPS.p_dist_backward.default, (g, x, w, y, POWER, *geometry, *need))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_of_training(dtype):
    w, half, y = torch.randn(5, 3, dtype=dtype), torch.rand(4, 3, dtype=dtype), torch.tensor([1, 4, 1, 0])
    for need_w, need_half in ((False, False), (True, True), (True, False)):
        opcheck(margin_reach, (w.requires_grad_(need_w), half.requires_grad_(need_half), y))
    opcheck(OPS.margin_reach_gradients.default, (w.detach(), half.detach(), y, torch.randn(4, 5, dtype=dtype)))


def test_every_operator_is_examined_here():
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("linfdist::")]
    others = {"inf_dist_backward", "p_dist_backward", "box_dist_backward", "margin_reach", "margin_reach_gradients"}
    assert {name.split("::")[1].split(".")[0] for name in names} == {*FORWARD, *others}
