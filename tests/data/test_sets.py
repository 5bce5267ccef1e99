"""The data sets from files that the user already has, at small size where the sums can be exchanged."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linfdist.data as data
from linfdist.data import catalogue, cifar10, fashion, mnist, tinyimagenet
from linfdist.data.builtin import Builtin, Corrupt, Info, Source, Unavailable

from ..ops.processes import ROOT

DOCS = ROOT / "docs" / "data.md"


def md5(value: bytes) -> str:
    return hashlib.md5(value).hexdigest()


@pytest.fixture
def no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is in the data folder counts."""
    for name, builtin in catalogue._BUILTIN.items():
        monkeypatch.setitem(catalogue._BUILTIN, name, Builtin(builtin.info, builtin.local, (), builtin.by_hand))


# MNIST and Fashion-MNIST


def idx_files(seed: int) -> dict[str, bytes]:
    rng = np.random.default_rng(seed)
    files = {}
    for prefix, count in (("train", 13), ("t10k", 7)):
        files[f"{prefix}-images-idx3-ubyte"] = mnist.encode(rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        files[f"{prefix}-labels-idx1-ubyte"] = mnist.encode(rng.integers(0, 10, count, dtype=np.uint8))
    return files


@pytest.fixture
def small_idx(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, bytes]]:
    """Files of 13 and 7 images that pass for the two data sets."""
    files = {"mnist": idx_files(0), "fashion": idx_files(1)}
    monkeypatch.setattr(
        mnist, "SUMS", {name: {file: md5(value) for file, value in part.items()} for name, part in files.items()}
    )
    return files


def put(folder: Path, files: dict[str, bytes], packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(value) if packed else value)


@pytest.mark.parametrize("packed", [False, True], ids=["idx", "idx.gz"])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "."),
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion", "."),
        ("fashion", "fashion"),
        ("fashion", "FashionMNIST/raw"),
    ],
)
def test_idx_files_of_the_user(tmp_path, small_idx, no_sources, name, folder, packed):
    put(tmp_path / folder, small_idx[name], packed)
    train, test = data.load(name, "train", tmp_path), data.load(name, "test", tmp_path)
    assert train.images.shape == (13, 1, 28, 28)
    assert test.images.shape == (7, 1, 28, 28)
    assert train.images.numpy().tobytes() == small_idx[name]["train-images-idx3-ubyte"][16:]
    assert bytes(test.labels.tolist()) == small_idx[name]["t10k-labels-idx1-ubyte"][8:]
    assert len(train.classes) == 10


def test_the_sibling_has_the_same_file_names(tmp_path, small_idx, no_sources):
    put(tmp_path, small_idx["mnist"])
    with pytest.raises(data.DataError, match="no source gave fashion"):
        data.load("fashion", "train", tmp_path)
    put(tmp_path / "fashion", small_idx["fashion"])
    assert data.load("fashion", "train", tmp_path).classes == fashion.CLASSES


@pytest.mark.parametrize("file", mnist.FILES)
@pytest.mark.parametrize("harm", ["truncated", "changed", "longer"])
def test_wrong_idx_files_are_named_and_refused(tmp_path, small_idx, file, harm):
    value = small_idx["mnist"][file]
    wrong = {"truncated": value[:-1], "changed": value[:-1] + bytes([value[-1] ^ 1]), "longer": value + b"1"}[harm]
    put(tmp_path / "mnist", {**small_idx["mnist"], file: wrong})
    with pytest.raises(Corrupt, match=rf"mnist: {file}: md5 is .*, should be {mnist.SUMS['mnist'][file]}"):
        data.load("mnist", "train", tmp_path)  # although other sources would have it
    assert not list(tmp_path.rglob("*.safetensors"))


def test_truncated_idx_gz_is_named(tmp_path, small_idx):
    put(tmp_path / "mnist", small_idx["mnist"], packed=True)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Corrupt, match=r"t10k-images-idx3-ubyte\.gz: not an intact gzip file"):
        data.load("mnist", "test", tmp_path)


def test_idx_round_trip():
    values = np.arange(30, dtype=np.uint8).reshape(2, 3, 5)
    assert np.array_equal(mnist.array(mnist.encode(values)), values)
    with pytest.raises(Corrupt, match="not an idx file"):
        mnist.array(b"\x89PNG and so on")


# CIFAR-10


