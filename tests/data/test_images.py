"""Image files from somebody who means harm, or just has another camera: exactly the pixels in the file, or an error."""

import io
import os
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from linfdist import data
from linfdist.data import DataError, image_files, read_image, read_images
from linfdist.data.images import MAX_PIXELS, ImageFile, decode

GRAY = np.arange(35, dtype=np.uint8).reshape(5, 7) * 7
COLOUR = np.stack([GRAY, GRAY[::-1], GRAY[:, ::-1]], axis=2)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, bits: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    """A PNG made by hand: more: chunks between header and pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def attempt(read: Callable[[], np.ndarray]) -> np.ndarray | str:
    """The pixels, or what the DataError says; nothing else may be raised."""
    try:
        return read()
    except DataError as error:
        return str(error)


# What is not 8 bits per channel


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("16-bit RGB", png(1, 1, 16, 2, b"\0" + bytes(range(6)))),
        ("16-bit RGBA", png(1, 1, 16, 6, b"\0" + bytes(range(8)))),
        ("16-bit gray", png(1, 1, 16, 0, b"\0\1\2")),
        ("16-bit gray with alpha", png(1, 1, 16, 4, b"\0\1\2\3\4")),
        ("1-bit", png(8, 1, 1, 0, b"\0\xaa")),
        ("4-bit gray", png(2, 1, 4, 0, b"\0\x1f")),
        ("PGM of 15 levels", b"P5 2 1 15\n\x01\x0f"),
        ("PPM of 65535 levels", b"P6 1 1 65535\n" + bytes(range(6))),
        ("plain PPM of 7 levels", b"P3 1 1 7\n1 2 3\n"),
        ("bitmap", b"P4 8 1\n\xaa"),
        ("CMYK", saved(Image.new("CMYK", (2, 2)), "JPEG")),
        ("CMYK", saved(Image.new("CMYK", (2, 2)), "TIFF")),
        ("16-bit TIFF", saved(Image.fromarray(GRAY.astype(np.uint16)), "TIFF")),
        ("float TIFF", saved(Image.fromarray(GRAY.astype(np.float32)), "TIFF")),
        ("Lab TIFF", saved(Image.new("LAB", (2, 2)), "TIFF")),
    ],
)
def test_other_depths_are_refused(name, content):
    with pytest.raises(DataError, match=r"^x is not gray or RGB with 8 bits per channel .*: convert it first"):
        decode(content, "x")


def test_a_tiff_of_16_bits_per_colour_is_refused():
    """Pillow reads it, cut to 8 bits, and cannot write it: so the tags are changed in a file of 8 bits."""
    content = bytearray(saved(Image.fromarray(COLOUR), "TIFF"))
    at = content.index(struct.pack("<HHI", 258, 3, 3))
    (where,) = struct.unpack_from("<I", content, at + 8)
    struct.pack_into("<HHH", content, where, 16, 16, 16)
    with pytest.raises(DataError):
        decode(bytes(content), "x")


def test_a_bmp_of_5_bits_is_refused():
    header = struct.pack("<IiiHHIIiiII", 40, 2, 1, 1, 16, 0, 4, 0, 0, 0, 0)
    content = b"BM" + struct.pack("<IHHI", 14 + 40 + 4, 0, 0, 54) + header + b"\x12\x34\x56\x78"
    with pytest.raises(DataError, match="8 bits per channel"):
        decode(content, "x")


# What has 8 bits


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
@pytest.mark.parametrize("pixels", [GRAY, COLOUR], ids=["gray", "colour"])
def test_every_pixel_arrives(form, pixels):
    if form == "WEBP" and pixels.ndim == 2:
        pytest.skip("always in colour")
    options = {"lossless": True} if form == "WEBP" else {}
    found = decode(saved(Image.fromarray(pixels), form, **options), "x")
    assert np.array_equal(found, pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def test_palettes_are_exact():
    """Four colours in 2 bits each: the entries of a palette have 8 bits per channel."""
    palette = Image.fromarray(COLOUR // 128 * 255).quantize(8)
    expected = np.asarray(palette.convert("RGB")).transpose(2, 0, 1)
    for form in ("PNG", "GIF"):
        assert np.array_equal(decode(saved(palette, form), "x"), expected)


def test_alpha_is_dropped_only_where_nothing_shows_through():
    opaque = Image.fromarray(np.dstack([COLOUR, np.full_like(GRAY, 255)]))
    assert np.array_equal(decode(saved(opaque, "PNG"), "x"), COLOUR.transpose(2, 0, 1))
    veil = np.full_like(GRAY, 255)
    veil[2, 3] = 254
    see_through = [
        saved(Image.fromarray(np.dstack([COLOUR, veil])), "PNG"),
        saved(Image.fromarray(np.dstack([GRAY, veil])), "PNG"),
        saved(Image.fromarray(COLOUR), "PNG", transparency=tuple(map(int, COLOUR[0, 0]))),
        saved(Image.fromarray(GRAY), "PNG", transparency=0),
        saved(Image.fromarray(COLOUR // 128 * 255).quantize(8), "GIF", transparency=0),
    ]
    for content in see_through:
        with pytest.raises(DataError, match="x is transparent in places: put it on a background first"):
            decode(content, "x")


def test_one_image_per_file():
    frames = [Image.fromarray(GRAY), Image.fromarray(GRAY[::-1].copy())]
    for form in ("GIF", "TIFF", "PNG", "WEBP"):
        content = saved(frames[0], form, save_all=True, append_images=frames[1:])
        with pytest.raises(DataError, match="x holds 2 images"):
            decode(content, "x")


# EXIF


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(COLOUR)
    content = saved(stored, "PNG", exif=exif)
    turns = {
        1: COLOUR, 2: COLOUR[:, ::-1], 3: COLOUR[::-1, ::-1], 4: COLOUR[::-1], 5: COLOUR.transpose(1, 0, 2),
        6: np.rot90(COLOUR, -1), 7: np.rot90(COLOUR, 2).transpose(1, 0, 2), 8: np.rot90(COLOUR),
    }  # fmt: skip
    expected = turns[orientation].transpose(2, 0, 1)
    assert np.array_equal(ImageFile(content, "x").pixels(size=expected.shape[1:]), expected)
    with pytest.raises(DataError, match=f"x has {expected.shape[2]} × {expected.shape[1]} pixels, but no"):
        ImageFile(content, "x").pixels(size=expected.shape[:0:-1], need="but no")


EXIF = [
    b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x2a\0\0\0\0\0\0\0",  # orientation 42
    b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x04\0\0\0abc\0\0\0\0\0",  # orientation "abc"
    b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01",  # breaks off
    b"Exif\0\0II*\0\xff\xff\xff\x7f",  # far outside
    b"Exif\0\0garbage",
    b"Exif\0\0",
    b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x05\0\0\0\x01\0\0\0\0",  # a rational that is not there
]


@pytest.mark.parametrize("exif", EXIF)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_damaged_exif_is_one_line_or_nothing(exif, form, tmp_path):
    """Where Pillow can make sense of it, the image is read; else an error says what to do."""
    path = tmp_path / f"x.{form.lower()}"
    path.write_bytes(saved(Image.fromarray(COLOUR), form, exif=exif))
    found = attempt(lambda: read_image(path).numpy())
    assert found.shape == (3, 5, 7) if isinstance(found, np.ndarray) else found.startswith(f"{path} ")
    assert "\n" not in str(found) or isinstance(found, np.ndarray)


def test_an_orientation_that_is_none_is_refused(tmp_path):
    for number in (0, 1):
        (tmp_path / "x.jpg").write_bytes(saved(Image.fromarray(COLOUR), "JPEG", exif=EXIF[number]))
        with pytest.raises(DataError, match=r"EXIF data that cannot be read \(.*\): save the image without metadata"):
            read_image(tmp_path / "x.jpg")


# Large ones


def test_a_large_image_is_refused_before_it_is_decoded(tmp_path):
    """In a process with little memory beyond what it has after the imports."""
    paths = [tmp_path / f"{side}.png" for side in (13000, 60000)]
    for path in paths:
        path.write_bytes(png(int(path.stem), int(path.stem), 8, 2, b""))
    program = """
