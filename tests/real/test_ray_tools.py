"""Ray's own command line on a cluster of Trainyard's: it shows runs, and submits other jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard

RAY = str(Path(sys.executable).with_name("ray"))
PRINTS = """
    import sys
    print("seed", sys.argv[1], flush=True)
    print("and no end of line", end="", file=sys.stderr)
    """
JOB = "command: [python, prints.py, '{seed}']\nmatrix: {seed: [0, 1]}\n"
OWN = "import ray\nray.init()\nprint('own', ray.cluster_resources()['CPU'])\n"


def test_rays_tools_show_a_run_and_submit_their_own(yard: Yard, tmp_path: Path) -> None:
    opened = yard.json("cluster.open", "--dry")
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": opened["token_file"]}

    def ray(*words: str) -> str:
        done = subprocess.run(
            [RAY, *words],
            env={**os.environ, **variables},
            text=True,
            capture_output=True,
            timeout=180,
            check=False,
        )

        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yard.run("train.dispatch", write_job(yard, "prints", JOB, prints=PRINTS), "--skip-smoke")
    run = newest(yard).name
    address = f"--address={opened['address']}"

    log = ray("job", "logs", run, address)

    assert sorted(line for line in log.splitlines() if line.startswith("[seed=")) == [
        "[seed=0] and no end of line",
        "[seed=0] seed 0",
        "[seed=1] and no end of line",
        "[seed=1] seed 1",
    ]

    details = next(text for text in ray("job", "list", address).split("JobDetails(") if run in text)
    entrypoint = details.partition("entrypoint=")[2].partition(", message=")[0]
    assert run in entrypoint
    assert len(entrypoint) < 160
    assert "SUCCEEDED" in details
    variables |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    assert "Total Usage" in ray("status", f"--address={opened['gcs']}")

    (tmp_path / "own.py").write_text(OWN)
    submitted = ray(
        "job", "submit", address, "--working-dir", str(tmp_path), "--", "python", "own.py"
    )
    assert "own 6.0" in submitted
