"""Commands that need no cluster: lists, help, completion, errors and what they import."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.yard import Yard

pytestmark = pytest.mark.core

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [str(Path(sys.executable).with_name(name)) for name in ("invoke", "trainyard")]
# Sends itself Ctrl-C's signal when a certain module is imported.
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
    invoke = [
        sys.executable,
        "-X",
        "importtime",
        str(Path(sys.executable).with_name("invoke")),
        "--list",
    ]

    done = subprocess.run(invoke, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    imported = {
        match[1].partition(".")[0]
        for match in re.finditer(r"\|\s+([\w.]+)$", done.stderr, re.MULTILINE)
    }
    assert "train.dispatch" in done.stdout
    assert "invoke" in imported
    assert imported & HEAVY == set()


def test_help_explains_every_flag(fresh: Yard) -> None:
    shown = fresh.run("--help", "train.dispatch").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "Usage: trainyard train.dispatch JOB_DIR [FLAGS]"
    for line in (
        "JOB_DIR Directory that holds job.yaml, or a bare name of jobs/.",
        "--no-wait Return as soon as the run has begun.",
        "--skip-smoke Start without the smoke gate.",
        "trainyard train.dispatch jobs/spirals",
    ):
        assert line in lines
    assert "-f, --file FILE" in shown
    assert "-s, --set PATH=VALUE" in shown
    assert fresh.run("train.dispatch", "--help").stdout == shown


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("words", [["--list"], ["cluster.show"], ["cluster.show", "-f", "no-such"]])
def test_a_reader_who_leaves_early_is_no_error(program: str, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    errors = writing if "no-such" in words else subprocess.PIPE

    done = subprocess.run(
        [program, *words],
        cwd=ROOT,
        stdout=writing,
        stderr=errors,
        text=True,
        timeout=60,
        check=False,
    )

    os.close(writing)
    assert done.returncode in (0, -signal.SIGPIPE)
    assert "Error" not in (done.stderr or "")


@pytest.mark.parametrize("module", ["invoke.program", "trainyard.operations.clusters"])
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(module: str) -> None:
    code = INTERRUPTED.format(name=module)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Before a command begins, the signal itself ends the process: a shell reports that as 130 too.
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
        "the cluster file is wrong: 1 problem\n  - clusters/yard.yaml:3: hed: is not a known "
        "key; did you mean 'head'?"
    )
    assert (refused.stdout, refused.stderr) == ("", f"error: {said}\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_shell_is_told_what_may_follow(fresh: Yard) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\n", name="lab")
    assert (
        "lab" in fresh.run("--complete", "--", "trainyard", "cluster.up", "-f").stdout.splitlines()
    )
    assert "complete -F" in fresh.run("--print-completion-script", "bash").stdout


@pytest.mark.parametrize("command", ["image.push", "registry.up"])
def test_a_registry_that_nodes_elsewhere_could_not_reach_gets_no_image(
    fresh: Yard, command: str
) -> None:
    file = fresh.write_cluster("name: {name}\nbackend: kuberay\n", name="k8")
    refused = fresh.run(command, "-f", "k8", expect=2)
    file.unlink()

    assert refused.stderr.splitlines()[-3:] == [
        (
            "error: the nodes of cluster k8 pull images from a registry, and the cluster file names "
            "none"
        ),
        f"  at {Path('clusters', 'k8.yaml')}",
        "  -> Write `registry: {address: HOST:PORT}` with an address that the nodes reach too, "
        "then `trainyard "
        "registry.up -f k8` if it is to run here; or name an image that is in a registry already: "
        "`image: REGISTRY/NAME:TAG`.",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "words", [["cluster.plan"], ["train.list"], ["cluster.list", "--json"], ["--list"]]
)
def test_text_outside_a_terminals_encoding_is_no_error(
    fresh: Yard, encoding: str, words: list[str]
) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\nworkers: [{{name: gpu, count: 2}}]\n")
    environ = {**fresh.env(), "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        fresh.command(*words), cwd=fresh.home, env=environ, capture_output=True, timeout=60
    )
    assert (done.returncode, b"a bug in trainyard" in done.stderr) == (0, False), done
    if "--json" in words:
        json.loads(done.stdout.decode(encoding))


@pytest.mark.parametrize(
    ("words", "to", "code"),
    [
        (["train.list"], ">/dev/full", 6),
        (["cluster.list", "--json"], ">/dev/full", 6),
        (["--help"], ">/dev/full", 6),
        (["--list"], ">/dev/full", 6),
        (["--version"], ">/dev/full", 6),
        (["cluster.up", "--help"], ">/dev/full", 6),
        (["nonsense", "--json"], ">/dev/full", 6),
        (["nonsense"], "2>/dev/full", 2),
        (["train.list"], "2>/dev/full", 0),
        (["train.list"], ">&-", 0),
        (["cluster.list", "--json"], ">&- 2>&-", 0),
    ],
)
def test_output_without_room_is_an_error_and_closed_output_is_none(
    fresh: Yard, words: list[str], to: str, code: int
) -> None:
    line = f"exec {shlex.join(fresh.command(*words))} {to}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=fresh.home, env=fresh.env(), capture_output=True, timeout=60
    )
    assert (done.returncode, b"a bug" in done.stderr, b"Traceback" in done.stderr) == (
        code,
        False,
        False,
    ), done


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "HOME"])
@pytest.mark.parametrize("kind", ["file", "link to nothing"])
def test_a_file_or_dead_link_in_place_of_a_directory_is_named(
    fresh: Yard, variable: str, kind: str
) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\n")
    place = fresh.home / "place"
    place.touch() if kind == "file" else place.symlink_to("nothing")
    environ = {name: text for name, text in fresh.env().items() if name != "XDG_STATE_HOME"} | {
        variable: str(place)
    }

    done = subprocess.run(
        fresh.command("cluster.up"),
        cwd=fresh.home,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, "Traceback" in done.stderr, str(place) in done.stderr) == (
        3,
        False,
        True,
    ), done


def test_a_directory_that_is_gone_is_no_bug(fresh: Yard) -> None:
    line = (
        f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.join(fresh.command('train.list'))}"
    )
    done = subprocess.run(
        ["sh", "-c", line], cwd=fresh.home, env=fresh.env(), capture_output=True, timeout=60
    )
    assert (done.returncode, b"the directory of this shell is gone" in done.stderr) == (3, True), (
        done
    )


def test_a_proxy_that_does_not_answer_is_named(fresh: Yard) -> None:
    fresh.write_cluster(
        'name: {name}\nbackend: existing\nexisting: {{address: "http://192.0.2.1:8265", '
        "token_env: T}}\n"
    )
    proxy = {"T": "x", "http_proxy": "http://user:secret@127.0.0.1:9", "no_proxy": ""}
    said = (
        Yard(fresh.home, fresh.cluster, {**fresh.environ, **proxy})
        .run("smoke.run", expect=None)
        .stderr
    )
    assert "http://192.0.2.1:8265, through the proxy 127.0.0.1:9" in said
    assert "secret" not in said


def test_a_read_only_home_is_named_with_the_variable_that_helps(fresh: Yard) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\n")
    environ = {name: text for name, text in fresh.env().items() if name != "XDG_STATE_HOME"}
    # No user, root included, can make a directory there.
    environ["HOME"] = "/sys/kernel"

    done = subprocess.run(
        fresh.command("cluster.up"),
        cwd=fresh.home,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 3, done
    assert "this user may not use /sys/kernel/.local/state/trainyard" in done.stderr
    assert "export XDG_STATE_HOME=DIR" in done.stderr
