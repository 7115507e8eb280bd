"""The command line before any cluster: what it lists, explains and imports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.real.yard import Yard

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"ray", "docker", "kubernetes", "boto3", "torch", "pydantic", "httpx", "rich"}


def test_the_list_of_tasks_imports_nothing_heavy() -> None:
    invoke = [sys.executable, "-X", "importtime", str(Path(sys.executable).with_name("invoke")), "--list"]
    done = subprocess.run(invoke, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    imported = {match[1].partition(".")[0] for match in re.finditer(r"\|\s+([\w.]+)$", done.stderr, re.MULTILINE)}
    assert "train.dispatch" in done.stdout
    assert "invoke" in imported
    assert imported & HEAVY == set()


def test_help_explains_every_flag(fresh: Yard) -> None:
    shown = fresh.run("--help", "train.dispatch").stdout
    for words in ("Directory that holds job.yaml", "Cluster file", "Set one value", "leave as soon as", "smoke gate"):
        assert words in shown