import resource, sys
from linfdist.data import DataError, read_image
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000,) * 2)
for path in sys.argv[1:]:
    try:
        read_image(path)
    except DataError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert path.name in line
        assert "crop or resize it first" in line or "not an intact image" in line


def test_the_limit():
    rows = MAX_PIXELS // 1000
    with pytest.raises(DataError, match=f"has 1000 × {rows + 1} pixels, more than 25,000,000 in all"):
        ImageFile(png(1000, rows + 1, 8, 0, b""), "x")
    assert ImageFile(png(1000, rows, 8, 0, b""), "x").channels == 1


@pytest.mark.parametrize("keep", [0, 1, 8, 30, 45, 60])
def test_truncated_files(keep):
    with pytest.raises(DataError, match="x is not an intact image"):
        decode(saved(Image.fromarray(COLOUR), "PNG")[:keep], "x")


def test_bytes_at_random():
    """Whatever Pillow makes of it: an image, or a DataError."""
    generator = np.random.default_rng(0)
    whole = [saved(Image.fromarray(COLOUR), form) for form in ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")]
    for content in whole * 30:
        damaged = bytearray(content)
        for at in generator.integers(0, len(damaged), 3):
            damaged[at] = generator.integers(256)
        found = attempt(lambda damaged=damaged: decode(bytes(damaged), "x"))
        assert found.shape[0] in (1, 3) if isinstance(found, np.ndarray) else found.startswith("x ")


# What is no regular file


@pytest.fixture
def odd(tmp_path):
    """A folder with one image, and a place for something else."""
    (tmp_path / "a").mkdir()
    Image.fromarray(GRAY).save(tmp_path / "a" / "1.png")
    return tmp_path / "a" / "2.png"


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def make_device(path):
    path.symlink_to("/dev/zero")


def make_dangling(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [make_fifo, make_socket, make_device, make_dangling])
def test_what_is_no_regular_file_is_refused_at_once(odd, make):
    make(odd)
    start = time.monotonic()
    with pytest.raises(DataError, match=r"2\.png(: No such| is not a regular file|: No such device)"):
        read_image(odd)
    with pytest.raises(DataError, match=r"2\.png is not a regular file: take it out of"):
        image_files([odd.parent])
    with pytest.raises(DataError, match=r"2\.png is not a regular file"):
        data.load(odd.parent.parent)
    assert time.monotonic() - start < 10


def test_a_link_to_an_image_and_a_folder_with_its_ending(odd):
    odd.symlink_to("1.png")
    (odd.parent / "3.png").mkdir()
    assert [path.name for path in image_files([odd.parent])] == ["1.png", "2.png"]
    assert read_images([odd], (1, 5, 7)).shape == (1, 1, 5, 7)


def test_a_file_of_many_bytes_is_not_read(tmp_path):
    path = tmp_path / "x.png"
    with path.open("wb") as file:
        file.truncate(1 << 34)
    with pytest.raises(DataError, match="more than 134,217,728"):
        read_image(path)


def test_files_in_order(tmp_path):
    for name in ("b/2.png", "b/10.png", "a.PNG", ".hidden.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = image_files([tmp_path / "b" / "2.png", tmp_path])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["b/2.png", "a.PNG", "b/10.png", "b/2.png"]
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        image_files([tmp_path / "none"])


def test_another_size_is_refused_before_it_is_decoded(tmp_path):
    (tmp_path / "x.png").write_bytes(png(4000, 4000, 8, 0, b""))  # there are no pixels to decode
    with pytest.raises(DataError, match="has 4000 × 4000 pixels, but the network takes 28 × 28, gray"):
        read_images([tmp_path / "x.png"], (1, 28, 28))
