"""Two real processes do what one does with their batches together."""

from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from linfdist.models import DistNetMLP
from linfdist.nn import MeanShift

SIZES = (5, 3)  # local batches: unequal
P = 8.0


def problem(shape):
    """Features of all processes, and the gradient that arrives."""
    generator = torch.Generator().manual_seed(1)
    x, grad = torch.randn(2, sum(SIZES), *shape, generator=generator, dtype=torch.float64)
    return x, grad


def shift(layer, call, x, grad):
    """Output, gradient and running mean of two steps."""
    x = x.clone().requires_grad_()
    for _ in range(2):
        y = call(x)
    y.backward(grad)
    return [y.detach(), x.grad, layer.running_mean.clone()]


def make_net():
    torch.manual_seed(2)
    return DistNetMLP((1, 4, 4), 3, 20, 3, [0.5], 0.3, head=6).double()


def train(net, call, x, scale):
    """Three steps on fixed images; `scale` makes the mean over processes the mean over all images."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        (call(x, P).square().sum() * scale).backward()
        optimiser.step()
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def worker(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        mine = slice(0, SIZES[0]) if rank == 0 else slice(SIZES[0], None)
        result = {}
        for shape in [(4,), (3, 2, 5)]:
            x, grad = problem(shape)
            layer = MeanShift(shape[0]).double()
            result[f"eager {shape}"] = shift(layer, layer, x[mine], grad[mine])
        layer = MeanShift(shape[0]).double()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        result[f"compiled {shape}"] = shift(layer, compiled, x[mine], grad[mine])
        net = make_net()
        parallel = DistributedDataParallel(net)
        images = problem((1, 4, 4))[0].sigmoid()
        result["net"] = train(net, parallel, images[mine], len(SIZES) / sum(SIZES))
        torch.save(result, Path(folder) / f"{rank}.pt")
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(("mode", "shape"), [("eager", (4,)), ("eager", (3, 2, 5)), ("compiled", (3, 2, 5))])
def test_mean_shift(results, mode, shape):
    x, grad = problem(shape)
    layer = MeanShift(shape[0]).double()
    y, dx, running_mean = shift(layer, layer, x, grad)
    (y0, dx0, mean0), (y1, dx1, mean1) = (result[f"{mode} {shape}"] for result in results)
    torch.testing.assert_close(torch.cat([y0, y1]), y, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.cat([dx0, dx1]), dx, rtol=0, atol=1e-12)
    torch.testing.assert_close(mean0, running_mean, rtol=0, atol=1e-12)
    assert torch.equal(mean0, mean1)


def test_training_a_network(results):
    net = make_net()
    expected = train(net, net, problem((1, 4, 4))[0].sigmoid(), 1 / sum(SIZES))
    assert not torch.equal(expected["body.layers.2.weight"], make_net().state_dict()["body.layers.2.weight"])
    for result in results:
        torch.testing.assert_close(result["net"], expected, rtol=0, atol=1e-12)