@pytest.fixture
def cifar_file(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file of 100 images instead of 10,000."""
    monkeypatch.setattr(cifar10, "_BATCH", 100)
    records = np.random.default_rng(0).integers(0, 256, (100, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    return records.tobytes()


def test_cifar_png_gives_the_binary_file(cifar_file):
    records = np.frombuffer(cifar_file, np.uint8).reshape(100, 3073)
    sheet = records[:, 1:].reshape(100, 3, 1024).transpose(0, 2, 1)
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(sheet)).save(stream, "PNG")
    assert cifar10.encode(stream.getvalue(), records[:, 0].tolist(), "sheet") == cifar_file
    with pytest.raises(Corrupt, match=r"sheet\.png"):
        cifar10.encode(stream.getvalue()[:1000], records[:, 0].tolist(), "sheet.png")


def test_cifar_png_of_another_size():
    stream = io.BytesIO()
    Image.new("RGB", (32, 32)).save(stream, "PNG")
    with pytest.raises(Corrupt, match="32 × 32 pixels, should be 1024 × 10000"):
        cifar10.encode(stream.getvalue(), [], "sheet.png")


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_cifar_files_of_the_user(tmp_path, cifar_file, monkeypatch, no_sources, packed):
    files = dict.fromkeys(cifar10.SUMS, cifar_file)
    monkeypatch.setattr(cifar10, "SUMS", {name: md5(value) for name, value in files.items()})
    if packed:
        with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
            for name, value in files.items():
                header = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                header.size = len(value)
                archive.addfile(header, io.BytesIO(value))
    else:
        put(tmp_path / "cifar10" / "cifar-10-batches-bin", files)
    train = data.load("cifar10", "train", tmp_path)
    assert train.images.shape == (500, 3, 32, 32)
    assert train.images[107].numpy().tobytes() == cifar_file[7 * 3073 + 1 : 8 * 3073]
    assert train.labels[107] == cifar_file[7 * 3073]
    assert len(data.load("cifar10", "test", tmp_path)) == 100


def test_wrong_cifar_file_is_named(tmp_path, cifar_file):
    put(tmp_path / "cifar-10-batches-bin", dict.fromkeys(cifar10.SUMS, cifar_file[:3073]))
    with pytest.raises(Corrupt, match=r"cifar-10-batches-bin: data_batch_1\.bin: md5"):
        data.load("cifar10", "train", tmp_path)


# TinyImageNet


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Three classes of two images, five for testing, one of all gray; they pass for the whole."""
    rng = np.random.default_rng(0)

    def jpeg(mode: str = "RGB") -> bytes:
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).convert(mode).save(stream, "JPEG")
        return stream.getvalue()

    wnids = ("n00000003", "n00000001", "n00000002")
    files = {f"train/{wnid}/images/{wnid}_{number}.JPEG": jpeg() for wnid in wnids for number in (10, 9)}
    files["train/n00000002/images/n00000002_9.JPEG"] = jpeg("L")
    files |= {f"val/images/val_{number}.JPEG": jpeg() for number in range(5)}
    files["val/val_annotations.txt"] = "".join(f"val_{n}.JPEG\t{wnids[n % 3]}\t0\t0\t9\t9\n" for n in range(5)).encode()
    files["words.txt"] = b"n00000001\tcrane\nn00000002\tgoldfish, Carassius auratus\nn00000003\tcrane, bird\nn9\tx\n"
    files["test/images/test_0.JPEG"] = b"is not looked at"
    records = tinyimagenet._records(files, "")
    sums = {split: tinyimagenet.fingerprint(part) for split, part in records.items()}
    monkeypatch.setattr(tinyimagenet, "SUMS", sums)
    return files


