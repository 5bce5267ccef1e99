"""Every source for real. Where a registry or a tool is missing, the test is skipped with the reason."""

from pathlib import Path

import pytest
import torch

import linfdist.data as data
from linfdist.data import catalogue, tinyimagenet
from linfdist.data.builtin import Builtin, Source, Unavailable

from ..ops.processes import ROOT

LARGE = ("cifar10", "tinyimagenet")
ON_DISK = ("scikit-learn", "archive of", "installed")
SHARED = ROOT.parent / "shared" / "data" / "tiny-imagenet" / "tiny-imagenet-200-trainval.tar.xz"


def _cases() -> list[object]:
    cases = []
    for name, builtin in catalogue._BUILTIN.items():
        sources = builtin.sources
        if name == "tinyimagenet" and SHARED.is_file():
            sources += (Source("archive of the machine", lambda work: tinyimagenet._from_archive(SHARED)),)
        for source in sources:
            marks = [pytest.mark.timeout(1200)]
            if not source.title.startswith(ON_DISK):
                marks += [pytest.mark.network, pytest.mark.slow]  # of the speed of others
            elif name in LARGE:
                marks.append(pytest.mark.slow)
            label = source.title.replace(" ", "-").replace("/", "-")
            cases.append(pytest.param(builtin, source, id=f"{name}-{label}", marks=marks))
    return cases


@pytest.mark.parametrize(("builtin", "source"), _cases())
def test_source(builtin: Builtin, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source gives has passed its sums; here it is stored, read back and measured."""
    work = tmp_path / "work"
    work.mkdir()
    try:
        content = source.read(work)
    except Unavailable as error:
        pytest.skip(str(error))
    info = builtin.info
    alone = Builtin(info, lambda root: None, (Source(source.title, lambda work: content),), "")
    monkeypatch.setitem(catalogue._BUILTIN, info.name, alone)
    train, test = data.load(info.name, "train", tmp_path), data.load(info.name, "test", tmp_path)

    for dataset, count in ((train, info.train), (test, info.test)):
        assert dataset.images.shape == (count, *info.shape)
        assert dataset.images.dtype == torch.uint8
        assert dataset.labels.shape == (count,)
        assert dataset.labels.unique().tolist() == list(range(info.num_classes))
        assert len(set(dataset.classes)) == info.num_classes

    pixels = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in train.images.unbind(1)])
    shares = counts.double() / counts.sum(1, keepdim=True)
    mean = (shares * pixels).sum(1)
    std = (shares * (pixels - mean[:, None]) ** 2).sum(1).sqrt()
    assert mean.tolist() == pytest.approx(info.mean, abs=1e-3)
    if info.shape[0] == 1:
        assert std.item() == pytest.approx(info.std, abs=2e-3)
    if info.name == "cifar10":
        assert mean.tolist() == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-7)
        assert std.tolist() == pytest.approx([0.24703223, 0.24348513, 0.26158784], abs=1e-7)
