"""A job that reports its surroundings: in its command, a Ray task, an actor, an actor's actor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.real.jobs import write_job
from tests.real.wheels import write_wheel
from tests.real.yard import Yard

PROBE = """
import json
import os
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def found(place):
    about = {"place": place, "file": read("settings/one.txt"), "colour": os.environ.get("COLOUR")}
    about["threads"] = os.environ.get("OMP_NUM_THREADS")
    about["nice"] = os.nice(0)
    for name in ("greeting", "shared.deep", "beside"):
        try:
            about[name] = __import__(name, fromlist=["WORDS"]).WORDS
        except ImportError as error:
            about[name] = str(error)
    return about


def read(name):
    try:
        return open(name).read()
    except OSError as error:
        return str(error)


@ray.remote(num_cpus=0.1)
def task():
    return found("task")


@ray.remote(num_cpus=0.1)
class Actor:
    def here(self, place):
        return found(place)

    def nested(self, where):
        inner = Actor.options(scheduling_strategy=where).remote()
        return ray.get(inner.here.remote("nested actor"))


ray.init()
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
wheres = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
actors = [Actor.options(scheduling_strategy=where).remote() for where in wheres]
asked = [task.options(scheduling_strategy=where).remote() for where in wheres]
asked += [actor.here.remote("actor") for actor in actors]
# The nested actor is on another node than the one that starts it.
asked += [actor.nested.remote(wheres[number - 1]) for number, actor in enumerate(actors)]
for about in [found("driver"), *ray.get(asked)]:
    print("FOUND", json.dumps(about, sort_keys=True))
sys.exit(3)
"""
WHEEL = "greeting-1.0-py3-none-any.whl"
EVERYWHERE: dict[str, object] = {
    "greeting": "hello from a wheel",
    "shared.deep": "a package",
    "beside": "beside the job file",
    "colour": "red",
    "threads": "3",
    "file": "one\n",
    "nice": 0,
}
PLACES = {"driver", "task", "actor", "nested actor"}


def write(yard: Yard, installer: str) -> Path:
    """Write the job, whose wheel `installer` (uv or pip) installs; return its directory.

    `ray job submit` accepts its runtime_env.yaml as well. The probe ends with exit code 3.
    """
    job = (
        "command: [python, scripts/probe.py]\nresources: {cpus: 0.2}\nruntime_env: "
        "runtime_env.yaml\n"
    )
    directory = yard.home / "jobs" / write_job(yard, f"matrix-{installer}", job)
    modules = yard.home / "modules" / installer
    write_wheel(directory / "dist")
    (directory / "dist" / WHEEL).rename(directory / WHEEL)

    for path, text in (
        (directory / "scripts" / "probe.py", PROBE),
        (directory / "settings" / "one.txt", "one\n"),
        (directory / "beside.py", "WORDS = 'beside the job file'\n"),
        (modules / "shared" / "deep.py", "WORDS = 'a package'\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    (directory / "runtime_env.yaml").write_text(
        f"{installer}: ['${{RAY_RUNTIME_ENV_CREATE_WORKING_DIR}}/{WHEEL}']\n"
        f"py_modules: ['{modules / 'shared'}']\n"
        "env_vars: {COLOUR: red, OMP_NUM_THREADS: '3'}\n"
    )

    return directory


def everywhere(nodes: int) -> dict[str, list[dict[str, object]]]:
    """Return what the probe has to find on `nodes` nodes with CPUs, by place."""
    return {place: [EVERYWHERE] * (1 if place == "driver" else nodes) for place in PLACES}


def found(printed: str) -> dict[str, list[dict[str, object]]]:
    """Return what the probe found, by place."""
    by_place: dict[str, list[dict[str, object]]] = {}
    for line in printed.splitlines():
        if line.startswith("FOUND "):
            about = json.loads(line.removeprefix("FOUND "))
            by_place.setdefault(about.pop("place"), []).append(about)
    return by_place


def submitted(yard: Yard, directory: Path) -> dict[str, list[dict[str, object]]]:
    """Submit the job by `ray job submit`, as Ray documents it; return the findings by place."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(yard.state / "token")}
    ray = str(Path(sys.executable).with_name("ray"))
    done = subprocess.run(
        [
            *(ray, "job", "submit", "--address", yard.address(), "--working-dir", "."),
            *("--runtime-env", "runtime_env.yaml", "--", "python", "scripts/probe.py"),
        ],
        cwd=directory,
        env={**yard.env(), **token},
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert "exit code 3" in done.stdout + done.stderr
    # After `' failed` the command repeats the last lines of the log.
    return found(done.stdout.partition("' failed")[0])
