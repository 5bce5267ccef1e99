"""The page as a person uses it: drawing, slider, attack, files in and out, small screens, other senses."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from linfdist import exact
from linfdist.cli import app
from linfdist.errors import printable
from linfdist.exact import freeze
from linfdist.export.html import page as page_text

from ..exact.nets import random_mlp, random_net


def settled(page) -> None:
    """Wait until all panels show what was done last."""
    page.locator("html[data-settled=yes]").wait_for(state="attached")


def shown(page) -> torch.Tensor:
    """The image on the page, as the page's own engine sees it."""
    size = page.evaluate("linfdist.network.shape")
    return torch.tensor(page.evaluate("Array.from(linfdist.image())"), dtype=torch.uint8).reshape(size)


def draw_one(page) -> None:
    """A vertical stroke in the middle, by mouse."""
    page.get_by_role("button", name="Clear").click()
    box = page.locator("#image").bounding_box()
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + 0.2 * box["height"])
    page.mouse.down()
    for step in range(1, 11):
        page.mouse.move(x, box["y"] + (0.2 + 0.06 * step) * box["height"])
    page.mouse.up()


def saved(page, button: str, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button, exact=True).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_a_drawing_is_proved_and_the_proof_travels(opened, frozen, mnist_page, tmp_path):
    """Draw, see the engine's class and radius, save three files, and have `linfdist verify` accept them."""
    page = opened(mnist_page)
    draw_one(page)
    settled(page)
    image = shown(page)
    (proof,) = exact.certificates(frozen, image[None])
    assert proof.levels > 0
    assert page.inner_text("#class") == str(proof.prediction) == "1"
    assert f"at most {proof.levels} levels of 255 (0." in page.inner_text("#claim")
    assert float(page.evaluate("document.documentElement.dataset.milliseconds")) < 2000  # here, on a busy machine

    certificate = saved(page, "Certificate (JSON)", tmp_path)
    picture = saved(page, "Image (PNG)", tmp_path)
    network = saved(page, "Network", tmp_path)
    assert json.loads(certificate.read_text()) == proof.json()
    assert np.array_equal(np.array(Image.open(picture)), image[0].numpy())
    assert exact.load(network).sha256 == frozen.sha256
    assert page.inner_text("#command") == "linfdist verify mnist-0.3.json mnist-0.3.png mnist-0.3.safetensors"
    done = CliRunner().invoke(app, ["verify", str(certificate), str(picture), str(network)])
    assert done.exit_code == 0, done.output
    assert f"within {proof.levels} levels" in done.output

    # another image is shown; then both files are opened together, and the certificate is checked
    page.get_by_role("button", name="Next test image").click()
    settled(page)
    page.set_input_files("#file", [certificate])
    page.locator("#checked.no").wait_for()
    page.set_input_files("#file", [certificate, picture])
    page.locator("#checked.yes").wait_for()
    assert torch.equal(shown(page), image)
    false = tmp_path / "false.json"
    false.write_text(json.dumps({**proof.json(), "levels": proof.levels + 1, "radius": str(proof.levels + 1)}))
    page.set_input_files("#file", [false])
    page.locator("#checked.no").wait_for()
    assert f"the certificate says {proof.levels + 1}, it is {proof.levels}" in page.inner_text("#checked").replace(
        '"', ""
    )


def test_slider_and_edge(opened, frozen, mnist, mnist_page):
    """Proved up to the radius and not a level further; the edge images have the class that is written below them."""
    page = opened(mnist_page)
    slider, status = page.get_by_role("slider"), page.locator("#status")
    for _ in range(8):
        page.get_by_role("button", name="Next test image").click()
    settled(page)
    assert "label “5”" in page.inner_text("#sample-name")
    levels = exact.certificates(frozen, mnist.images[8:9])[0].levels
    slider.fill(str(levels))
    assert status.inner_text() == "✓ proved"
    settled(page)
    assert page.locator("#edges .same").count() == 4
    slider.press("ArrowRight")
    assert status.inner_text() == "✗ not proved"
    assert page.inner_text("#eps-value").startswith(f"{levels + 1} levels")
    assert page.locator("#bars li.over").count() > 0
    slider.fill("150")
    settled(page)
    assert page.locator("#edges .other").count() > 0
    slider.fill("0")
    settled(page)
    assert "2 of 784 if pixels may change by 0 levels" in page.inner_text("#why-text")
    assert page.locator(".path").count() == 2


