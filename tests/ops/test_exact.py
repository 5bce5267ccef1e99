"""Integer layers: every kernel against the definition, written out here, to the last bit."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist.ops import exact
from linfdist.ops.backends import KERNELS, native

from .processes import python

TYPES = [torch.int16, torch.int32]
# Around 7 images (vectors along the inputs), vectors of 8 to 32 lanes, panels of 32, 64 and 128, slices of 64 inputs.
SHAPES = [
    (1, 1, 1), (1, 130, 3), (2, 65, 17), (7, 67, 5), (8, 64, 16), (15, 3, 31), (17, 131, 2), (31, 63, 19), (33, 1, 40),
    (64, 129, 7), (65, 37, 33), (127, 64, 3), (128, 5, 1), (129, 66, 18), (263, 71, 37),
]  # fmt: skip

NO_NATIVE = "; ".join(native.exact_unsupported(torch.empty(0)))
needs_native = pytest.mark.skipif(bool(NO_NATIVE), reason=f"native: {NO_NATIVE}")


@pytest.fixture(params=[*KERNELS, "reference"])
def backend(request, monkeypatch):
    """Every implementation in turn, forced: the kernels that there are, and plain torch."""
    reasons = KERNELS[request.param].exact_unsupported(torch.empty(0)) if request.param in KERNELS else []
    if reasons:
        pytest.skip("; ".join(reasons))
    monkeypatch.setenv("LINFDIST_BACKEND", request.param)
    return request.param


def threads_of(backend):
    """Numbers of threads to try: the programs of Triton do not see the threads of torch."""
    return (1,) if backend == "triton" else (1, 3)


def definition(x, w, b, mask=None):
    distance = (x.long() - w.long()[:, :, None]).abs()  # (O, I, B)
    if mask is not None:
        distance = distance.masked_fill(~mask[:, :, None], -1)
    return (distance.amax(1) + b.long()[:, None]).to(x.dtype)


def problem(batch, inputs, neurons, dtype, size=None, seed=0):
    """Numbers of both signs whose differences just fit, and biases that bring some outputs down to negative ones."""
    size = size or torch.iinfo(dtype).max // 2
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-size, size + 1, (inputs, batch), generator=generator).to(dtype)
    w = torch.randint(-size, size + 1, (neurons, inputs), generator=generator).to(dtype)
    b = -torch.randint(0, 2 * size, (neurons,), generator=generator)
    return x, w, b.to(torch.int32)


def entries(w, mask):
    """(start, index, weight): the masked weights as lists, one neuron after the other."""
    start = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)])
    return start, mask.nonzero()[:, 1].int(), w[mask]


def some(neurons, inputs, seed=1):
    """A mask with at least one entry for each neuron; the first neuron keeps all, the last exactly one."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(neurons, inputs, generator=generator) < 0.3
    mask[torch.arange(neurons), torch.randint(inputs, (neurons,), generator=generator)] = True
    mask[0] = True
    if neurons > 1:
        mask[-1] = torch.arange(inputs) == inputs - 1
    return mask


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dense(backend, shape, dtype):
    x, w, b = problem(*shape, dtype)
    y = exact.dense(x, w, b)
    assert y.dtype == dtype
    assert torch.equal(y, definition(x, w, b))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("span", [0, 1, 2, 40])
