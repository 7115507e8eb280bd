"""The latest runs of real tests here: each module's seconds, and the modules that ran twice.

A module is named with its lane (`core: tests/real/test_train.py`), since each lane runs other tests
of the module.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tests.bed.places import CACHE, locked
from tests.dealing import Ran

FILE = CACHE / "ran.jsonl"
# A module that ran twice in TOO_OFTEN of its LATEST runs has a race that needs mending.
TOO_OFTEN, LATEST = 3, 10
# So many runs of all tiers together hold ten of each tier.
KEPT = 100


def add(ran: Mapping[str, Ran], twice: Collection[str]) -> list[str]:
    """Record a run; return the modules that ran twice in it and too often in their latest runs."""
    run = {
        "seconds": {module: round(one.seconds, 1) for module, one in ran.items()},
        "twice": sorted(twice),
    }
    with locked("history"):
        before = (
            [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
        )
        runs = [*before, run][-KEPT:]
        FILE.write_text("".join(json.dumps(one) + "\n" for one in runs))
    return too_often(runs)


def too_often(runs: list[dict[str, Any]]) -> list[str]:
    """Return the modules that ran twice in the last run, and too often in their latest ones."""
    found = []
    for module in runs[-1]["twice"]:
        latest = [module in run["twice"] for run in runs if module in run["seconds"]][-LATEST:]
        if sum(latest) >= TOO_OFTEN:
            found.append(module)
    return found


def table(ran: Mapping[str, Ran], twice: Collection[str]) -> list[str]:
    """Return a line for each module, the slowest first."""
    slowest = sorted(ran.items(), key=lambda item: -item[1].seconds)
    lines = [f"{one.seconds:7.1f} s {one.tests:4} tests  {module}" for module, one in slowest]
    return [
        f"{line}  ran twice" if module in twice else line
        for line, (module, _) in zip(lines, slowest, strict=True)
    ]
