"""How a run starts: the few lines that Ray's job executes on the head, before the runner is there."""

from __future__ import annotations

PROGRAM = """\
import os, pathlib, sys, time
run, runner, plan = sys.argv[1:]
started = time.time()
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
    os.execv(python, [python, "-c", 'import os; exec(os.environ["TRAINYARD_BOOTSTRAP"])', *sys.argv[1:]])
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
from trainyard_runner.main import main
sys.exit(main(run, plan_text=blobs[1], runner_name=runner, runner=blobs[0], started=started))
"""


def argv(run: str, *, runner: str, plan: str) -> list[str]:
    """Return the command of a run's Ray job; quote it with `shlex.join` and put `exec ` in front.

    `runner` and `plan` are the names of the uploaded blobs ("_ray_pkg_….zip"). The program travels in the environment,
    so that it can start itself again with another interpreter, and process lists stay readable.
    """
    start = 'import os; exec(os.environ["TRAINYARD_BOOTSTRAP"])'
    return ["env", f"TRAINYARD_BOOTSTRAP={PROGRAM}", "python3", "-c", start, run, runner, plan]
