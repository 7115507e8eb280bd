"""Cluster files for Kubernetes that are YAML, and wrong."""

from tests.bad_input.case import cluster, lab

ON = "name: lab\nbackend: kuberay\n"

KUBERNETES = (
    cluster(
        "names that end where Kubernetes does not let them",
        "name: lab-\nbackend: kuberay\nworkers: [{name: gpu-}]\n",
        "lab.yaml:1: name: must not end with '-' on Kubernetes, got \"lab-\"",
        "lab.yaml:3: workers.0.name: must not end with '-' on Kubernetes, got \"gpu-\"",
    ),
    cluster(
        "a group that KubeRay takes for the head",
        ON + "workers: [{name: headgroup}]\n",
        "lab.yaml:3: workers.0.name: must not be 'headgroup': so KubeRay calls the head's group, got \"headgroup\"",
    ),
    cluster(
        "a placement of a group that there is none of",
        ON + "workers: [{name: gpu}]\nkuberay: {groups: {cpu: {spread: none}}}\n",
        "lab.yaml:4: kuberay.groups.cpu: is no group of this file (it has: head, gpu)",
    ),
    cluster(
        "variables of KubeRay",
        ON + "env: {RAY_ADDRESS: x, RAY_enable_autoscaler_v2: '1'}\n",
        "lab.yaml:3: env.RAY_ADDRESS: is set by KubeRay (backend kuberay)",
        "lab.yaml:3: env.RAY_enable_autoscaler_v2: is set by KubeRay (backend kuberay)",
    ),
    cluster(
        "too little memory for a limit",
        ON + "head: {memory: 512MiB}\nworkers: [{name: cpu, memory: 256MiB}]\n",
        'lab.yaml:3: head.memory: must be at least 1GiB with the backend kuberay, where it is a limit, got "512MiB"',
        "lab.yaml:4: workers.0.memory: must be at least 512MiB with the backend kuberay, where it is a limit, "
        'got "256MiB"',
    ),
    cluster(
        "more shared memory than memory",
        ON + "head: {memory: 4GiB}\nworkers: [{name: cpu, memory: 2GiB}]\nkuberay: {shm_size: 4GiB}\n",
        "lab.yaml:5: kuberay.shm_size: must be less than the memory of a node (the most is 4GiB): it counts as memory, "
        'got "4GiB"',
    ),
    cluster(
        "a cluster on Kubernetes without a token",
        ON + "auth: none\n",
        "lab.yaml:3: auth: must be 'token' with the backend kuberay: every pod of the Kubernetes cluster reaches the "
        'dashboard, got "none"',
    ),
    cluster(
        "storage for one host, and nodes on several",
        ON + "workers: [{name: cpu, count: 2}]\n"
        "kuberay:\n  spread: preferred\n  groups: {cpu: {spread: required}}\n"
        "  storage: {size: 1GiB, access: ReadWriteOnce}\n",
        "lab.yaml:5: kuberay.spread: must be left out with storage.access ReadWriteOnce, which keeps all nodes on one "
        'host, got "preferred"',
        "lab.yaml:6: kuberay.groups.cpu.spread: must be left out with storage.access ReadWriteOnce, which keeps all "
        'nodes on one host, got "required"',
    ),
    cluster(
        "storage for one pod, and several nodes",
        ON + "workers: [{name: cpu, max: 2}]\nkuberay: {storage: {size: 1GiB, access: ReadWriteOncePod}}\n",
        'lab.yaml:4: kuberay.storage.access: lets a single pod in, and there are up to 3 nodes, got "ReadWriteOncePod"',
    ),
    lab(
        "storage that is nowhere",
        "kuberay: {storage: {access: ReadWriteOnce}}\n",
        "lab.yaml:3: kuberay.storage: needs `claim` (one that exists) or `size` (of one to be made)",
    ),
    lab(
        "storage that is there and to be made",
        "kuberay: {storage: {claim: mine, size: 1GiB}}\n",
        "lab.yaml:3: kuberay.storage: has claim as well as size or storage_class: a claim that exists is taken as "
        "it is",
    ),
    lab(
        "a volume without a source",
        "kuberay: {volumes: [{target: /datasets}]}\n",
        "lab.yaml:3: kuberay.volumes.0: needs one of: claim, config_map, secret, host_path",
    ),
    lab(
        "a volume with two sources",
        "kuberay: {volumes: [{target: /datasets, claim: a, secret: b}]}\n",
        "lab.yaml:3: kuberay.volumes.0: has claim and secret: give one",
    ),
    lab(
        "volumes where something else is",
        "kuberay:\n  volumes:\n    - {target: /outputs/, claim: a}\n    - {target: /dev/shm, claim: b}\n"
        "    - {target: /data, claim: c}\n    - {target: /data, claim: d}\n    - {target: /, claim: e}\n",
        'lab.yaml:5: kuberay.volumes.0.target: is where the storage for outputs is (see outputs), got "/outputs/"',
        'lab.yaml:6: kuberay.volumes.1.target: is the nodes\' shared memory, got "/dev/shm"',
        'lab.yaml:8: kuberay.volumes.3.target: is also the target of volumes.2, got "/data"',
        'lab.yaml:9: kuberay.volumes.4.target: must not be the root, got "/"',
    ),
    lab(
        "outputs where Ray is",
        "kuberay: {outputs: /tmp/ray}\n",
        'lab.yaml:3: kuberay.outputs: is where Ray keeps its sessions, got "/tmp/ray"',
    ),
    lab(
        "labels and annotations of others",
        "kuberay: {labels: {ray.io/cluster: x, team: a}, annotations: {io.trainyard/image: x}}\n",
        "lab.yaml:3: kuberay.labels.ray.io/cluster: is set by KubeRay or Trainyard",
        "lab.yaml:3: kuberay.annotations.io.trainyard/image: is set by KubeRay or Trainyard",
    ),
    lab(
        "root, restricted",
        "kuberay: {security: {restricted: true, run_as_user: 0}}\n",
        "lab.yaml:3: kuberay.security.run_as_user: must not be 0 (root) with `restricted: true`, got 0",
    ),
    lab(
        "a directory of the host, restricted",
        "kuberay: {security: {restricted: true}, volumes: [{target: /d, host_path: /srv}]}\n",
        'lab.yaml:3: kuberay.volumes.0.host_path: is not allowed with `security.restricted: true`, got "/srv"',
    ),
    lab(
        "a namespace with capitals",
        "kuberay: {namespace: Team_A}\n",
        "lab.yaml:3: kuberay.namespace: must be the name of a namespace: lower-case letters, digits and '-', at most "
        '63 characters, got "Team_A"',
    ),
    lab(
        "a selector that is no label",
        'kuberay: {node_selector: {"pool!": "a b"}}\n',
        'lab.yaml:3: kuberay.node_selector.pool!: must be [PREFIX/]NAME, such as example.com/pool, got "pool!"',
        "lab.yaml:3: kuberay.node_selector.pool!: must be a label's value: at most 63 letters, digits, '-', '_' and "
        "'.', got \"a b\"",
    ),
    lab(
        "a toleration without what it tolerates",
        "kuberay: {tolerations: [{operator: Equal, key: gpu}, {value: x}]}\n",
        "lab.yaml:3: kuberay.tolerations.0: needs key and value for `operator: Equal`",
        'lab.yaml:3: kuberay.tolerations.1.value: means something only for `operator: Equal`, got "x"',
    ),
    lab(
        "a service without its namespace",
        "existing: {service: lab-head-svc}\nkuberay: {requests: {cpus: 0}}\n",
        "lab.yaml:3: existing.service: must be NAMESPACE/NAME of a service, such as team/lab-head-svc, got "
        '"lab-head-svc"',
        "lab.yaml:4: kuberay.requests.cpus: must be above 0, got 0",
    ),
)
