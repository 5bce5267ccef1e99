"""The text of the page, and the commands that write it: no browser needed."""

import base64
import hashlib
import json
import re

import pytest
from typer.testing import CliRunner

from linfdist import exact
from linfdist.cli import app
from linfdist.export.html import MODULES, page, script_text

from ..exact.nets import random_net


@pytest.fixture(scope="module")
def network():
    return exact.freeze(random_net(0))


def test_it_holds_the_file_itself(network, tmp_path):
    exact.save(network, tmp_path / "net")
    content = (tmp_path / "net").read_bytes()
    text = page(network, "small")
    assert base64.b64decode(re.search(r'id="network-data">([^<]*)<', text)[1]) == content
    assert page(content, "small") == text


def test_only_its_own_script_may_run_and_nothing_may_be_asked(network):
    text = page(network, "small")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, tag in (("script", '<script type="module">'), ("style", "<style>")):
        (content,) = re.findall(f"{tag}(.*?)</{kind}>", text, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text.replace(script_text(), ""))


def test_modules_are_joined_whole():
    script = script_text()
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert "</script" not in script.lower()
    assert "<!--" not in script
    assert "innerHTML" not in script
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names))
    assert len(names) > 40
    assert len(MODULES) == len(set(MODULES))


@pytest.mark.parametrize("name", ["</script>", "a & b", '"><b>', "$data"])
def test_names_are_escaped(network, name):
    text = page(network, name, [name] * 4)
    assert text.count("<script") == text.count("</script>") == 3
    (data,) = re.findall(r'id="page-data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["classes"] == [name] * 4
    if "<" in name:
        assert name not in data


def test_commands(network, tmp_path, monkeypatch):
    """A page of an exact network is written beside it, opened unless told otherwise, and its size is stated."""
    exact.save(network, tmp_path / "small.safetensors")
    seen = []
    monkeypatch.setattr("webbrowser.open", lambda address: seen.append(address) or True)
    model = str(tmp_path / "small.safetensors")
    done = CliRunner().invoke(app, ["demo", model])
    target = tmp_path / "small" / "page.html"
    assert done.exit_code == 0, done.output
    assert f"({target.stat().st_size:,} bytes)" in done.output
    assert seen == [target.as_uri()]
    done = CliRunner().invoke(app, ["demo", model, "--no-open", "--out", str(tmp_path / "other.html")])
    assert done.exit_code == 0, done.output
    assert len(seen) == 1
    assert (tmp_path / "other.html").read_text() == target.read_text()
    done = CliRunner().invoke(app, ["export", model, "--format", "html", "--k", "3"])
    assert done.exit_code == 1
    assert "--k: only for float networks" in done.output


def test_facts_of_a_file_name_no_folder(tmp_path, monkeypatch):
    """What a file says it was measured on is looked up among the known data sets, never opened as a path."""
    facts = {"accuracy": {"data": str(tmp_path), "eps": "17 or so"}}
    exact.save(exact.freeze(random_net(0), facts=facts), tmp_path / "small.safetensors")
    done = CliRunner().invoke(app, ["demo", str(tmp_path / "small.safetensors"), "--no-open"])
    assert done.exit_code == 0, done.output
    assert "no test images on the page" in done.output
