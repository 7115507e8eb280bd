"""What all of Kubernetes stands on, against a real API server and kubelets: ports of pods, logins, refusals."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from tests.bed.kubernetes import KubeBed
from tests.real.connect_proxy import ConnectProxy
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import config, forward
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ApiUnreachableError, ForbiddenError
from trainyard.seams.kube.types import NODE, POD, Object

NAMESPACE = "seams"
IMAGE = "trainyard-bed/base:1"
MIB = 1024 * 1024
# What a login of ours may keep in memory for a transfer of any size.
GROWTH = 48 * MIB

# Answers with so many bytes, with the digest of what it was sent, with its name, or never.
SERVER = """
import hashlib, http.server, os, socketserver, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    def log_message(self, *arguments): pass
    def answer(self, content):
        self.send_response(200); self.send_header("Content-Length", str(len(content))); self.end_headers()
        self.wfile.write(content)
    def do_GET(self):
        word = self.path.strip("/")
        if word == "name": return self.answer(os.environ["HOSTNAME"].encode())
        if word == "never": time.sleep(600)
        size = int(word)
        self.send_response(200); self.send_header("Content-Length", str(size)); self.end_headers()
        while size > 0:
            self.wfile.write(b"x" * min(size, 65536)); size -= 65536
    def do_PUT(self):
        left, seen = int(self.headers["Content-Length"]), hashlib.sha256()
        while left:
            part = self.rfile.read(min(left, 65536)); seen.update(part); left -= len(part)
        self.answer(seen.hexdigest().encode())
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, request_queue_size = True, 128
for count in range(3): print("line", count, flush=True)
Server(("0.0.0.0", 8000), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Place:
    """A namespace with pods that serve, as seen by its administrator."""

    bed: KubeBed
    kube: Kube

    def start(self, name: str) -> None:
        """Start a server, and wait until it answers for itself."""
        container: Object = {
            "name": "c",
            "image": f"{self.bed.registry}/{IMAGE}",
            "command": ["python3", "-c", SERVER],
            "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
        }
        body = {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
        self.kube.apply(POD, body, namespace=NAMESPACE)
        self.bed.kubectl("wait", "-n", NAMESPACE, "--for=condition=Ready", f"pod/{name}", "--timeout=120s")

    def port(self, find: Callable[[], str | None], *, what: str, port: int = 8000) -> int:
        """Return the port here that ends at the pod that `find` names."""
        return forward.forward(self.kube, namespace=NAMESPACE, find=find, port=port, what=what)


@pytest.fixture(scope="module")
def place(kube: KubeBed) -> Iterator[Place]:
    kube.publish(IMAGE)
    kube.kubectl("create", "namespace", NAMESPACE)
    made = Place(kube, config.connect(kube.environ()))
    try:
        made.start("server")
        yield made
    finally:
        kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def client(port: int, *, seconds: float = 60.0) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=seconds, trust_env=False)


def test_what_goes_through_a_port_forward_arrives_whole_and_is_kept_nowhere(place: Place) -> None:
    part, parts = os.urandom(MIB), 200
    expected = hashlib.sha256(part * parts).hexdigest()
    before = psutil.Process().memory_info().rss
    with client(place.port(lambda: "server", what="whole"), seconds=120) as http:
        length = {"Content-Length": str(parts * MIB)}
        assert http.put("/", content=(part for _ in range(parts)), headers=length).text == expected
        with http.stream("GET", f"/{parts * MIB}") as answer:
            assert sum(len(chunk) for chunk in answer.iter_raw()) == parts * MIB
    assert psutil.Process().memory_info().rss - before < GROWTH


def test_many_connections_at_once_do_not_wait_for_each_other(place: Place) -> None:
    port = place.port(lambda: "server", what="many")
    lengths: list[int] = []

    def ask() -> None:
        with client(port, seconds=120) as http:
            lengths.extend(len(http.get("/100000").content) for _ in range(3))

    with client(port) as waiting, pytest.raises(httpx.ReadTimeout):
        threads = [threading.Thread(target=ask) for _ in range(30)]
        for thread in threads:
            thread.start()
        waiting.get("/never", timeout=1.0)
    for thread in threads:
        thread.join()
    assert lengths == [100_000] * 90


def test_a_pod_that_was_replaced_costs_only_the_connections_that_were_open(place: Place) -> None:
    place.start("first")
    place.start("second")
    named = ["first"]
    port = place.port(lambda: named[0], what="replaced")
    with client(port) as http:
        assert http.get("/name").text == "first"
        named[0] = "second"
        assert http.get("/name").text == "first"
        place.kube.delete(POD, "first", namespace=NAMESPACE)
        with pytest.raises(httpx.TransportError) as broken:
            while http.get("/name").text == "first":
                pass
        assert not isinstance(broken.value, httpx.TimeoutException)
        assert http.get("/name").text == "second"


@pytest.mark.parametrize(
    ("find", "port", "why"),
    [
        (lambda: None, 8000, "nobody has no pod that runs in namespace seams"),
        (lambda: "gone", 8000, 'Kubernetes does not have it: pods "gone" not found'),
        (lambda: "server", 8001, "connection refused"),
    ],
    ids=["no pod is meant", "the pod is gone", "nobody listens"],
)
def test_a_connection_that_leads_nowhere_is_closed_at_once_and_says_why(
    place: Place, find: Callable[[], str | None], port: int, why: str, request: pytest.FixtureRequest
) -> None:
    # The name tells forwards apart; it is in one of the messages too.
    what = "nobody" if port == 8000 and find() is None else request.node.name
    here = place.port(find, what=what, port=port)
    with client(here) as http, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        http.get("/name")
    assert why in forward.last_error(here)


def test_a_user_of_one_namespace_hears_which_right_is_missing(place: Place) -> None:
    file = place.bed.restricted(NAMESPACE)
    kube = config.connect({**place.bed.environ(), "KUBECONFIG": str(file)})
    with pytest.raises(ForbiddenError) as missing:
        kube.list(NODE)
    assert missing.value.what == (
        "Kubernetes does not let user system:serviceaccount:seams:trainyard-user list nodes at the cluster scope"
    )
    port = forward.forward(kube, namespace=NAMESPACE, find=lambda: "server", port=8000, what="restricted")
    with client(port) as http:
        assert http.get("/name").text == "server"


def test_a_program_that_logs_in_is_asked_again_when_its_token_is_refused(place: Place, tmp_path: Path) -> None:
    token = yaml.safe_load(place.bed.restricted(NAMESPACE).read_text())["users"][0]["user"]["token"]
    (tmp_path / "tokens").write_text(f"no-such-token\n{token}\n")
    file = _with_plugin(
        place.bed,
        tmp_path,
        "token=$(head -1 tokens); sed -i 1d tokens; echo asked >> times\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\",'
        ' \\"status\\": {\\"token\\": \\"$token\\"}}"\n',
    )
    kube = config.connect({**place.bed.environ(), "KUBECONFIG": str(file)})
    found = kube.get(POD, "server", NAMESPACE)
    assert found and found["metadata"]["name"] == "server"
    assert (tmp_path / "times").read_text() == "asked\nasked\n"


def test_a_token_that_has_ended_is_no_matter_of_waiting(place: Place, tmp_path: Path) -> None:
    file = _with_user(place.bed, tmp_path, {"token": "no-such-token"})
    kube = config.connect({**place.bed.environ(), "KUBECONFIG": str(file)})
    with pytest.raises(PrerequisiteError) as refused:
        kube.serves(POD)
    assert refused.value.what == "the Kubernetes API does not accept the login of user bed: Unauthorized"
    port = forward.forward(kube, namespace=NAMESPACE, find=lambda: "server", port=8000, what="unknown")
    with client(port) as http, pytest.raises(httpx.TransportError):
        http.get("/name")
    assert forward.last_error(port) == refused.value.what


def test_the_server_of_another_ca_is_not_trusted(place: Place, tmp_path: Path) -> None:
    content = yaml.safe_load(place.bed.kubeconfig.read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    kube = config.connect({**place.bed.environ(), "KUBECONFIG": str(tmp_path / "config")})
    with pytest.raises(PrerequisiteError, match="the Kubernetes API's certificate is not to be trusted"):
        kube.serves(POD)


def test_a_server_that_accepts_and_never_answers_is_one_error_within_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        cluster = {"name": "lab", "cluster": {"server": server}}
        context = {"name": "lab", "context": {"cluster": "lab"}}
        (tmp_path / "config").write_text(
            yaml.safe_dump({"clusters": [cluster], "contexts": [context], "current-context": "lab"})
        )
        kube = config.connect({"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")})
        began = time.monotonic()
        with pytest.raises(ApiUnreachableError) as gone:
            kube.serves(POD)
    assert time.monotonic() - began < 30
    assert gone.value.lines()[:2] == [
        "the Kubernetes API does not answer: it took too long",
        f"  at {server} (context lab)",
    ]


def test_both_questions_and_port_forwards_go_through_a_proxy_unless_it_is_not_meant(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = ConnectProxy()
    proxy.start()
    api = place.bed.plane.url.removeprefix("https://")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    proxied = Kube(place.kube.access)
    port = forward.forward(proxied, namespace=NAMESPACE, find=lambda: "server", port=8000, what="proxied")
    with client(port) as http:
        assert http.get("/name").text == "server"
    assert proxied.get(POD, "server", NAMESPACE)
    assert proxy.asked == [api, api]
    monkeypatch.setenv("NO_PROXY", f"{place.bed.hosts[0].ip}/16")
    assert Kube(place.kube.access).get(POD, "server", NAMESPACE)
    assert proxy.asked == [api, api]


def _with_plugin(bed: KubeBed, home: Path, script: str) -> Path:
    program = home / "login"
    program.write_text(f"#!/bin/sh\ncd $(dirname $0)\n{script}")
    program.chmod(0o755)
    api = "client.authentication.k8s.io/v1"
    return _with_user(bed, home, {"exec": {"command": "./login", "apiVersion": api, "interactiveMode": "Never"}})


def _with_user(bed: KubeBed, home: Path, user: Object) -> Path:
    content = yaml.safe_load(bed.kubeconfig.read_text())
    content["users"][0]["user"] = user
    (home / "config").write_text(yaml.safe_dump(content))
    return home / "config"
