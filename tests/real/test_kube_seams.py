"""The Kubernetes backend's base on a real API server and kubelets: port forwards and logins."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from tests.bed.kubernetes import KubeBed
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import api, config, forward
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ApiUnreachableError
from trainyard.seams.kube.types import POD, Object

NAMESPACE = "seams"
IMAGE = "trainyard-bed/base:1"
MIB = 1024 * 1024
# The process may have grown by so much memory after a transfer of any size.
GROWTH = 48 * MIB

# Answers with a number of bytes, with the digest of its input, or never.
SERVER = """
import hashlib, http.server, socketserver, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    def log_message(self, *arguments): pass
    def answer(self, content):
        self.send_response(200); self.send_header("Content-Length", str(len(content))); self.end_headers()
        self.wfile.write(content)
    def do_GET(self):
        word = self.path.strip("/")
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
Server(("0.0.0.0", 8000), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def lab(kube: KubeBed) -> Iterator[Kube]:
    """Give an administrator's access to a Kubernetes, with a pod that serves."""
    kube.publish(IMAGE)
    kube.kubectl("create", "namespace", NAMESPACE)
    lab = api.connect(config.access(kube.environ()))

    container: Object = {
        "name": "c",
        "image": f"{kube.registry}/{IMAGE}",
        "command": ["python3", "-c", SERVER],
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    }

    pod = {
        "metadata": {"name": "server"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    try:
        lab.apply(POD, pod, namespace=NAMESPACE)
        kube.kubectl(
            "wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/server", "--timeout=120s"
        )
        yield lab
    finally:
        kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def port(kube: Kube, *, what: str) -> int:
    """Return a local port that is forwarded to the server's."""
    return forward.forward(kube, namespace=NAMESPACE, find=lambda: "server", port=8000, what=what)


def client(port: int, *, seconds: float = 60.0) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=seconds, trust_env=False)


def test_data_through_a_port_forward_arrives_whole_and_is_kept_nowhere(lab: Kube) -> None:
    part, parts = os.urandom(MIB), 200
    expected = hashlib.sha256(part * parts).hexdigest()
    before = psutil.Process().memory_info().rss
    with client(port(lab, what="whole"), seconds=120) as http:
        length = {"Content-Length": str(parts * MIB)}
        assert http.put("/", content=(part for _ in range(parts)), headers=length).text == expected
        with http.stream("GET", f"/{parts * MIB}") as answer:
            assert sum(len(chunk) for chunk in answer.iter_raw()) == parts * MIB
    assert psutil.Process().memory_info().rss - before < GROWTH


def test_many_connections_at_once_do_not_wait_for_each_other(lab: Kube) -> None:
    here = port(lab, what="many")
    lengths: list[int] = []

    def ask() -> None:
        with client(here, seconds=120) as http:
            lengths.extend(len(http.get("/100000").content) for _ in range(3))

    with client(here) as waiting, pytest.raises(httpx.ReadTimeout):
        threads = [threading.Thread(target=ask) for _ in range(30)]
        for thread in threads:
            thread.start()
        waiting.get("/never", timeout=1.0)

    for thread in threads:
        thread.join()

    assert lengths == [100_000] * 90


def test_a_program_that_logs_in_is_asked_again_when_its_token_is_refused(
    kube: KubeBed, lab: Kube, tmp_path: Path
) -> None:
    token = yaml.safe_load(kube.restricted(NAMESPACE).read_text())["users"][0]["user"]["token"]
    (tmp_path / "tokens").write_text(f"no-such-token\n{token}\n")
    file = _with_plugin(
        kube,
        tmp_path,
        "token=$(head -1 tokens); sed -i 1d tokens; echo asked >> times\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": '
        '\\"ExecCredential\\",'
        ' \\"status\\": {\\"token\\": \\"$token\\"}}"\n',
    )

    lab = api.connect(config.access({**kube.environ(), "KUBECONFIG": str(file)}))
    found = lab.get(POD, "server", NAMESPACE)
    assert found and found["metadata"]["name"] == "server"
    assert (tmp_path / "times").read_text() == "asked\nasked\n"


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (
            "echo 'The SSO session has expired: log in' >&2; exit 255",
            "returned 255. The SSO session has expired",
        ),
        ("echo '{}'", "missing key"),
        ("exit 1", "returned 1"),
    ],
)
def test_a_login_command_that_fails_is_named_with_its_words(
    tmp_path: Path, login: str, reason: str
) -> None:
    command = tmp_path / "login"
    command.write_text(f"#!/bin/sh\n{login}\n")
    command.chmod(0o755)
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(command),
        "interactiveMode": "Never",
    }

    document = {
        "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"exec": program}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        "current-context": "lab",
    }

    (tmp_path / "config").write_text(yaml.safe_dump(document))
    with pytest.raises(PrerequisiteError) as caught:
        api.connect(
            config.access({"HOME": str(tmp_path)}, kubeconfig=str(tmp_path / "config"))
        ).serves(POD)

    assert "user me cannot log in" in caught.value.what
    assert reason in caught.value.what


