"""Cluster files that are YAML, and wrong: names, backends, nodes."""

from tests.bad_input.case import cluster, lab

CLUSTERS = (
    cluster(
        "nothing that is required", "image: schola\n", "lab.yaml:1: name: is missing", "lab.yaml:1: backend: is missing"
    ),
    cluster(
        "several problems at once",
        "name: Lab\nbackend: loca\nworkrs: []\nhead: {cpus: -1, memory: 4}\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, not end with "
        "'-', at most 40 characters, got \"Lab\"",
        "lab.yaml:2: backend: must be one of: local, compose, kuberay, existing, got \"loca\"; did you mean 'local'?",
        "lab.yaml:3: workrs: is not a known key; did you mean 'workers'?",
        "lab.yaml:4: head.cpus: must be at least 0, got -1",
        "lab.yaml:4: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, "
        "MB, GB, TB), at most 1000TiB, got 4",
    ),
    cluster(
        "dots in the name",
        "name: ../lab\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, not end with "
        "'-', at most 40 characters, got \"../lab\"",
    ),
    cluster(
        "digits of another script in the name",
        "name: lab٣\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, not end with "
        "'-', at most 40 characters, got \"lab٣\"",
    ),
    cluster(
        "a number for a name",
        "name: 7\nbackend: local\n",
        'lab.yaml:1: name: must be text, got 7; write it in quotes: "7"',
    ),
    lab("an unknown key", "wrokers: []\n", "lab.yaml:3: wrokers: is not a known key; did you mean 'workers'?"),
    lab(
        "an unknown key that is close to nothing",
        "zzz: 1\n",
        "lab.yaml:3: zzz: is not a known key; known: name, backend, image, head, workers, env, registry, "
        "build, local, compose, kuberay, existing, auth",
    ),
    lab(
        "an unknown key in a worker group",
        "workers:\n  - name: gpu\n    gpu: 1\n",
        "lab.yaml:5: workers.0.gpu: is not a known key; did you mean 'gpus'?",
    ),
    lab("half a CPU on a node", "head: {cpus: 0.5}\n", "lab.yaml:3: head.cpus: must be a whole number, got 0.5"),
    lab("fewer than no GPUs", "head: {gpus: -1}\n", "lab.yaml:3: head.gpus: must be at least 0, got -1"),
    lab(
        "a number of a hundred digits",
        f"head: {{cpus: {'9' * 100}}}\n",
        "lab.yaml:3: head.cpus: must be a whole number, got "
        '"99999999999999999999999999999999999999999999999999999999999...',
    ),
    lab(
        "memory without a unit",
        "head: {memory: 4}\n",
        "lab.yaml:3: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, "
        "MB, GB, TB), at most 1000TiB, got 4",
    ),
    lab(
        "memory that would be code elsewhere",
        "head: {memory: 4 * 1024**3}\n",
        "lab.yaml:3: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, "
        'MB, GB, TB), at most 1000TiB, got "4 * 1024**3"',
    ),
    lab(
        "a mapping for the workers",
        "workers: {gpu: {count: 3}}\n",
        'lab.yaml:3: workers: must be a list, got {"gpu": {"count": 3}}',
    ),
    lab(
        "two worker groups of one name",
        "workers:\n  - {name: gpu}\n  - {name: cpu}\n  - {name: gpu}\n",
        'lab.yaml:6: workers.2.name: is also the name of workers.0, got "gpu"',
    ),
    lab(
        "count and max",
        "workers: [{name: gpu, count: 1, max: 3}]\n",
        "lab.yaml:3: workers.0: needs either count (a fixed size) or max, perhaps with min (Ray chooses between them)",
    ),
    lab(
        "min above max",
        "workers: [{name: gpu, min: 4, max: 3}]\n",
        "lab.yaml:3: workers.0.min: must be at most max (3), got 4",
    ),
    lab(
        "a duration without a unit",
        "workers: [{name: gpu, max: 2, idle_timeout: 300}]\n",
        "lab.yaml:3: workers.0.idle_timeout: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, "
        "h, d), at most 3650d, got 300",
    ),
)
