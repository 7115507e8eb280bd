"""Flags over a file: `--set PATH=VALUE`."""

from tests.bad_input.case import cluster, job, lab, run

FLAGS = (
    lab(
        "a flag without a value", "", "--set workers: must be PATH=VALUE, such as workers.0.count=2", flags=("workers",)
    ),
    lab("a flag of the wrong type", "", '--set head.cpus: must be a whole number, got "two"', flags=("head.cpus=two",)),
    lab(
        "a flag for an unknown key",
        "",
        "--set head.cpu: is not a known key; did you mean 'cpus'?",
        flags=("head.cpu=2",),
    ),
    lab(
        "a flag for an unknown section",
        "",
        "--set hed.cpus: hed: is not a known key; did you mean 'head'?",
        flags=("hed.cpus=2",),
    ),
    lab(
        "a flag for a group that is not there",
        "workers: [{name: gpu}]\n",
        "--set workers.gpus.count: workers has no entry 'gpus' (there are: gpu); did you mean 'gpu'?",
        flags=("workers.gpus.count=2",),
    ),
    lab(
        "a flag for a group beyond the last",
        "workers: [{name: gpu}]\n",
        "--set workers.1.count: workers has no entry '1' (there are: gpu)",
        flags=("workers.1.count=2",),
    ),
    lab(
        "a flag for a group's count, by name",
        "workers: [{name: gpu}]\n",
        '--set workers.gpu.count: must be a whole number, got "many"',
        flags=("workers.gpu.count=many",),
    ),
    lab(
        "a flag below a single value",
        "",
        "--set name.first: name is a single value in the file: it has no 'first'",
        flags=("name.first=x",),
    ),
    lab(
        "a flag that runs Python",
        "",
        "--set name: has the tag !!python/object/apply:os.getcwd: files hold plain values, nothing that "
        "runs or converts",
        flags=("name=!!python/object/apply:os.getcwd []",),
    ),
    lab(
        "a flag that is not YAML",
        "",
        "--set head: is not valid YAML: while parsing a flow mapping that begins on line 1, expected ',' "
        "or '}', but got '<stream end>'",
        flags=("head={cpus: 2",),
    ),
    lab(
        "a flag that replaces a section by a wrong one",
        "head: {cpus: 1}\n",
        "--set head: head.cpus: must be a whole number, got 1.5",
        "--set head: head.x: is not a known key; known: cpus, memory, gpus",
        flags=("head={cpus: 1.5, x: 1}",),
    ),
    cluster(
        "a file and two flags, all wrong",
        "name: Lab\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, not end with "
        "'-', at most 40 characters, got \"Lab\"",
        '--set head.cpus: must be a whole number, got "x"',
        "--set head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, GB, "
        "TB), at most 1000TiB, got 1",
        flags=("head.cpus=x", "head.memory=1"),
    ),
    run("a flag for the job", "", "--set retries: must be at least 0, got -1", flags=("retries=-1",)),
    job(
        "a flag for a task, by name",
        "tasks: [{name: a, command: [a.py]}]\n",
        "--set tasks.b.retries: tasks has no entry 'b' (there are: a)",
        '--set tasks.a.retries: must be a whole number, got "x"',
        flags=("tasks.a.retries=x", "tasks.b.retries=1"),
    ),
    run(
        "a flag for the job's name",
        "",
        "--set name: must not be given: a job's name is its directory's name",
        flags=("name=x",),
    ),
)
