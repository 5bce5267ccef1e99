"""Where the proved checker is missing, one line says so, and what to do."""

import pytest
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.exact import proved

from ..fixtures import FIXTURES


@pytest.mark.parametrize("named", [True, False])
def test_a_missing_checker_is_named(named, monkeypatch, tmp_path):
    monkeypatch.setattr(proved, "BUILT", tmp_path / "built")
    monkeypatch.delenv(proved.VARIABLE, raising=False)
    if named:
        monkeypatch.setenv(proved.VARIABLE, str(tmp_path))  # a folder is no program
    files = [str(FIXTURES / name) for name in ("certificate.json", "image.png", "exact.safetensors")]
    result = CliRunner().invoke(app, ["verify", *files, "--proved"])
    assert result.exit_code == 1
    assert "verified" not in result.stdout
    assert "the proved checker is missing" in result.stderr
    with pytest.raises(proved.NoChecker, match="make prove"):
        proved.find()
