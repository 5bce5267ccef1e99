"""Folders of the user's own images."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import linfdist.data as data
from linfdist.data import DataError


def save(path: Path, array: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path)


def gray(seed: int, height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def colour(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for number in range(40):
        save(tmp_path / "dog" / f"{number}.png", gray(number))
        save(tmp_path / "cat" / f"{number}.png", gray(100 + number))
    return tmp_path


def test_classes_pixels_and_split(pets):
    train, test = data.load(pets, "train"), data.load(str(pets), "test")
    assert train.classes == test.classes == ("cat", "dog")
    assert train.images.dtype == torch.uint8
    assert train.images.shape[1:] == (1, 5, 7)
    assert train.labels.dtype == torch.int64
    assert len(train) + len(test) == 80
    assert 8 <= len(test) <= 24
    both = {image.numpy().tobytes() for image in (*train.images, *test.images)}
    assert both == {gray(seed).tobytes() for seed in (*range(40), *range(100, 140))}
    dogs = {image.numpy().tobytes() for image in train.images[train.labels == 1]}
    assert dogs <= {gray(seed).tobytes() for seed in range(40)}


def test_the_split_depends_on_names_alone(pets, tmp_path_factory):
    before = {image.numpy().tobytes() for image in data.load(pets, "test").images}
    moved = tmp_path_factory.mktemp("elsewhere") / "pets"
    shutil.copytree(pets, moved)
    save(moved / "dog" / "one more.png", gray(999))
    after = {image.numpy().tobytes() for image in data.load(moved, "test").images}
    assert before <= after


def test_train_and_test_folders(tmp_path):
    for split, count in (("train", 3), ("test", 2)):
        for number in range(count):
            save(tmp_path / split / "a" / f"{number}.png", colour(number))
            save(tmp_path / split / "b" / "deeper" / f"{number}.jpg", colour(number))
    assert len(data.load(tmp_path, "train")) == 6
    test = data.load(tmp_path, "test")
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(test.images[1].numpy(), colour(1).transpose(2, 0, 1))


def test_gray_among_colour_becomes_rgb_in_both_splits(tmp_path):
    save(tmp_path / "train" / "a" / "1.png", gray(1))
    save(tmp_path / "test" / "a" / "1.png", colour(1))
    train = data.load(tmp_path, "train")
    assert np.array_equal(train.images[0].numpy(), np.stack([gray(1)] * 3))


def test_constants_are_computed_from_the_training_images(pets):
    info, train = data.info(pets), data.load(pets)
    pixels = train.images.double() / 255
    assert info.shape == (1, 5, 7)
    assert (info.num_classes, info.train, info.test) == (2, len(train), len(data.load(pets, "test")))
    assert info.mean == pytest.approx((pixels.mean().item(),))
    assert info.std == pytest.approx(pixels.std(correction=0).item())


def test_read_image(tmp_path):
    save(tmp_path / "gray.png", gray(1))
    save(tmp_path / "colour.png", colour(1))
    assert data.read_image(tmp_path / "gray.png").shape == (1, 5, 7)
    assert data.read_image(tmp_path / "gray.png", channels=3).shape == (3, 5, 7)
    assert data.read_image(str(tmp_path / "colour.png")).shape == (3, 5, 7)
    with pytest.raises(DataError, match=r"colour\.png is in colour"):
        data.read_image(tmp_path / "colour.png", channels=1)
    with pytest.raises(DataError, match="cannot read"):
        data.read_image(tmp_path / "none.png")


def test_other_kinds_of_pixel(tmp_path):
    save(tmp_path / "palette.png", colour(1), "P")
    save(tmp_path / "alpha.png", colour(1), "RGBA")
    save(tmp_path / "deep.png", gray(1).astype(np.uint16) * 256)
    assert data.read_image(tmp_path / "palette.png").shape == (3, 5, 7)
    assert np.array_equal(data.read_image(tmp_path / "alpha.png").numpy(), colour(1).transpose(2, 0, 1))
    with pytest.raises(DataError, match="8 bits"):
        data.read_image(tmp_path / "deep.png")


def test_one_size_for_all(pets):
    for number in range(20):
        save(pets / "dog" / f"large {number}.png", gray(1, 6, 7))
    with pytest.raises(
        DataError, match=r"large \d+\.png has 7 × 6 pixels, but all images must have one size: .* has 7 × 5"
    ):
        data.load(pets)


def test_a_broken_image_is_named(pets):
    for path in list(pets.glob("cat/*.png")):
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match=r"cat/\d+\.png is not an intact image"):
        data.load(pets)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "has no folders"),
        (["a.png"], "has no folders"),
        (["a/notes.txt"], "no images in"),
        (["train/a/1.png"], "no test/"),
        (["train/a/1.png", "test/b/1.png"], "classes that train/ lacks: b"),
        (["a/2.png"], "has no test images"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path, files, message):
    for file in files:
        save(tmp_path / file, gray(1)) if file.endswith("png") else (tmp_path / file).parent.mkdir()
    with pytest.raises(DataError, match=message):
        data.load(tmp_path, "test")


def test_neither_name_nor_folder(tmp_path):
    with pytest.raises(DataError, match="neither a folder of images nor one of mnist, fashion"):
        data.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="split"):
        data.load("mnist", "val")


def test_photographs_of_mixed_sizes_are_cut_and_resized(tmp_path):
    for number, (height, width) in enumerate([(12, 9), (9, 30), (4, 4), (3, 5)] * 5):
        save(tmp_path / f"class {number % 2}" / f"{number}.png", gray(number, height, width))
    sizes = {split: data.load(tmp_path, split, resize=4).images.shape[1:] for split in ("train", "test")}
    assert sizes == {"train": (1, 4, 4), "test": (1, 4, 4)}
    assert data.info(tmp_path, 4).shape == (1, 4, 4)
    same = tmp_path / "class 0" / "2.png"
    assert np.array_equal(data.read_images([same], (1, 4, 4), resize=4)[0, 0].numpy(), gray(2, 4, 4))
    with pytest.raises(DataError, match="`resize` makes them alike"):
        data.load(tmp_path)
    with pytest.raises(DataError, match="it is for folders"):
        data.load("digits", resize=4)


def test_gray_stored_as_rgb_is_gray_where_gray_is_needed(tmp_path):
    save(tmp_path / "a.png", gray(1), "RGB")
    assert np.array_equal(data.read_image(tmp_path / "a.png", channels=1)[0].numpy(), gray(1))
    assert data.read_image(tmp_path / "a.png").shape == (3, 5, 7)