def test_the_attack_fails_inside_and_succeeds_outside(opened, frozen, mnist, mnist_page):
    from playwright.sync_api import expect

    page = opened(mnist_page)
    for _ in range(8):
        page.get_by_role("button", name="Next test image").click()
    button = page.locator("#attack")
    button.click()
    expect(button).to_have_text("Stop")
    expect(button).to_have_text("Attack again", timeout=120_000)
    levels = exact.certificates(frozen, mnist.images[8:9])[0].levels
    assert page.inner_text("#inside").endswith("of another class: none")
    assert f"within {levels} levels" in page.inner_text("#inside")
    broken = int(page.inner_text("#outside b").split(" at ")[1].split()[0])
    assert levels < broken <= levels + 20
    assert page.locator("#found canvas").count() == 3
    page.get_by_role("button", name="Clear").click()  # another image: what was found is gone
    expect(page.locator("#fight")).to_be_hidden()


def test_pictures_from_outside(opened, mnist, mnist_page, tmp_path):
    """A file of the right size is taken as it is; others are scaled and said to be; drops and pastes are files too."""
    page = opened(mnist_page)
    Image.fromarray(mnist.images[3, 0].numpy()).save(tmp_path / "three.png")
    Image.fromarray(mnist.images[3, 0].numpy()).convert("RGB").resize((112, 140)).save(tmp_path / "large.jpg")
    (tmp_path / "none.png").write_bytes(b"no image")
    page.set_input_files("#file", tmp_path / "three.png")
    page.get_by_text("Opened as it is").wait_for()
    assert torch.equal(shown(page), mnist.images[3])
    page.set_input_files("#file", tmp_path / "large.jpg")
    page.get_by_text("scaled from 112 × 140 to 28 × 28; the proof is about the pixels you see").wait_for()
    page.set_input_files("#file", tmp_path / "none.png")
    page.get_by_text("none.png: this is no image that the browser can read.").wait_for()
    for event, field in (("drop", "dataTransfer"), ("paste", "clipboardData")):
        page.get_by_role("button", name="Clear").click()
        page.evaluate(
            """async ([bytes, event, field]) => {
              const files = new DataTransfer();
              files.items.add(new File([Uint8Array.from(bytes)], "three.png", { type: "image/png" }));
              const made = event === "drop" ? new DragEvent(event, { [field]: files, bubbles: true, cancelable: true })
                                            : new ClipboardEvent(event, { [field]: files, bubbles: true });
              document.body.dispatchEvent(made);
            }""",
            [list((tmp_path / "three.png").read_bytes()), event, field],
        )
        page.get_by_text("Opened as it is").wait_for()
        assert torch.equal(shown(page), mnist.images[3])


def test_keyboard_eraser_and_tools(opened, mnist_page):
    page = opened(mnist_page)
    page.get_by_role("button", name="Clear").click()
    page.locator("#image").focus()
    page.keyboard.press("Space")
    for _ in range(5):
        page.keyboard.press("Shift+ArrowDown")
    settled(page)
    image = shown(page)[0]
    assert image[14, 14] == 255
    assert image[19, 14] == 255
    assert image[22:].sum() == 0
    page.get_by_role("button", name="Centre").click()
    settled(page)
    rows = shown(page)[0].float().sum(1)
    assert abs(float((rows * torch.arange(28)).sum() / rows.sum()) - 13.5) < 0.7
    page.get_by_role("button", name="Invert").click()
    settled(page)
    assert shown(page)[0, 0, 0] == 255
    page.get_by_role("button", name="Eraser").click()
    page.locator("#image").focus()
    page.keyboard.press("Space")
    settled(page)
    assert shown(page)[0, 19, 14] == 0  # the cursor is where it was


