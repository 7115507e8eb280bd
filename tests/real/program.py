"""A user's program: a cluster that exists for the length of a block, and jobs on it.

`python program.py CLUSTER`.
"""

from __future__ import annotations

import os
import sys

from trainyard import Cluster, Job

with Cluster.from_file(sys.argv[1]) as cluster:
    # A child that is forked in the block leaves the block too; it must not remove the parent's
    # cluster.
    if (child := os.fork()) == 0:
        sys.exit()
    os.waitpid(child, 0)
    run = cluster.dispatch(
        Job(
            name="short",
            command=["sh", "-c", "hostname > $TRAINYARD_OUTPUT/{i}"],
            matrix={"i": [1, 2]},
        )
    )
    ended = sorted((task.name, task.state) for task in run)
    run.wait()
    print(
        "ended:", ended, sorted(path.name for path in run.results.glob("outputs/i=?/*")), flush=True
    )
    cluster.dispatch(Job(name="long", command=["sh", "-c", "echo waiting; sleep 600"])).wait()
