"""The fate of a job's files on a cluster: 50 tasks of 10 jobs.

A unit test checks the page's words that need no cluster.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings, strategies

from tests import deeds as deeds_module
from tests.deeds import Deed, Seen, do, seen
from tests.journey import around, as_sent, declared_paths, deeds, make, things
from tests.real.jobs import newest
from tests.real.yard import Yard

TASKS = 5
# The first attempt prints what it finds, does its deeds, prints what it leaves, and fails. The
# second attempt only prints what it finds.
TRAVELS = """
import json, os, sys
from pathlib import Path
sys.dont_write_bytecode = True
from deeds import do, seen
def said():
    found = seen(Path.cwd())
    return {name: [kind, [one[0].hex(), one[1]] if kind == "file" else one] for name, (kind, one) in found.items()}
print("FOUND " + json.dumps(said()), flush=True)
if os.environ["TRAINYARD_ATTEMPT"] == "1":
    for what, at, other in json.loads(Path("plan.json").read_text())[int(sys.argv[1])]:
        do(Path.cwd(), (what, at, bytes.fromhex(other[4:]) if str(other).startswith("hex:") else other))
    print("LEFT " + json.dumps(said()), flush=True)
    sys.exit(1)
"""
# Without links: their fate depends on where they lead.
_PLAIN = ("write", "append", "replace", "rename", "remove", "make directory", "make executable")


def told(text: str, word: str) -> Seen:
    line = next(line for line in text.splitlines() if line.startswith(f"{word} "))
    found: Seen = {}
    for name, (kind, one) in json.loads(line.removeprefix(f"{word} ")).items():
        found[name] = (kind, (bytes.fromhex(one[0]), one[1]) if kind == "file" else one)
    return found


def as_json(deed: Deed) -> list[Any]:
    what, at, other = deed
    return [what, at, f"hex:{other.hex()}" if isinstance(other, bytes) else other]


@settings(max_examples=10, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
@given(
    job=things,
    plans=strategies.lists(deeds, min_size=TASKS, max_size=TASKS),
    declared=declared_paths,
)
def test_each_attempt_and_home_see_what_the_page_says(
    yard: Yard, job: list[Deed], plans: list[list[Deed]], declared: list[str]
) -> None:
    # A job file with a pattern as an output is rejected.
    declared = [one for one in declared if "*" not in one]
    plans = [[deed for deed in plan if deed[0] in _PLAIN] for plan in plans]
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root, "travels")
        make(directory, job)
        (directory / "travels.py").write_text(TRAVELS)
        (directory / "plan.json").write_text(
            json.dumps([[as_json(deed) for deed in plan] for plan in plans])
        )
        shutil.copy(str(deeds_module.__file__), directory / "deeds.py")
        spec = {
            "command": ["python3", "travels.py", "{n}"],
            "matrix": {"n": list(range(TASKS))},
            "retries": 1,
        }

        (directory / "job.yaml").write_text(
            json.dumps({**spec, "outputs": declared, "outputs_every": "1h"})
        )
        as_sent(directory, Path(root, "plain"))
        sent = seen(Path(root, "plain"))
        if any(
            sent.get(str(above), ("directory",))[0] == "file"
            for one in declared
            for above in Path(one).parents
        ):
            return

        # A declared output that no task has left makes the command fail: here that does not matter.
        yard.run("train.dispatch", str(directory), "--skip-smoke", expect=None)
        run = newest(yard)
        parents = {
            str(above): ("directory", None)
            for one in declared
            for above in list(Path(one).parents)[:-1]
        }

        for number, plan in enumerate(plans):
            first, second = (
                (run / "logs" / f"n={number}.{attempt}.log").read_text() for attempt in (1, 2)
            )
            own = Path(root, f"own-{number}")
            as_sent(directory, own)

            for parent in parents:
                (own / parent).mkdir(parents=True, exist_ok=True)

            assert told(first, "FOUND") == seen(own)
            for deed in plan:
                do(own, deed)

            assert told(first, "LEFT") == seen(own)
            again = told(second, "FOUND")
            assert again == {**parents, **around(sent, seen(own, below=declared))}
            at_home = seen(run / "outputs" / f"n={number}", below=declared)
            below = {
                name
                for name in again
                if any(name == one or name.startswith(f"{one}/") for one in declared)
            }

            assert at_home == {name: value for name, value in again.items() if name in below}
