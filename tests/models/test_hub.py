"""Networks in the form of the Hugging Face Hub: in folders, and over its protocol, with a local server."""

import hashlib
import json
import pickle
import shutil
import sys

import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist.cli import app
from linfdist.files import file_sha256
from linfdist.models import DistNet, hub
from linfdist.runs.folder import Run

from .hub_server import serving

NAME = "hf:somebody/net"


def small():
    torch.manual_seed(1)
    return DistNet((1, 4, 4), 3, 8, 3, [0.3], 0.3).eval()


def same(one, other):
    x = torch.rand(5, *one.shape)
    return torch.equal(one(x), other(x))


@pytest.fixture
def folder(tmp_path):
    return ld.save_pretrained(small(), tmp_path / "net")


@pytest.fixture
def client(monkeypatch, tmp_path):
    """The client, which asks the server alone, and keeps files in a folder of this test."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="the extra `hub`")
    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield server


def commit(client, folder, **changes):
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return client.commit("somebody/net", {**files, **{name.replace("_", "."): each for name, each in changes.items()}})


# --- folders ---


def test_a_folder_holds_the_network_its_sha256_and_a_card(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert same(ld.load(folder), small())
    config = json.loads((folder / "config.json").read_text())
    assert config["sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert config["measured"] is None
    assert config["sha256"] in (folder / "README.md").read_text()
    assert "model-index" not in (folder / "README.md").read_text()


def test_another_file_in_the_folder_is_refused(folder):
    ld.save(DistNet((1, 4, 4), 3, 8, 3, [0.3], 0.3), folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors has the sha256 .*config.json beside it says"):
        ld.load(folder)


def test_a_network_of_the_zoo_keeps_its_bytes_and_its_numbers(tmp_path):
    card = ld.zoo.card("mnist-0.3")
    folder = ld.save_pretrained("mnist-0.3", tmp_path / "net")
    config = json.loads((folder / "config.json").read_text())
    assert config["sha256"] == card.sha256
    assert config["measured"]["certified"] == card.certified
    assert f"| proved at ε = 0.3 ({card.method}) |" in (folder / "README.md").read_text()
    assert same(ld.load(folder), ld.load("mnist-0.3"))


def test_the_hub_reads_the_numbers_of_a_run(digits, digits_run, tmp_path):
    package = pytest.importorskip("huggingface_hub", reason="the extra `hub`")
    run = shutil.copytree(digits_run, tmp_path / 'run "1": {x}')
    test = ld.data.load("digits", "test", digits)
    ld.evaluate(ld.load(run), test, "0.05", run, run / "model.safetensors", limit=60, attacks=["pgd"])
    text = (ld.save_pretrained(run, tmp_path / "net") / "README.md").read_text()
    read, summary = package.ModelCard(text).data, Run(run).summary
    assert 'ld.certify(network, images, eps="0.05")' in text
    assert read.library_name == "linfdist"
    assert read.model_name == 'run "1": {x}'
    values = {each.metric_name: each.metric_value for each in read.eval_results}
    assert values["clean accuracy, %"] == summary["clean"]
    assert values["proved at ε = 0.05 (box), %"] == summary["certified"]
    assert values["survive pgd at ε = 0.05, %"] == summary["attacks"]["pgd"]
    assert {(each.dataset_type, each.dataset_split) for each in read.eval_results} == {("digits", "test")}
    network, results = ld.load(run), tmp_path / "results"
    ld.evaluate(network, test, "0.05", results, limit=20)  # in memory: the results name its weights
    again = ld.save_pretrained(network, tmp_path / "same", results=results)
    assert json.loads((again / "config.json").read_text())["measured"]["n"] == 20
    with pytest.raises(ValueError, match="is an evaluation of another network"):
        ld.save_pretrained(small(), tmp_path / "other", results=run)


def test_a_mean_whose_member_would_be_left_behind_is_refused(tmp_path):
    ld.save(small(), tmp_path / "one.safetensors")
    mean = ld.models.Mean([small(), DistNet((1, 4, 4), 3, 8, 3, [0.3], 0.3)]).eval()
    ld.save(mean, tmp_path / "mean.safetensors", members=["one"])
    with pytest.raises(FileNotFoundError, match="is a mean with 'one', which is neither beside it nor in the zoo"):
        ld.save_pretrained(tmp_path / "mean.safetensors", tmp_path / "net")
    assert not (tmp_path / "net").exists()
    assert same(ld.load(ld.save_pretrained(mean, tmp_path / "net")), mean)


def test_an_exact_network(tmp_path):
    exact = ld.exact.freeze(small())
    found = ld.load(ld.save_pretrained(exact, tmp_path / "exact"))
    assert found.exact
    x = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8)
    assert torch.equal(found(x), exact(x))


def test_a_run_is_not_overwritten(digits_run):
    before = sorted(digits_run.iterdir())
    with pytest.raises(FileExistsError, match="choose another folder"):
        ld.save_pretrained(small(), digits_run)
    assert sorted(digits_run.iterdir()) == before


def test_what_is_no_network_is_named(tmp_path):
    with pytest.raises(TypeError, match="network must be a network, got Linear"):
        ld.save_pretrained(torch.nn.Linear(2, 2), tmp_path / "net")


# --- over the protocol ---


def test_what_is_pushed_is_loaded(client):
    pinned = ld.push_to_hub(small(), "somebody/net")
    assert client.tokens == {"Bearer hf_test"}
    assert same(ld.load(NAME), small())
    assert same(ld.load(pinned), small())
    ld.push_to_hub(DistNet((1, 4, 4), 3, 8, 3, [0.3], 0.3).eval(), "somebody/net")
    assert not same(ld.load(NAME), small())
    assert same(ld.load(pinned), small())
    assert set(client.asked) == {"config.json", "model.safetensors"}


def test_what_was_loaded_is_loaded_again_without_the_hub(client, folder, monkeypatch):
    commit(client, folder)
    ld.load(NAME)
    monkeypatch.setattr(sys.modules["huggingface_hub.constants"], "HF_HUB_OFFLINE", True)
    client.repositories.clear()
    assert same(ld.load(NAME), small())


@pytest.mark.parametrize(
    "name",
    [
        "hf:net", "hf:../net", "hf:somebody/..", "hf:a/b/c", "hf:a/b@../../main", "hf:a/b@refs/pr/1", "hf:a\\b/c",
        "hf:/etc/passwd", "hf:a/b#12", "hf:a--b/c", "hf:a/b..c", "hf:", "hf:a/b\n", "hf:a/b?x=1", f"hf:{'a' * 97}/b",
    ],
)  # fmt: skip
def test_names_that_could_be_paths_are_refused(client, name):
    with pytest.raises(ValueError, match="names no network on the Hub: write hf:owner/name"):
        ld.load(name)
    assert not client.asked


def test_a_network_with_another_sha256_is_refused(client, folder):
    number = commit(client, folder)
    with pytest.raises(ValueError, match=r"sha256 .*, but what was asked for says '000"):
        ld.load(f"{NAME}@{number}#{'0' * 64}")
    config = json.loads((folder / "config.json").read_text()) | {"sha256": "0" * 64}
    commit(client, folder, config_json=json.dumps(config).encode())
    with pytest.raises(ValueError, match=r"sha256 .*, but its config.json says '000"):
        ld.load(NAME)


@pytest.mark.parametrize("config", [b"{}", b"[]", b"{", b'{"format": "other", "auto_map": {"AutoModel": "x.Net"}}'])
def test_a_repository_of_something_else_is_refused(client, folder, config):
    commit(client, folder, config_json=config)
    with pytest.raises(ValueError, match=r"config.json"):
        ld.load(NAME)


def test_no_code_and_no_pickle_is_loaded(client, folder, tmp_path):
    """Files that other libraries execute are not asked for; what is called safetensors must be that."""
    trap = tmp_path / "opened"

    class Trap:
        def __reduce__(self):
            return open, (str(trap), "w")

    evil = pickle.dumps(Trap())
    commit(client, folder, pytorch_model_bin=evil, modeling_py=f"open({str(trap)!r}, 'w')".encode())
    ld.load(NAME)
    assert set(client.asked) == {"config.json", "model.safetensors"}
    config = json.loads((folder / "config.json").read_text()) | {"sha256": hashlib.sha256(evil).hexdigest()}
    client.commit("somebody/net", {"model.safetensors": evil, "config.json": json.dumps(config).encode()})
    with pytest.raises(ValueError, match="is not a safetensors file"):
        ld.load(NAME)
    assert not trap.exists()


def test_huge_files_are_not_fetched(client, folder, monkeypatch):
    commit(client, folder)
    monkeypatch.setattr(hub, "MOST_MODEL_BYTES", 1000)
    with pytest.raises(ValueError, match=r"its model.safetensors has \d+ bytes, expected at most 1,000"):
        ld.load(NAME)
    assert client.asked.count("model.safetensors") == 1  # for its size


def test_a_commit_that_is_a_path_is_refused(client, folder, tmp_path):
    commit(client, folder)
    client.lie = {"X_Repo_Commit": "../../../evil"}
    with pytest.raises(ValueError, match="Invalid pointer path"):
        ld.load(NAME)
    assert not list(tmp_path.rglob("evil*"))


def test_what_is_missing_is_named(client, folder):
    with pytest.raises(OSError, match=r"hf:somebody/net: config.json cannot be fetched"):
        ld.load(NAME)
    client.commit("somebody/net", {"README.md": b"nothing else"})
    with pytest.raises(OSError, match=r"hf:somebody/net: config.json cannot be fetched"):
        ld.load(NAME)
    commit(client, folder)
    with pytest.raises(OSError, match=r"@none: config.json cannot be fetched"):
        ld.load(f"{NAME}@none")


def test_commands_take_the_name(client, digits, digits_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ld.push_to_hub(digits_run, "somebody/net")
    words = ["evaluate", NAME, "--data", "digits", "--eps", "0.05", "--limit", "10", "--data-dir", str(digits)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert Run("runs/net").summary["model_sha256"] == file_sha256(digits_run / "model.safetensors")


def test_a_name_to_push_to_has_no_revision(client):
    with pytest.raises(ValueError, match="must be owner/name"):
        ld.push_to_hub(small(), "somebody/net@main")


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install 'huggingface_hub>=2'"):
        ld.load(NAME)