def test_a_phone_in_the_dark(opened, mnist_page):
    """400 pixels wide: nothing is cut off, fingers draw, and those who want no motion get none."""
    page = opened(
        mnist_page, color_scheme="dark", reduced_motion="reduce", has_touch=True, device_scale_factor=2,
    )  # fmt: skip
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("button", name="Clear").tap()
    page.locator("#image").tap()
    settled(page)
    assert shown(page)[0, 14, 14] > 200
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 17, 20)"
    moving = "[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).transitionDuration !== '0s').length"
    assert page.evaluate(moving) == 0
    small = """[...document.querySelectorAll('button, input:not([type=file])')].filter((e) => e.offsetParent)
               .filter((e) => e.getBoundingClientRect().height < 24).map((e) => e.id)"""
    assert page.evaluate(small) == []


def test_screen_readers_are_told(opened, mnist_page):
    page = opened(mnist_page)
    settled(page)
    assert page.inner_text("#announcement").startswith("7. Proved for every image")
    unnamed = """[...document.querySelectorAll('button, canvas, input:not([hidden])')].filter((e) =>
      !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"""
    assert page.evaluate(unnamed) == []
    slider = page.get_by_role("slider", name="Every pixel may change by")
    assert slider.get_attribute("aria-valuetext") == "76 levels of 255 (0.2980)"


EVIL = [
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    '"><svg onload=window.broken=1>',
    "<!--<script>",
    "$script ${style} \u2028 & é",
]


def test_hostile_names_stay_text(opened):
    """Names of classes, of the network and in its facts, from someone who wants to run a script on the page."""
    measured = {"data": EVIL[0], "split": EVIL[1], "n": 10, "eps": EVIL[2], "clean": 50.0, "certified": 20.0}
    network = freeze(random_net(1, classes=5), facts={"accuracy": measured, EVIL[3]: EVIL})
    page = opened(page_text(network, EVIL[0] + EVIL[2], EVIL))
    settled(page)
    page.locator("#attack").click()
    page.wait_for_timeout(500)
    assert page.evaluate("window.broken") is None
    assert page.locator("img, svg").count() == 0
    assert page.locator("script").count() == 3
    assert page.locator("#bars .name").all_text_contents() == [printable(name) for name in EVIL]
    assert EVIL[1] in page.inner_text("#facts")
    assert page.inner_text(".eyebrow") == EVIL[0] + EVIL[2]


def test_other_networks(opened, tmp_path):
    """In colour, with many classes, with a head, averaging, for a domain: it works, or says what is unproved."""
    shape = (3, 6, 5)
    black, white = torch.zeros(shape, dtype=torch.uint8), torch.full(shape, 200, dtype=torch.uint8)
    for network in (
        freeze(random_net(0, shape, classes=30)),
        freeze(random_mlp(0, shape, classes=3)),
        freeze(random_net(2, shape, pool=[1, 2], clip=[0.1, 0.9], per_class=4)),
        freeze(random_net(1, shape), domain=(black, white)),
    ):
        page = opened(page_text(network, "other"))
        settled(page)
        assert page.locator("#bars li").count() == min(network.classes, 12)
        assert page.get_by_label("Colour").is_visible()
        box = page.locator("#image").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        settled(page)
        assert shown(page).sum() > 0
        if page.locator("#save-certificate").is_enabled():
            files = [saved(page, name, tmp_path) for name in ("Certificate (JSON)", "Image (PNG)", "Network")]
            done = CliRunner().invoke(app, ["verify", *map(str, files)])
            assert done.exit_code == 0, done.output
    page.get_by_role("button", name="Invert").click()
    settled(page)
    assert "outside the domain that the network was made for: nothing is proved" in page.inner_text("#claim")
    assert page.locator("#save-certificate").is_disabled()


@pytest.mark.parametrize("bad", [b"", b"\x00" * 64])
def test_a_page_without_its_network_says_so(browser, tmp_path, bad):
    (tmp_path / "page.html").write_text(page_text(bad, "none"))
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.get_by_text("This page cannot be used:").wait_for()
    page.close()