@pytest.mark.parametrize("shape", [(255, 70, 9), (256, 700, 33), (331, 257, 5), (1027, 37, 64)], ids=str)
def test_dense_leaves_out_what_cannot_win_in_this_batch(backend, shape, span, dtype):
    """Many images in narrow ranges, at whose ends weights lie too: ties, distances of 0, constant inputs."""
    x, w, b = problem(*shape, dtype, size=30)
    x = x // 30 * span
    w[:, ::3] = x[::3, 0]
    w[0] = x[:, 1]
    assert torch.equal(exact.dense(x, w, b), definition(x, w, b))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_side_each(backend, shape, dtype):
    """Ranges on either side of the weights, around them and of one point; images at the corners and inside."""
    x, w, b = problem(*shape, dtype, size=torch.iinfo(dtype).max // 4)
    low = x.long().amin(1)
    high = torch.where(torch.arange(len(x)) % 5 == 0, low, x.long().amax(1))
    x = x.clamp(max=high[:, None].to(dtype))
    x[:, ::3] = torch.where(torch.arange(len(x)) % 2 == 0, low, high)[:, None].to(dtype)
    w[:, ::2] *= 2
    mask = some(*w.shape)
    start, index, weight = entries(w, mask)
    sides = exact.one_sided(start, index, weight, low, high)
    assert torch.equal(exact.sided(x, *sides, b), definition(x, w, b, mask))


@given(st.data())
def test_one_side_each_is_the_same_function(data):
    """Small whole numbers, so that ties of all kinds are common; every corner of the box, and its middle."""
    number = st.integers(-3, 3)
    inputs, neurons = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    low = torch.tensor(data.draw(st.lists(number, min_size=inputs, max_size=inputs)))
    high = low + torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=inputs, max_size=inputs)))
    w = torch.tensor(data.draw(st.lists(number, min_size=inputs * neurons, max_size=inputs * neurons))).view(
        neurons, -1
    )
    points = torch.cartesian_prod(*(torch.arange(int(a), int(z) + 1) for a, z in zip(low, high, strict=True)))
    x = points.view(-1, inputs).T.contiguous().short()  # all of the box
    start = torch.arange(neurons + 1) * inputs
    index = torch.arange(inputs, dtype=torch.int32).repeat(neurons)
    sides = exact.one_sided(start, index, w.flatten().short(), low, high)
    b = torch.zeros(neurons, dtype=torch.int32)
    assert torch.equal(exact.sided(x, *sides, b), definition(x, w.short(), b))


def test_surely_one_sided_entries_are_not_doubled():
    """Pixels of [0, 100] and weights outside it: one side each."""
    start, index = torch.tensor([0, 3, 4]), torch.tensor([0, 1, 2, 1], dtype=torch.int32)
    weight = torch.tensor([-50, 160, -55, 200], dtype=torch.int16)
    sides = exact.one_sided(start, index, weight, torch.zeros(3), torch.full((3,), 100))
    assert sides.neuron.tolist() == [1, 0]
    assert sides.start.tolist() == [0, 1, 4]
    assert sides.middle.tolist() == [0, 3]
    assert sides.inputs.tolist() == [1, 0, 2, 1]
    assert sides.weight.tolist() == [200, -50, -55, 160]


