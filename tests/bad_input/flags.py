"""Flags over a file: `--set PATH=VALUE`."""

from tests.bad_input.case import FEWER_CPUS, NAME, SIZE, cluster, job, lab, run

FLAGS = (
    lab(
        "flags without a value, and for what is not there",
        "workers: [{name: gpu}]\n",
        "--set workers: must be PATH=VALUE, such as workers.0.count=2",
        "--set workers.gpus.count: workers has no entry 'gpus' (there are: gpu); did you mean "
        "'gpu'?",
        "--set workers.1.count: workers has no entry '1' (there are: gpu)",
        "--set name.first: name is a single value in the file: it has no 'first'",
        "--set hed.cpus: hed: is not a known key; did you mean 'head'?",
        flags=(
            "workers",
            "hed.cpus=2",
            "workers.gpus.count=2",
            "workers.1.count=2",
            "name.first=x",
        ),
    ),
    lab(
        "a flag that runs Python, and one that is not YAML",
        "",
        "--set head: has the tag !!python/object/apply:os.getcwd: files hold plain values, "
        "nothing that "
        "runs or converts",
        "--set head: is not valid YAML: while parsing a flow mapping that begins on line 1, "
        "expected ',' "
        "or '}', but got '<stream end>'",
        flags=("head=!!python/object/apply:os.getcwd []", "head={cpus: 2"),
    ),
    lab(
        "a flag that replaces a section by a wrong one",
        "head: {cpus: 1}\n",
        f"--set head: head.cpus: must be a whole number, got 1.5{FEWER_CPUS}",
        "--set head: head.x: is not a known key; known: cpus, memory, gpus, image, resources, "
        "labels, ray_start",
        flags=("head={cpus: 1.5, x: 1}",),
    ),
    cluster(
        "a file and two flags, all wrong",
        "name: Lab\nbackend: local\n",
        f'lab.yaml:1: name: {NAME}"Lab"',
        '--set head.cpus: must be a whole number, got "x"',
        f"--set head.memory: {SIZE}1",
        flags=("head.cpus=x", "head.memory=1"),
    ),
    job(
        "flags for a task, by name",
        "tasks: [{name: a, command: [a.py]}]\n",
        "--set tasks.b.retries: tasks has no entry 'b' (there are: a)",
        '--set tasks.a.retries: must be a whole number, got "x"',
        flags=("tasks.a.retries=x", "tasks.b.retries=1"),
    ),
    run(
        "flags for the job",
        "",
        "--set name: must not be given: a job's name is its directory's name",
        "--set retries: must be at least 0, got -1",
        flags=("retries=-1", "name=x"),
    ),
)
