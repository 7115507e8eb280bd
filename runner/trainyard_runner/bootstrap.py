"""The program of a run's Ray job: fetches the runner and starts it."""

from __future__ import annotations

import shlex

PROGRAM = """\
import json, os, pathlib, sys, time
(run,) = sys.argv[1:]
runner, plan = os.environ["TRAINYARD_RUNNER"], os.environ["TRAINYARD_PLAN"]
started = time.time()
# Ray workers that run this program's tasks do not get its variables: Ray's idle workers would not fit them.
config = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])
os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({**config, "runtime_env": {}})
try:
    import ray
    from ray.experimental.internal_kv import _internal_kv_get
except ImportError:
    # python3 on this PATH is not Ray's: take the interpreter that the program `ray` names in its first lines.
    import re, shutil
    found = shutil.which("ray")
    head = open(found, "rb").read(512).decode(errors="replace") if found else ""
    names = re.match(r"#!\\s*(/\\S+)\\n(?:'''exec' (?:\\"([^\\"]+)\\"|(\\S+)))?", head)
    python = names and (names[2] or names[3] or names[1])
    if not python or "TRAINYARD_PYTHON" in os.environ:
        sys.exit("trainyard: neither python3 nor the program `ray` on the head's PATH leads to a Python with ray")
    os.environ["TRAINYARD_PYTHON"] = python
    os.execv(python, [python, "-c", 'import os; exec(os.environ["TRAINYARD_BOOTSTRAP"])', run])
ray.init(log_to_driver=False, logging_level="ERROR")
blobs = [_internal_kv_get(("gcs://" + name).encode()) for name in (runner, plan)]
if not all(blobs):
    sys.exit("trainyard: the uploaded runner or plan is no longer on the cluster; dispatch the run again")
node = ray._private.worker.global_worker.node
home = pathlib.Path(node.get_session_dir_path(), "trainyard", "packages")
home.mkdir(parents=True, exist_ok=True)
path = home / runner
if not path.exists():
    part = home / f"{runner}.{os.getpid()}"
    part.write_bytes(blobs[0])
    part.rename(path)
sys.path.insert(0, str(path))
from trainyard_runner.head.main import main
sys.exit(main(run, plan_text=blobs[1], runner_name=runner, runner=blobs[0], started=started))
"""


def entrypoint(run: str) -> str:
    """Return the one-line shell command of a run's Ray job."""
    start = 'import os; exec(os.environ["TRAINYARD_BOOTSTRAP"])'
    return f"exec {shlex.join(['python3', '-c', start, run])}"


def variables(*, runner: str, plan: str) -> dict[str, str]:
    """Return the environment variables of a run's Ray job.

    `runner` and `plan`: the names of the uploaded blobs ("_ray_pkg_….zip"). A
    third variable has the program's text: the command fits into one line, and
    the program can restart itself with another Python.
    """
    return {"TRAINYARD_BOOTSTRAP": PROGRAM, "TRAINYARD_RUNNER": runner, "TRAINYARD_PLAN": plan}
