"""A lab of hundreds of hosts: queried in parallel with a limit; a silent host holds up no other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bed.many_hosts import ManyHosts, ip, many_hosts
from tests.real.yard import Yard
from trainyard.seams.ssh.many import AT_ONCE

pytestmark = pytest.mark.timeout(300)
MIB = 2**20
# More hosts than are ever connected at once.
MANY = 200
# Prints a command's peak memory in KiB. A direct child of the tests' process would count that
# process's memory too.
WEIGH = """\
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
# Runs a command that takes a host for hung if sudo has not answered after ANSWER_SECONDS.
IMPATIENT = """\
import runpy, sys
from trainyard.seams.ssh import connection
connection.ANSWER_SECONDS = float(sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def lab(made: ManyHosts, *words: str) -> Yard:
    """Give a lab of these hosts, whose commands are run by a Python program."""
    document = {
        "name": "lab",
        "backend": "microk8s",
        "image": "registry.invalid/ray:1",
        "microk8s": {"hosts": [{"address": address} for address in made.ssh()]},
    }
    (made.home / "clusters").mkdir()
    (made.home / "clusters" / "lab.yaml").write_text(json.dumps(document))
    prefix = (sys.executable, "-c", *words)
    return Yard(made.home, cluster="lab", environ={"HOME": str(made.home)}, prefix=prefix)


def test_a_plan_for_two_hundred_hosts_needs_few_connections_and_memory(tmp_path: Path) -> None:
    with many_hosts(tmp_path, count=MANY) as made:
        done = lab(made, WEIGH).run("cluster.plan", "--json")
    titles = [
        step["title"] for step in json.loads(done.stdout)["steps"] if step["state"] == "would"
    ]
    assert titles[0] == f"Prepare {MANY} hosts"
    assert int(done.stderr.split()[-1]) * 1024 < 500 * MIB
    # Connections in use, connections kept for the next question, and those whose end the server has
    # not noticed yet.
    assert made.most < 4 * AT_ONCE < MANY
    # Three questions to each host: whether sudo asks for a password, what the host is for the
    # steps, and the same for its files. Some more to the control plane about its nodes.
    assert made.asked <= 3 * MANY + 10


def test_a_host_that_never_answers_is_named_next_to_other_hosts_problems(
    tmp_path: Path,
) -> None:
    small = {ip(70): {"memory": 512 * MIB}}
    with many_hosts(tmp_path, count=100, silent=[ip(6)], hanging=[ip(7)], changed=small) as made:
        yard = lab(made, IMPATIENT, "10")
        error = yard.json("cluster.plan", expect=3)
        assert error["error"] == "some hosts cannot become a Kubernetes yet"
        silent, hanging, problem = error["problems"]
        assert (hanging["where"], hanging["message"].partition(": ")[0]) == (
            ip(7),
            "sudo did not end within 10 s",
        )
        assert problem == {
            "where": ip(70),
            "message": "has 0.5 GiB of memory, and a worker needs 1 GiB",
        }
        assert (silent["where"], silent["message"].partition(": ")[0]) == (
            ip(6),
            f"cannot be reached by SSH on port {made.port}",
        )
