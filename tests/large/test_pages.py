"""The commands of README and docs, each page in a fresh HOME, with plain pip, on several Pythons.

tests/pages.py says how the source of a page names what runs.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pages
from tests.bed.places import all_must_run
from tests.pages import ROOT, Block

PYTHONS = ("3.10", "3.13")
# Prefixes of variables that say how this machine reaches package registries.
REGISTRIES = (
    "PIP_",
    "UV_",
    "SSL_CERT_",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
ALL = {name: pages.read(name, (ROOT / name).read_text()) for name in pages.names()}
WITH_COMMANDS = [name for name, page in ALL.items() if any(block.is_run for block in page.blocks)]


def python(version: str) -> str:
    """Return a Python of this version, from pyenv or PATH; without one, skip or fail."""
    found = shutil.which(f"python{version}")
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    if kept:
        return str(kept[-1])
    if found is None and all_must_run():
        pytest.fail(f"Python {version} is not installed")
    if found is None:
        pytest.skip(f"Python {version} is not installed")
    return found


def script(name: str) -> str:
    """Return a page as a script that ends at the first unexpected exit code."""
    lines: list[str] = []
    for page, block in pages.to_run(ALL[name], ALL):
        if block.is_run:
            lines += _run(page, block)
        else:
            path = shlex.quote(block.directives["file"])
            text = shlex.quote("\n".join(block.lines) + "\n")
            lines += [f"mkdir -p $(dirname {path})", f"printf %s {text} > {path}"]
    return "\n".join(lines)


def _run(page: str, block: Block) -> Iterator[str]:
    commands = list(complete(block.commands))
    for command in commands:
        expected = int(block.directives.get("exit", 0)) if command == commands[-1] else 0
        yield f"printf '%s\\n' {shlex.quote('$ ' + command)}"
        yield command
        said = f"{page}:{block.line}: exit"
        yield (
            f'_code=$?; [ $_code = {expected} ] || {{ echo "{said} $_code, not {expected}"; '
            "exit 99; }"
        )


def complete(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield the commands of a block; a command of several lines ends where bash accepts it."""
    pending: list[str] = []
    for line in lines:
        pending.append(line)
        text = "\n".join(pending)
        checked = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
        # bash only warns of a here-document without an end.
        if checked.returncode == 0 and not checked.stderr and not line.endswith("\\"):
            pending = []
            if text.strip() and not text.lstrip().startswith("#"):
                yield text
    if pending:
        yield "\n".join(pending)


def environment(home: Path, program: str) -> dict[str, str]:
    """Return a new user's environment, in which `python3` is this program."""
    tools = home / "bin"
    tools.mkdir()
    for name in ("python3", "python"):
        (tools / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (tools / name).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if key.startswith(REGISTRIES)}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Give a HOME with a clone of this repository; then remove the clusters that a page left."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "trainyard")], check=True)
    yield tmp_path
    for record in tmp_path.glob(".local/state/trainyard/clusters/*/cluster.json"):
        made_from = json.loads(record.with_name("made-from").read_text())
        words = ["cluster.down", "-f", made_from["file"], "--end-runs"]
        down = [str(Path(sys.executable).with_name("trainyard")), *words]
        subprocess.run(down, env={**os.environ, "HOME": str(tmp_path)}, check=True)


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_every_command_of_a_page_works(home: Path, name: str, version: str) -> None:
    done = subprocess.run(
        ["bash", "-c", script(name)],
        cwd=home / "trainyard",
        env=environment(home, python(version)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
