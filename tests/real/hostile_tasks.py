"""Tasks that break an unprepared runner: `python3 hostile_tasks.py NAME` runs one of them.

A job sends this file as its program: it uses only the standard library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

OUTPUT = Path(os.environ.get("TRAINYARD_OUTPUT", "."))
CHECKPOINT = Path(os.environ.get("TRAINYARD_CHECKPOINT", "."))


def dive(root: Path, name: str, levels: int) -> None:
    """Make `levels` nested directories, with a file in the deepest one."""
    os.chdir(root)
    for _ in range(levels):
        os.mkdir(name)
        os.chdir(name)
    Path("leaf.png").write_text("leaf")


def deep() -> None:
    """Leave a file whose path is longer than the system can open."""
    (OUTPUT / "beside").touch()
    dive(OUTPUT, "level", 1500)


def locked_directory() -> None:
    (OUTPUT / "locked" / "more").mkdir(parents=True)
    (OUTPUT / "locked" / "file").touch()
    (OUTPUT / "beside").touch()
    (OUTPUT / "locked" / "more").chmod(0)
    (OUTPUT / "locked").chmod(0)


def locked_output() -> None:
    Path("runs").mkdir()
    Path("runs", "file").touch()
    (OUTPUT / "file").touch()
    OUTPUT.chmod(0)


def output_is_a_link() -> None:
    OUTPUT.rmdir()
    OUTPUT.symlink_to("/etc")


def keeps_writing() -> None:
    """Leave a process that changes its output until it is ended; tests find it by $MARK."""
    program = (
        "import sys\nwhile True:\n    for size in (9_000_000, 10): open(sys.argv[1], "
        "'wb').write(bytes(size))"
    )
    subprocess.Popen([sys.executable, "-c", program, str(OUTPUT / "changing"), os.environ["MARK"]])
    (OUTPUT / "beside").touch()
    time.sleep(2)


def removes_itself() -> None:
    shutil.rmtree(OUTPUT)
    shutil.rmtree(os.getcwd())


def crash() -> None:
    (OUTPUT / "before").touch()
    os.kill(os.getpid(), signal.SIGSEGV)


def silent() -> None:
    sys.stdout.flush()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    (OUTPUT / "after").touch()


def checkpoint() -> None:
    """Leave a deep checkpoint and a locked file in the first attempt; find it in the second."""
    if os.environ["TRAINYARD_ATTEMPT"] == "1":
        (CHECKPOINT / "locked").touch(mode=0)
        dive(CHECKPOINT, "level", 400)
        raise SystemExit(1)
    os.chdir(CHECKPOINT)
    for _ in range(400):
        os.chdir("level")
    (OUTPUT / "found").write_text(Path("leaf.png").read_text())


def litters() -> None:
    """Leave unexpected files in the job's own directory."""
    dive(Path.cwd(), "n" * 250, 40)
    os.chmod("..", 0)
    (OUTPUT / "beside").touch()


TASKS: tuple[Callable[[], None], ...] = (
    *(deep, locked_directory, locked_output, output_is_a_link),
    *(keeps_writing, removes_itself, crash, silent, checkpoint, litters),
)

if __name__ == "__main__":
    {task.__name__: task for task in TASKS}[sys.argv[1]]()