def test_a_remote_port_without_a_listener_is_reported(lab: Kube) -> None:
    here = forward.forward(
        lab, namespace=NAMESPACE, find=lambda: "server", port=8001, what="the server"
    )
    with client(here) as http, pytest.raises(httpx.TransportError):
        http.get("/1")
    assert forward.last_error(here) == "the server does not listen on port 8001"


def test_a_token_that_has_ended_is_no_matter_of_waiting(
    kube: KubeBed, lab: Kube, tmp_path: Path
) -> None:
    file = _with_user(kube, tmp_path, {"token": "no-such-token"})
    lab = api.connect(config.access({**kube.environ(), "KUBECONFIG": str(file)}))
    with pytest.raises(PrerequisiteError) as refused:
        lab.serves(POD)
    assert (
        refused.value.what
        == "the Kubernetes API does not accept the login of user bed: Unauthorized"
    )
    here = port(lab, what="unknown")
    with client(here) as http, pytest.raises(httpx.TransportError):
        http.get("/1")
    assert forward.last_error(here) == refused.value.what


def test_the_server_of_another_ca_is_not_trusted(kube: KubeBed, lab: Kube, tmp_path: Path) -> None:
    content = yaml.safe_load(kube.kubeconfig.read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    lab = api.connect(config.access({**kube.environ(), "KUBECONFIG": str(tmp_path / "config")}))
    with pytest.raises(PrerequisiteError, match="the Kubernetes API's certificate is not trusted"):
        lab.serves(POD)


def test_a_server_that_accepts_and_is_silent_is_one_error_within_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        cluster = {"name": "lab", "cluster": {"server": server}}
        context = {"name": "lab", "context": {"cluster": "lab"}}
        (tmp_path / "config").write_text(
            yaml.safe_dump({"clusters": [cluster], "contexts": [context], "current-context": "lab"})
        )
        kube = api.connect(
            config.access({"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")})
        )
        began = time.monotonic()

        with pytest.raises(ApiUnreachableError) as gone:
            kube.serves(POD)

    assert time.monotonic() - began < 30
    assert gone.value.lines()[:2] == [
        "the Kubernetes API does not answer: it took too long",
        f"  at {server} (context lab)",
    ]


def _with_plugin(bed: KubeBed, home: Path, script: str) -> Path:
    program = home / "login"
    program.write_text(f"#!/bin/sh\ncd $(dirname $0)\n{script}")
    program.chmod(0o755)
    api = "client.authentication.k8s.io/v1"
    return _with_user(
        bed, home, {"exec": {"command": "./login", "apiVersion": api, "interactiveMode": "Never"}}
    )


def _with_user(bed: KubeBed, home: Path, user: Object) -> Path:
    content = yaml.safe_load(bed.kubeconfig.read_text())
    content["users"][0]["user"] = user
    (home / "config").write_text(yaml.safe_dump(content))
    return home / "config"
