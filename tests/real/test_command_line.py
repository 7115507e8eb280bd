"""The command line before any cluster: what it lists, explains and imports."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.real.yard import Yard
from trainyard.registry.certificates import make

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [str(Path(sys.executable).with_name(name)) for name in ("invoke", "trainyard")]
# What stands for Ctrl-C at a certain import.
INTERRUPTED = """
import os, signal, sys
class Ctrl:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Ctrl())
sys.argv = ["trainyard", "cluster.show"]
from trainyard.main import main
main()
"""
HEAVY = {"ray", "docker", "kubernetes", "paramiko", "boto3", "torch", "pydantic", "httpx", "rich"}


def test_the_list_of_tasks_imports_nothing_heavy() -> None:
    invoke = [sys.executable, "-X", "importtime", str(Path(sys.executable).with_name("invoke")), "--list"]
    done = subprocess.run(invoke, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    imported = {match[1].partition(".")[0] for match in re.finditer(r"\|\s+([\w.]+)$", done.stderr, re.MULTILINE)}
    assert "train.dispatch" in done.stdout
    assert "invoke" in imported
    assert imported & HEAVY == set()


def test_help_explains_every_flag(fresh: Yard) -> None:
    shown = fresh.run("--help", "train.dispatch").stdout
    for part in ("Directory that holds job.yaml", "Cluster file", "Set one value", "leave as soon as", "smoke gate"):
        assert part in shown
    assert fresh.run("train.dispatch", "--help").stdout == shown


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("words", [["--list"], ["cluster.show"], ["cluster.show", "-f", "no-such"]])
def test_a_reader_who_leaves_early_is_no_error(program: str, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    errors = writing if "no-such" in words else subprocess.PIPE
    done = subprocess.run(
        [program, *words], cwd=ROOT, stdout=writing, stderr=errors, text=True, timeout=60, check=False
    )
    os.close(writing)
    assert done.returncode in (0, -signal.SIGPIPE)
    assert "Error" not in (done.stderr or "")


@pytest.mark.parametrize("module", ["invoke.program", "trainyard.lifecycle"])
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(module: str) -> None:
    code = INTERRUPTED.format(name=module)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    # Before a command began it is the signal that ends the process, which a shell calls 130 too.
    assert (done.returncode, done.stderr) in ((-signal.SIGINT, ""), (130, "error: interrupted\n"))


@pytest.mark.parametrize("words", [["cluster.up"], ["train.dispatch", "train"]])
def test_a_wrong_file_is_one_error_and_nothing_is_made(tmp_path: Path, words: list[str]) -> None:
    yard = Yard(tmp_path)
    yard.write_cluster("name: {name}\nbackend: local\nhed: {{}}\n")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "job.yaml").write_text("command: [python, train.py]\n")
    before = sorted(tmp_path.rglob("*"))
    refused = yard.run(*words, expect=2)
    said = (
        "the cluster file is wrong: 1 problem\n  - clusters/yard.yaml:3: hed: is not a known key; did you mean 'head'?"
    )
    assert (refused.stdout, refused.stderr) == ("", f"error: {said}\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_shell_is_told_what_may_follow(fresh: Yard) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\n", name="lab")
    assert "lab" in fresh.run("--complete", "--", "trainyard", "cluster.up", "-f").stdout.splitlines()
    assert "complete -F" in fresh.run("--print-completion-script", "bash").stdout


class Unknowing(BaseHTTPRequestHandler):
    """A Kubernetes that does not know us."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.answered += 1  # type: ignore[attr-defined]

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def unknowing(tmp_path: Path) -> Iterator[HTTPServer]:
    now = datetime.now(timezone.utc)
    pair = make("127.0.0.1", now=now)
    file = tmp_path / "pair.pem"
    file.write_bytes(pair.certificate + pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with ThreadingHTTPServer(("127.0.0.1", 0), Unknowing) as server:
        server.answered = 0  # type: ignore[attr-defined]
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_a_certificate_that_nobody_checks_is_said_once(fresh: Yard, unknowing: HTTPServer) -> None:
    address = f"https://127.0.0.1:{unknowing.server_port}"
    kubeconfig = {
        "clusters": [{"name": "lab", "cluster": {"server": address, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        "current-context": "lab",
    }
    (fresh.home / "kubeconfig").write_text(json.dumps(kubeconfig))
    fresh.environ["KUBECONFIG"] = str(fresh.home / "kubeconfig")
    file = fresh.home / "lab.yaml"
    file.write_text("name: lab\nbackend: kuberay\nhead: {cpus: 1}\n")
    done = fresh.run("cluster.plan", "-f", str(file), expect=None)
    assert unknowing.answered > 1  # type: ignore[attr-defined]
    about = [line for line in done.stderr.splitlines() if "arning" in line]
    said = f"warning: the certificate of {address} is not checked: its kubeconfig says insecure-skip-tls-verify"
    assert about == [said], done.stderr