def pack(files: dict[str, bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, value in files.items():
                archive.writestr(f"tiny-imagenet-200/{name}", value)
    elif path.suffix == ".xz":
        with tarfile.open(path, "w:xz") as archive:
            for name, value in files.items():
                header = tarfile.TarInfo(f"tiny-imagenet-200/{name}")
                header.size = len(value)
                archive.addfile(header, io.BytesIO(value))
    else:
        for name, value in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(value)


@pytest.mark.parametrize(
    "where",
    [
        "tiny-imagenet-200",
        "tinyimagenet/tiny-imagenet-200",
        "tiny-imagenet-200.zip",
        "tinyimagenet/tiny-imagenet-200-trainval.tar.xz",
    ],
)
def test_tiny_imagenet_of_the_user(tmp_path, tiny, no_sources, where):
    pack(tiny, tmp_path / where)
    train, test = data.load("tinyimagenet", "train", tmp_path), data.load("tinyimagenet", "test", tmp_path)
    assert train.classes == test.classes == ("crane (n00000001)", "goldfish", "crane (n00000003)")
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert test.labels.tolist() == [2, 0, 1, 2, 0]
    assert train.images.shape == (6, 3, 64, 64)
    first = np.asarray(Image.open(io.BytesIO(tiny["train/n00000001/images/n00000001_9.JPEG"])))
    assert np.array_equal(train.images[0].permute(1, 2, 0).numpy(), first)
    assert (train.images[2] == train.images[2, :1]).all()


def test_tiny_imagenet_that_is_not(tmp_path, tiny):
    del tiny["train/n00000001/images/n00000001_9.JPEG"]
    pack(tiny, tmp_path / "tiny-imagenet-200.zip")
    with pytest.raises(Corrupt, match=r"tiny-imagenet-200\.zip: the 5 train images are not TinyImageNet's"):
        data.load("tinyimagenet", "train", tmp_path)
    pack({"words.txt": b""}, tmp_path / "tiny-imagenet-200")
    with pytest.raises(Corrupt, match="lacks val/val_annotations"):
        data.load("tinyimagenet", "train", tmp_path)


def test_a_changed_annotation_is_noticed(tmp_path, tiny):
    tiny["val/val_annotations.txt"] = tiny["val/val_annotations.txt"].replace(b"n00000003", b"n00000001", 1)
    pack(tiny, tmp_path / "tiny-imagenet-200")
    with pytest.raises(Corrupt, match="the 5 test images are not"):
        data.load("tinyimagenet", "test", tmp_path)


# digits


def test_digits(tmp_path):
    train, test = data.load("digits", "train", tmp_path), data.load("digits", "test", tmp_path)
    info = data.info("digits")
    assert (len(train), len(test)) == (info.train, info.test) == (1347, 450)
    assert train.images.shape[1:] == info.shape
    pixels = train.images.double() / 255
    assert pixels.max() == 1
    assert pixels.mean().item() == pytest.approx(info.mean[0], abs=1e-4)
    assert pixels.std().item() == pytest.approx(info.std, abs=1e-4)
    assert test.labels.bincount().min() > 40


def test_digits_without_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(data.DataError, match="pip install scikit-learn"):
        data.load("digits", "train", tmp_path)


# all


def test_constants():
    stds = {"mnist": 0.3081, "fashion": 0.3520, "cifar10": 0.2009, "tinyimagenet": 0.2276}  # as in the paper's code
    assert {name: data.info(name).std for name in stds} == stds
    assert len(mnist.CLASSES) == len(fashion.CLASSES) == len(cifar10.CLASSES) == 10


@pytest.mark.parametrize("name", data.NAMES)
def test_every_data_set_has_plausible_constants_and_a_row_in_the_docs(name):
    info = data.info(name)
    assert isinstance(info, Info)
    assert info.name == name
    assert len(info.mean) == info.shape[0]
    assert all(0 < value < 1 for value in (*info.mean, info.std))
    channels, height, width = info.shape
    rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    expected = f"{info.train:,} / {info.test:,} | {channels} × {height} × {width}"
    assert any(expected in row for row in rows), f"docs/data.md needs a row of {name} with {expected}"


def test_when_nothing_works_every_reason_is_told(tmp_path, monkeypatch):
    def closed(reason: str) -> Source:
        def read(work: Path):
            raise Unavailable(reason)

        return Source(f"source of {reason}", read)

    def broken(work: Path):
        raise Corrupt("wheel.whl: sha256 is 1, should be 2")

    builtin = mnist.MNIST
    sources = (closed("no pip"), Source("bad wheel", broken), closed("no route"))
    monkeypatch.setitem(catalogue._BUILTIN, "mnist", Builtin(builtin.info, builtin.local, sources, builtin.by_hand))
    with pytest.raises(data.DataError) as caught:
        data.load("mnist", "train", tmp_path)
    message = str(caught.value)
    for part in ("no pip", "sha256 is 1", "no route", f"files in {tmp_path}: none", "By hand: put train-images-idx3"):
        assert part in message
    assert str(tmp_path / "mnist") in message
    assert sorted(path.name for path in (tmp_path / "mnist").iterdir()) in ([], [".lock"])