def test_runs_keep_to_slices_of_the_inputs():
    """Each run looks at inputs that fit L1 together, and those that follow each other at the same ones."""
    w = torch.randint(200, 300, (30, 1000), dtype=torch.int16)
    start, index, weight = entries(w, some(30, 1000))
    sides = exact.one_sided(start, index, weight, torch.zeros(1000), torch.full((1000,), 100))
    parts = [sides.inputs[a:z] for a, z in pairwise(sides.start.tolist())]
    first, last = (torch.tensor([int(end(part)) for part in parts]) for end in (torch.min, torch.max))
    assert int((last - first).max()) < exact.SLICE
    part = first * -(-1000 // exact.SLICE) // 1000
    assert (part.diff() >= 0).all()
    assert len(part) > 100


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("batch", [0, 1, 5, 63, 64, 65, 200, 256, 1300])
@pytest.mark.parametrize("span", [256, 30, 2])
def test_a_whole_network(backend, dtype, batch, span):
    """Layers one after the other, growing and shrinking, by the definition and at once.

    Few values a pixel: the first layer is narrowed down to these images, anew every 1024 of them.
    """
    sizes, k = [190, 7, 33, 3], 3
    batch = min(batch, 70) if backend == "triton" else batch  # more are more programs of the same kind
    images = torch.randint(257 - span, (sizes[0],)) + torch.randint(span, (batch, sizes[0]))
    images[1030:] = images[1030:].flip(0).flip(1)  # pixels of other ranges than before
    images = images.to(torch.uint8)
    low, high = torch.zeros(sizes[0]).long(), torch.full((sizes[0],), 255 << k)
    x, layers = (images.T.int() << k).to(dtype), []
    for inputs, neurons in pairwise(sizes):
        w = torch.randint(-3000, 3000, (neurons, inputs)).to(dtype)
        b = torch.randint(-3000, 0, (neurons,), dtype=torch.int32)
        mask = some(neurons, inputs)
        start, index, weight = entries(w, mask)
        layers.append((exact.one_sided(start, index, weight, low, high), b))
        x = definition(x, w, b, mask) if batch else x[:1].expand(neurons, 0)
        low, high = b.long(), b + torch.full((neurons,), 3001) + int(torch.maximum(high.max(), -low.min()))
    chain = exact.chain(sizes[0], layers)
    for threads in threads_of(backend):
        torch.set_num_threads(threads)
        assert torch.equal(exact.network(images, k, chain), -x.T.int())
        shifted = (images.long() << k).to(dtype)
        assert torch.equal(exact.network(shifted, 0, chain), -x.T.int())


@pytest.mark.parametrize("batch", [0, 1, 31, 64, 127, 128, 129, 1100])
@pytest.mark.parametrize("span", [256, 30, 2])
def test_a_whole_network_of_bytes(backend, batch, span):
    """max(0, x - w, w - x) with everything in 0 ... 255, at both ends too."""
    sizes = [187, 9, 33, 3]  # images of no whole number of eight bytes
    images = torch.randint(257 - span, (sizes[0],)) + torch.randint(span, (batch, sizes[0]))
    images[: batch // 3] = 255 * torch.randint(2, (batch // 3, sizes[0]))
    x, layers = images.T, []
    for inputs, neurons in pairwise(sizes):
        runs = torch.randperm(neurons)
        counts = torch.randint(1, inputs + 1, (neurons,))
        start = torch.cat([torch.zeros(1).long(), counts.cumsum(0)])
        middle = start[:-1] + (torch.rand(neurons) * (counts + 1)).long()
        index, weight = torch.randint(inputs, (int(start[-1]),)), torch.randint(256, (int(start[-1]),))
        sides = exact.Sides(runs.int(), start, middle, index.int(), weight.to(torch.uint8))
        layers.append((sides, torch.zeros(neurons, dtype=torch.int32)))
        y = torch.zeros(neurons, batch, dtype=torch.int64)
        for run, o in enumerate(runs.tolist()):
            for entry in range(int(start[run]), int(start[run + 1])):
                d = x[index[entry]] - weight[entry]
                y[o] = torch.maximum(y[o], d if entry < middle[run] else -d)
        x = y
    chain = exact.chain(sizes[0], layers)
    for threads in threads_of(backend):
        torch.set_num_threads(threads)
        assert torch.equal(exact.network(images.to(torch.uint8), 0, chain), -x.T.int())


def test_bytes_that_do_not_fit_are_refused(backend):
    entry = exact.Sides(
        torch.zeros(1, dtype=torch.int32), torch.tensor([0, 1]), torch.tensor([1]), torch.zeros(1, dtype=torch.int32),
        torch.zeros(1, dtype=torch.uint8),
    )  # fmt: skip
    pixel = torch.tensor([[200]], dtype=torch.uint8)
    with pytest.raises(ValueError, match="layers of bytes have no biases"):
        exact.network(pixel, 0, exact.chain(1, [(entry, torch.ones(1, dtype=torch.int32))]))
    if backend == "reference":
        with pytest.raises(OverflowError, match="outputs reach 400"):
            exact.network(pixel, 1, exact.chain(1, [(entry, torch.zeros(1, dtype=torch.int32))]))


def test_a_chain_must_fit_and_so_must_the_images(backend):
    start, index = torch.tensor([0, 1]), torch.tensor([2], dtype=torch.int32)
    weight, b = torch.tensor([-5], dtype=torch.int16), torch.zeros(1, dtype=torch.int32)
    layer = (exact.one_sided(start, index, weight, torch.zeros(3), torch.full((3,), 9)), b)
    with pytest.raises(ValueError, match=r"inputs must lie in 0 \.\.\. 0, got 2 \.\.\. 2"):
        exact.chain(3, [layer, layer])
    chain = exact.chain(3, [layer])
    assert exact.network(torch.tensor([[1, 2, 3]], dtype=torch.uint8), 1, chain).tolist() == [[-11]]
    with pytest.raises(ValueError, match=r"need images uint8 \(B, 3\), got torch.uint8 \(1, 4\)"):
        exact.network(torch.zeros(1, 4, dtype=torch.uint8), 1, chain)
    with pytest.raises(ValueError, match=r"k = 1: only 8-bit images are multiplied by 2\^k, these are torch.int16"):
        exact.network(torch.zeros(1, 3, dtype=torch.int16), 1, chain)
    with pytest.raises(ValueError, match="need images uint8"):
        exact.network(torch.zeros(1, 3, dtype=torch.int32), 0, chain)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("batch", [1, 5, 40])
def test_the_edges_of_the_type(backend, dtype, batch):
    """|x - w| at the largest number, outputs at both ends, and a bias that alone would not fit int16."""
    top = torch.iinfo(dtype).max
    x = torch.full((70, batch), top, dtype=dtype)
    x[:69] = 0
    w = torch.zeros(3, 70, dtype=dtype)
    w[:, 3] = -1
    b = torch.tensor([0, -top, -top - 9000 if dtype == torch.int16 else -top])
    expected = (top + b)[:, None].expand(3, batch).to(dtype)
    start, index, weight = entries(w, torch.ones(3, 70, dtype=torch.bool))
    assert torch.equal(exact.dense(x, w, b.int()), expected)
    high = torch.full((70,), top)
    with pytest.raises(OverflowError, match=f"reach {top + 1}"):
        exact.one_sided(start, index, weight, torch.zeros(70), high)
    high[3] = top - 1
    sides = exact.one_sided(start, index, weight, torch.zeros(70), high)
    assert torch.equal(exact.sided(x, *sides, b.int()), expected)


def test_the_reference_notices_overflow(monkeypatch):
    monkeypatch.setenv("LINFDIST_BACKEND", "reference")
    x, w = torch.tensor([[32767]], dtype=torch.int16), torch.tensor([[-1]], dtype=torch.int16)
    with pytest.raises(OverflowError, match="32768"):
        exact.dense(x, w, torch.zeros(1, dtype=torch.int32))
    with pytest.raises(OverflowError, match="int16 cannot hold"):
        exact.dense(x, w + 1, torch.ones(1, dtype=torch.int32))


def test_empty(backend):
    x, w, b = problem(0, 3, 4, torch.int16)
    assert exact.dense(x, w, b).shape == (4, 0)
    sides = exact.one_sided(*entries(w, torch.ones(4, 3, dtype=torch.bool)), torch.zeros(3), torch.ones(3))
    assert exact.sided(x, *sides, b).shape == (4, 0)
    assert exact.dense(problem(5, 3, 1, torch.int16)[0], w[:0], b[:0]).shape == (0, 5)


def test_any_memory_layout(backend):
    x, w, b = problem(9, 30, 6, torch.int16)
    assert torch.equal(exact.dense(x.T.contiguous().T, w.T.contiguous().T, b), definition(x, w, b))


def test_threads_do_not_matter(backend):
    if backend == "triton":
        pytest.skip("the programs of Triton do not see the threads of torch")
    x, w, b = problem(700, 90, 80, torch.int16)
    mask = some(*w.shape)
    sides = exact.one_sided(*entries(w, mask), x.long().amin(1), x.long().amax(1))
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(exact.dense(x, w, b), definition(x, w, b))
        assert torch.equal(exact.sided(x, *sides, b), definition(x, w, b, mask))


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("isa", [] if native.missing() else native.isas()[1:])
def test_every_instruction_set(isa):
    """The best one has passed in this process; tests/emulated compares all of them with the definitions each time."""
    run = python("-m", "pytest", "-q", "-k", "native and not every", "tests/ops/test_exact.py", LINFDIST_ISA=isa)
    assert run.returncode == 0, run.stdout[-3000:]


def bad(**changes):
    arguments = {
        "x": torch.zeros(3, 2, dtype=torch.int16),
        "neuron": torch.tensor([0, 1], dtype=torch.int32),
        "start": torch.tensor([0, 1, 2]),
        "middle": torch.tensor([1, 1]),
        "inputs": torch.tensor([0, 2], dtype=torch.int32),
        "weight": torch.zeros(2, dtype=torch.int16),
        "b": torch.zeros(2, dtype=torch.int32),
    }
    return {**arguments, **changes}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"inputs": torch.tensor([0, 3], dtype=torch.int32)},
            ValueError,
            r"inputs must lie in 0 \.\.\. 2, got 0 \.\.\. 3",
        ),
        ({"inputs": torch.tensor([-1, 0], dtype=torch.int32)}, ValueError, r"got -1 \.\.\. 0"),
        ({"start": torch.tensor([0, 2, 2]), "middle": torch.tensor([1, 2])}, ValueError, "run 1 has no entries"),
        ({"start": torch.tensor([0, 0, 2])}, ValueError, "run 0 has no entries"),
        ({"start": torch.tensor([0, 3, 2])}, ValueError, "run 1 has no entries"),
        ({"start": torch.tensor([0, 1, 3])}, ValueError, "from 0 to 2"),
        ({"start": torch.tensor([-1, 1, 2])}, ValueError, "from 0 to 2"),
        ({"start": torch.tensor([0, 2])}, ValueError, r"start must have shape \(3,\) .* got \(2,\)"),
        ({"middle": torch.tensor([1, 0])}, ValueError, r"middle\[1\] = 0 lies outside run 1, 1 \.\.\. 2"),
        ({"middle": torch.tensor([1, 3])}, ValueError, r"middle\[1\] = 3 lies outside"),
        (
            {"neuron": torch.tensor([0, 2], dtype=torch.int32)},
            ValueError,
            r"neuron must lie in 0 \.\.\. 1, got 0 \.\.\. 2",
        ),
        ({"neuron": torch.tensor([0, -1], dtype=torch.int32)}, ValueError, r"got -1 \.\.\. 0"),
        ({"x": torch.zeros(0, 2, dtype=torch.int16)}, ValueError, "at least one input"),
        ({"x": torch.zeros(3, 2)}, TypeError, "int16 or int32, got torch.float32"),
        ({"weight": torch.zeros(2, dtype=torch.int32)}, TypeError, "weight must be torch.int16"),
        ({"inputs": torch.tensor([0, 2])}, TypeError, "inputs must be torch.int32"),
        ({"b": torch.zeros(2, dtype=torch.int16)}, TypeError, "b must be int32"),
    ],
)
def test_bad_runs_are_refused(backend, changes, error, message):
    assert exact.sided(**bad()).shape == (2, 2)
    with pytest.raises(error, match=message):
        exact.sided(**bad(**changes))


def test_shapes_that_do_not_fit_are_refused(backend):
    x, w, b = problem(4, 3, 2, torch.int16)
    for arguments in ((x[0], w, b), (x, w[:, 1:], b), (x, w, b[:1]), (x[:0], w[:, :0], b)):
        with pytest.raises(ValueError, match=r"need x \(I, B\)"):
            exact.dense(*arguments)
    with pytest.raises(TypeError, match=r"w must be torch\.int16"):
        exact.dense(x, w.int(), b)
