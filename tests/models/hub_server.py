"""A server on 127.0.0.1 that speaks the Hub's protocol as far as its client needs it to load and to upload a model."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Hub:
    """Repositories by name, each with its commits in order: files by name."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.asked: list[str] = []  # for which files
        self.tokens: set[str | None] = set()
        self.lie: dict[str, str] = {}  # headers to send in place of the true ones

    def commit(self, name: str, files: dict[str, bytes]) -> str:
        commits = self.repositories.setdefault(name, {})
        content = {**(commits[list(commits)[-1]] if commits else {}), **files}
        number = hashlib.sha1(repr((len(commits), sorted(content.items()))).encode()).hexdigest()
        commits[number] = content
        return number

    def find(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commits = self.repositories.get(name, {})
        number = list(commits)[-1] if revision == "main" and commits else revision
        return (number, commits[number]) if number in commits else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self) -> None:
        parts = self.path.lstrip("/").split("/", 4)
        if len(parts) < 5:
            return self.answer(404)
        owner, name, _, revision, file = parts
        self.hub.asked.append(file)
        found = self.hub.find(f"{owner}/{name}", revision)
        if found is None:
            known = f"{owner}/{name}" in self.hub.repositories
            return self.answer(404, X_Error_Code="RevisionNotFound" if known else "RepoNotFound")
        number, files = found
        if file not in files:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=number)
        tag = f'"{hashlib.sha256(files[file]).hexdigest()}"'
        headers = {"ETag": tag, "X_Repo_Commit": number, "Content_Type": "application/octet-stream"}
        return self.answer(200, files[file], **{**headers, **self.hub.lie})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.tokens.add(self.headers["Authorization"])
        parts = self.path.partition("?")[0].lstrip("/").split("/")
        lines: list[Any] = [json.loads(line) for line in content.splitlines()]
        if parts == ["api", "repos", "create"]:
            name = f"{lines[0]['organization']}/{lines[0]['name']}"
            self.hub.repositories.setdefault(name, {})
            return self.json({"url": f"{self.hub.url}/{name}"})
        if parts == ["api", "validate-yaml"]:
            return self.json({"errors": [], "warnings": []})
        if parts[4] == "preupload":
            files = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                     for each in lines[0]["files"]]  # fmt: skip
            return self.json({"files": files})
        assert parts[4] == "commit", self.path
        name = f"{parts[2]}/{parts[3]}"
        added = [line["value"] for line in lines if line["key"] == "file"]
        number = self.hub.commit(name, {each["path"]: base64.b64decode(each["content"]) for each in added})
        return self.json({"success": True, "commitOid": number, "commitUrl": f"{self.hub.url}/{name}/commit/{number}"})

    def json(self, value: Any) -> None:
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Handler,), {}))
    server.daemon_threads = True
    server.RequestHandlerClass.hub = hub = Hub(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
