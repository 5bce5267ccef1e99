"""What is left out is left out for one call alone: weights and inputs that change in any way are seen by the next."""

import math
import threading

import pytest
import torch
from torch import Tensor

import linfdist as ld


def truth(x: Tensor, w: Tensor) -> Tensor:
    return (x[:, None] - w).abs().amax(2)


@pytest.fixture
def problem() -> tuple[Tensor, Tensor]:
    """As on trained networks: few weights matter, and which ones changes with every large weight that comes or goes."""
    torch.manual_seed(0)
    return torch.rand(67, 131), torch.randn(37, 131)


def in_place(w: Tensor) -> None:
    with torch.no_grad():
        w[3, 5] = 9.0


def through_data(w: Tensor) -> None:
    w.data[3, 5] = 9.0


def through_numpy(w: Tensor) -> None:
    w.detach().numpy()[3, 5] = 9.0


def by_an_optimiser(w: Tensor) -> None:
    w.requires_grad_().grad = torch.randn_like(w)
    torch.optim.SGD([w], lr=2.0).step()
    w.requires_grad_(False)


def by_load_state_dict(w: Tensor) -> None:
    layer = torch.nn.Linear(131, 37, bias=False)
    layer.weight.data = w
    layer.load_state_dict({"weight": 3 * torch.randn(37, 131)})


@pytest.mark.parametrize("change", [in_place, through_data, through_numpy, by_an_optimiser, by_load_state_dict])
@pytest.mark.parametrize("inference", [False, True])
def test_changed_weights_are_seen(problem, change, inference):
    x, w = problem
    for _ in range(2):
        assert torch.equal(ld.dist(x, w), truth(x, w))
    before = w.data_ptr(), ld.dist(x, w)
    change(w)
    assert w.data_ptr() == before[0]
    with torch.inference_mode(inference):
        after = ld.dist(x, w)
    assert torch.equal(after, truth(x, w))
    assert not torch.equal(after, before[1])


def test_memory_that_holds_other_weights_now(problem):
    x, w = problem
    memory = torch.empty(37 * 131)
    for k in range(5):
        reused = memory.view(37, 131)
        reused.copy_(w.roll(k, 1) * (k + 1))
        assert torch.equal(ld.dist(x, reused), truth(x, reused))


def test_inputs_that_leave_the_ranges_of_the_last_batch(problem):
    x, w = problem
    for scale in (0.1, 1.0, 5.0, 0.01):
        assert torch.equal(ld.dist(scale * x - scale, w), truth(scale * x - scale, w))


def test_two_threads_with_weights_of_their_own(problem):
    x, w = problem
    wrong = []

    def work(k: int) -> None:
        own = w.clone()
        for turn in range(20):
            own.data.copy_(w.roll(turn + k, 1))
            if not torch.equal(ld.dist(x, own), truth(x, own)):
                wrong.append((k, turn))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inputs", [70, 401])
def test_the_first_of_many_that_are_equal(dtype, inputs):
    """Whole numbers: the maximum is attained on both sides, x - w and w - x, by weights that are all in the lists."""
    torch.manual_seed(1)
    x = torch.randint(0, 2, (67, inputs)).to(dtype).requires_grad_()
    w = (
        torch.randint(-1, 3, (19, inputs)) + 4 * (torch.rand(19, inputs) < 0.05) - 4 * (torch.rand(19, inputs) < 0.05)
    ).to(dtype)
    difference = x.detach()[:, None] - w
    y = difference.abs().amax(2)
    first = (difference.abs() == y[..., None]).int().argmax(2, keepdim=True)  # of equals, the first
    slope = torch.zeros_like(difference).scatter_(2, first, difference.sign().gather(2, first))
    got = ld.dist(x, w, math.inf)
    weights = torch.randint(1, 9, got.shape).to(dtype)
    got.backward(weights)
    assert torch.equal(got, y)
    assert torch.equal(x.grad, (slope * weights[..., None]).sum(1))


def test_one_neuron_that_needs_all_its_weights(problem):
    """Asked are a few neurons only: those that were not asked may need everything, or nothing."""
    x, w = problem
    w = w.repeat(4, 1)
    w[1] = 0.5
    w[2::3] = 0.0
    assert torch.equal(ld.dist(x, w), truth(x, w))
    w[:] = 0.5
    w[1] = torch.randn(131)
    assert torch.equal(ld.dist(x, w), truth(x, w))
