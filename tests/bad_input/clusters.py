"""Cluster files that are YAML, and wrong: names, backends, nodes."""

from tests.bad_input.case import cluster, lab

CLUSTERS = (
    cluster(
        "nothing that is required",
        "image: schola\n",
        "lab.yaml:1: name: is missing: the cluster's name, of lower-case letters, digits and '-', at most "
        "40 characters",
        "lab.yaml:1: backend: is missing: what makes the nodes: local (processes of this machine), compose "
        "(containers of a Docker host), kuberay (pods on Kubernetes) or existing (a Ray cluster of somebody else)",
    ),
    cluster(
        "several problems at once",
        "name: Lab\nbackend: loca\nworkrs: []\nhead: {cpus: -1, memory: 4}\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "Lab"',
        "lab.yaml:2: backend: must be one of: local, compose, kuberay, existing, got \"loca\"; did you mean 'local'?",
        "lab.yaml:3: workrs: is not a known key; did you mean 'workers'?",
        "lab.yaml:4: head.cpus: must be at least 0, got -1",
        "lab.yaml:4: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, "
        "GB, TB), got 4",
    ),
    cluster(
        "capitals in the name",
        "name: Lab\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "Lab"',
    ),
    cluster(
        "a slash in the name",
        "name: lab/one\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "lab/one"',
    ),
    cluster(
        "dots in the name",
        "name: ../lab\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "../lab"',
    ),
    cluster(
        "a name that is not ASCII",
        "name: labör\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "labör"',
    ),
    cluster(
        "digits of another script in the name",
        "name: lab٣\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "lab٣"',
    ),
    cluster(
        "a newline after the name",
        'name: "lab\\n"\nbackend: local\n',
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "lab\\n"',
    ),
    cluster(
        "a name of 41 characters",
        f"name: {'a' * 41}\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"',
    ),
    cluster(
        "a digit first in the name",
        "name: 3lab\nbackend: local\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, at most 40 "
        'characters, got "3lab"',
    ),
    cluster(
        "a number for a name",
        "name: 7\nbackend: local\n",
        'lab.yaml:1: name: must be text, got 7; write it in quotes: "7"',
    ),
    cluster(
        "no name after the colon",
        "name:\nbackend: local\n",
        "lab.yaml:1: name: must be text, got nothing",
    ),
    cluster(
        "a backend that is almost right",
        "name: lab\nbackend: locl\n",
        "lab.yaml:2: backend: must be one of: local, compose, kuberay, existing, got \"locl\"; did you mean 'local'?",
    ),
    cluster(
        "a backend that is not built yet",
        "name: lab\nbackend: microk8s\n",
        'lab.yaml:2: backend: is not built yet (built: local, compose, kuberay, existing), got "microk8s"',
    ),
    lab(
        "a section of a backend that is not built yet",
        "microk8s: {channel: latest}\n",
        "lab.yaml:3: microk8s: is the section of a backend that is not built yet (built: local, compose, kuberay, "
        "existing)",
    ),
    cluster(
        "a list for the backend",
        "name: lab\nbackend: [local]\n",
        'lab.yaml:2: backend: must be one of: local, compose, kuberay, existing, got ["local"]',
    ),
    lab(
        "an unknown key",
        "wrokers: []\n",
        "lab.yaml:3: wrokers: is not a known key; did you mean 'workers'?",
    ),
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
    lab(
        "half a CPU on a node",
        "head: {cpus: 0.5}\n",
        "lab.yaml:3: head.cpus: must be a whole number, got 0.5",
    ),
    lab(
        "text for CPUs",
        "head: {cpus: two}\n",
        'lab.yaml:3: head.cpus: must be a whole number, got "two"',
    ),
    lab(
        "true for CPUs",
        "head: {cpus: true}\n",
        "lab.yaml:3: head.cpus: must be a whole number, got true",
    ),
    lab(
        "fewer than no GPUs",
        "head: {gpus: -1}\n",
        "lab.yaml:3: head.gpus: must be at least 0, got -1",
    ),
    lab(
        "half a GPU on a node",
        "head: {gpus: 0.5}\n",
        "lab.yaml:3: head.gpus: must be a whole number, got 0.5",
    ),
    lab(
        "a number of a hundred digits",
        f"head: {{cpus: {'9' * 100}}}\n",
        "lab.yaml:3: head.cpus: must be a whole number, got "
        '"99999999999999999999999999999999999999999999999999999999999...',
    ),
    lab(
        "a list for the head",
        "head: [2, 4GiB]\n",
        'lab.yaml:3: head: must be a mapping of keys to values, got [2, "4GiB"]',
    ),
    lab(
        "memory without a unit",
        "head: {memory: 4}\n",
        "lab.yaml:3: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, "
        "GB, TB), got 4",
    ),
    lab(
        "memory in a unit of Kubernetes",
        "head: {memory: 4Gi}\n",
        "lab.yaml:3: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, "
        'GB, TB), got "4Gi"',
    ),
    lab(
        "memory that would be code elsewhere",
        "head: {memory: 4 * 1024**3}\n",
        "lab.yaml:3: head.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, "
        'GB, TB), got "4 * 1024**3"',
    ),
    lab(
        "memory too small for Ray",
        "head: {memory: 4KiB}\n",
        'lab.yaml:3: head.memory: must be at least 128MiB, which Ray itself needs, got "4KiB"',
    ),
    lab(
        "memory beyond all machines",
        "head: {memory: 999999999TiB}\n",
        'lab.yaml:3: head.memory: must be at most 1000TiB, got "999999999TiB"',
    ),
    lab(
        "a mapping for the workers",
        "workers: {gpu: {count: 3}}\n",
        'lab.yaml:3: workers: must be a list, got {"gpu": {"count": 3}}',
    ),
    lab(
        "a worker group without a name",
        "workers: [{count: 3}]\n",
        "lab.yaml:3: workers.0.name: is missing: the group's name; its nodes are NAME-0, NAME-1 and so on",
    ),
    lab(
        "a worker group called head",
        "workers: [{name: head}]\n",
        "lab.yaml:3: workers.0.name: must not be 'head': that is the head node's name, got \"head\"",
    ),
    lab(
        "two worker groups of one name",
        "workers:\n  - {name: gpu}\n  - {name: cpu}\n  - {name: gpu}\n",
        'lab.yaml:6: workers.2.name: is also the name of workers.0, got "gpu"',
    ),
    lab(
        "a group's name with a slash",
        "workers: [{name: ../gpu}]\n",
        "lab.yaml:3: workers.0.name: must be lower-case letters, digits and '-', start with a letter, at "
        'most 40 characters, got "../gpu"',
    ),
    lab(
        "a negative count",
        "workers: [{name: gpu, count: -1}]\n",
        "lab.yaml:3: workers.0.count: must be at least 0, got -1",
    ),
    lab(
        "a count as text",
        'workers: [{name: gpu, count: "3"}]\n',
        'lab.yaml:3: workers.0.count: must be a whole number, got "3"',
    ),
    lab(
        "a count beyond all clusters",
        "workers: [{name: gpu, count: 1000000}]\n",
        "lab.yaml:3: workers.0.count: must be at most 10000, got 1000000",
    ),
    lab(
        "count and max",
        "workers: [{name: gpu, count: 1, max: 3}]\n",
        "lab.yaml:3: workers.0: has count as well as min or max: count is a fixed size, min and max let Ray choose",
    ),
    lab(
        "min without max",
        "workers: [{name: gpu, min: 1}]\n",
        "lab.yaml:3: workers.0: has min but no max: give max too, or count for a fixed size",
    ),
    lab(
        "min above max",
        "workers: [{name: gpu, min: 4, max: 3}]\n",
        "lab.yaml:3: workers.0.min: must be at most max (3), got 4",
    ),
    lab(
        "an idle timeout of a fixed group",
        "workers: [{name: gpu, count: 1, idle_timeout: 5m}]\n",
        "lab.yaml:3: workers.0.idle_timeout: means something only for a group with min and max",
    ),
    lab(
        "a duration without a unit",
        "workers: [{name: gpu, max: 2, idle_timeout: 300}]\n",
        "lab.yaml:3: workers.0.idle_timeout: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), got 300",
    ),
    lab(
        "a duration in an unknown unit",
        "workers: [{name: gpu, max: 2, idle_timeout: 5min}]\n",
        "lab.yaml:3: workers.0.idle_timeout: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, "
        'd), got "5min"',
    ),
)
