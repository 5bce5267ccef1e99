"""The wheel as users get it: what is in it, and what it does in an environment of its own.

That environment has torch and what the wheel asks for. There is no compiler, and the source tree is elsewhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from linfdist.models import zoo

from ..ops.processes import ROOT

GIVEN = "LINFDIST_TEST_WHEEL"
MOST_BYTES = 20_000_000
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(GIVEN not in os.environ, reason=f"`make test-wheel` builds a wheel, and names it in {GIVEN}"),
]


class User:
    """Somebody who has a new environment, a folder to work in, and nothing else on the PATH."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "env", with_pip=True, symlinks=True)
        self.bin, self.folder = folder / "env" / "bin", folder / "work"
        self.folder.mkdir()
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "OMP_", "SSL_"))}
        self.environment = {**kept, "PATH": str(self.bin), "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "150"}
        self.environment["LINFDIST_DATA"] = str(folder / "data")

    def try_to(self, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment."""
        return subprocess.run(
            [str(self.bin / command), *map(str, arguments)], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=1200, check=False,
        )  # fmt: skip

    def __call__(self, command: str, *arguments: str | Path) -> str:
        """Run a command, which must work; its output."""
        done = self.try_to(command, *arguments)
        assert done.returncode == 0, f"{command} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def python(self, program: str) -> str:
        return self("python", "-W", "error", "-c", program)


@pytest.fixture(scope="module")
def wheel() -> Path:
    return Path(os.environ[GIVEN]).resolve(strict=True)


@pytest.fixture(scope="module")
def user(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user of the wheel alone."""
    somebody = User(tmp_path_factory.mktemp("user"))
    somebody("python", *PIP, "torch")
    somebody("python", *PIP, "--only-binary=:all:", wheel)
    somebody("linfdist", "data", "fetch", "mnist")
    shutil.copy(ROOT / "docs" / "images" / "seven.png", somebody.folder)
    return somebody


@pytest.fixture(scope="module")
def user_of_extras(wheel: Path, user: User) -> User:
    """The same one, later: no test of the wheel alone stands below those that ask for this."""
    user("python", *PIP, f"{wheel}[onnx,report,sklearn]")
    return user


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    package = {name for name in names if not re.match(r"linfdist-[^/]*\.dist-info/", name)}
    tracked = subprocess.run(["git", "ls-files", "-z", "linfdist"], cwd=ROOT / "src", capture_output=True, check=True)
    assert package == {*tracked.stdout.decode().strip("\0").split("\0"), "linfdist/_native.so"}
    described = {name.split("/", 1)[1] for name in names - package}
    assert described == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def test_the_wheel_is_small(wheel):
    size = wheel.stat().st_size
    assert size <= MOST_BYTES, f"{size:,} bytes: `unzip -v {wheel}` shows which files they are"


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
def test_auditwheel_names_a_policy(wheel):
    """Each symbol of each library is one that the policy's systems have; torch's own library is there once torch is."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print("policy:", shown["sym_tag"])
    assert shown["sym_tag"].startswith("manylinux_")
    assert shown["external_libs"].keys() <= {"libtorch_cpu.so"}
    assert not shown["unsupported_isa"]


def test_import(user):
    where, version = user.python("import linfdist as ld; print(ld.__file__); print(ld.__version__)").split()
    assert Path(where).is_relative_to(user.bin.parent)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    for extra in ("sklearn", "onnx", "matplotlib", "highspy"):  # else this is no test of the wheel alone
        assert user.try_to("python", "-c", f"import {extra}").returncode == 1


def test_info(user):
    assert re.search(r"^in use +native", user("linfdist", "info"), re.MULTILINE)


def test_zoo(user):
    shown = user("linfdist", "zoo", "list")
    assert {line.split()[0] for line in shown.splitlines() if line.strip()} > set(zoo.names())
    user.python("import linfdist as ld\nfor name in ld.zoo.names(): ld.load(name)")


def test_train(user):
    user.python(
        "import linfdist as ld\n"
        "few = ld.data.load('mnist', split='test')\n"
        "model = ld.train('mnist-quick', few.images[:512], few.labels[:512], settings={'width': 16, 'epochs': 1})\n"
        "assert ld.certify(model, few.images[:8] / 255, eps='0.1').radius.shape == (8,)"
    )


def test_certify(user):
    assert re.search(r"seven\.png \W+ 7 \W+ 0\.\d+", user("linfdist", "certify", "mnist-0.3", "seven.png"))


def test_evaluate(user):
    user("linfdist", "evaluate", "mnist-0.3", "--attack", "pgd", "--limit", "200")


def test_exact(user):
    user("linfdist", "export", "mnist-0.3", "--format", "exact", "--limit", "200")
    file = "runs/mnist-0.3/exact.safetensors"
    (user.folder / "seven.json").write_text(user("linfdist", "certify", "--exact", file, "seven.png"))
    assert "verified: class 7" in user("linfdist", "verify", "seven.json", "seven.png", file)


def test_demo(user):
    user("linfdist", "demo", "--no-open", "--out", "page.html")
    assert (user.folder / "page.html").stat().st_size > 100_000


def test_what_needs_an_extra_says_so(user):
    refused = user.try_to("linfdist", "export", "mnist-0.3", "--format", "onnx")
    assert refused.returncode == 1
    assert "pip install onnx" in refused.stderr
    refused = user.try_to("python", "-c", "import linfdist.sklearn")
    assert "pip install scikit-learn" in refused.stderr


def test_onnx(user_of_extras):
    user_of_extras("linfdist", "export", "mnist-0.3", "--format", "onnx", "--out", "model.onnx")
    user_of_extras.python(
        "import linfdist as ld, onnxruntime, torch\n"
        "images = ld.data.load('mnist', split='test').images[:50] / 255\n"
        "logits, radius = onnxruntime.InferenceSession('model.onnx').run(None, {'images': images.numpy()})\n"
        "model = ld.load('mnist-0.3')\n"
        "with torch.no_grad(): assert torch.equal(torch.from_numpy(logits), model(images))\n"
        "assert (torch.from_numpy(radius) <= ld.certify(model, images, eps='0.3', method='margin').radius).all()"
    )


def test_estimator(user_of_extras):
    user_of_extras.python(
        "from sklearn.datasets import load_breast_cancer\n"
        "from linfdist.sklearn import LinfDistClassifier\n"
        "X, y = load_breast_cancer(return_X_y=True)\n"
        "model = LinfDistClassifier(random_state=0).fit(X[:400], y[:400])\n"
        "assert model.certified_score(X[400:], y[400:], eps=0.02) > 0.5"
    )


def test_report(user_of_extras):
    user_of_extras("linfdist", "report", "runs/mnist-0.3")
