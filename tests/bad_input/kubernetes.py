"""Cluster files for Kubernetes that are YAML, and wrong."""

from tests.bad_input.case import cluster, lab

ON = "name: lab\nbackend: kuberay\n"

KUBERNETES = (
    cluster(
        "names that end where Kubernetes does not let them",
        "name: lab-\nbackend: kuberay\nworkers: [{name: gpu-}]\n",
        "lab.yaml:1: name: must be lower-case letters, digits and '-', start with a letter, not end with "
        "'-', at most 40 characters, got \"lab-\"",
        "lab.yaml:3: workers.0.name: must be lower-case letters, digits and '-', start with a letter, "
        "not end with '-', at most 40 characters, got \"gpu-\"",
    ),
    cluster(
        "a group that KubeRay takes for the head",
        ON + "workers: [{name: headgroup}]\n",
        'lab.yaml:3: workers.0.name: must not be one of the head\'s names: head, headgroup, got "headgroup"',
    ),
    cluster(
        "a placement of a group that there is none of",
        ON + "workers: [{name: gpu}]\nkuberay: {groups: {cpu: {spread: none}}}\n",
        "lab.yaml:4: kuberay.groups.cpu: is no group of this file (it has: head, gpu)",
    ),
    cluster(
        "a cluster on Kubernetes without a token",
        ON + "auth: none\n",
        "lab.yaml:3: auth: must be 'token' with the backend kuberay: every pod of the Kubernetes cluster "
        'reaches the dashboard, got "none"',
    ),
    lab(
        "storage that is nowhere",
        "kuberay: {storage: {access: ReadWriteOnce}}\n",
        "lab.yaml:3: kuberay.storage: needs either `claim` (one that exists) or `size` (of one to be made)",
    ),
    lab(
        "a volume without a source",
        "kuberay: {volumes: [{target: /datasets}]}\n",
        "lab.yaml:3: kuberay.volumes.0: needs exactly one of: claim, config_map, secret, host_path",
    ),
    lab(
        "labels and annotations of others",
        "kuberay: {labels: {ray.io/cluster: x, team: a}, annotations: {io.trainyard/image: x}}\n",
        "lab.yaml:3: kuberay.labels.ray.io/cluster: is set by KubeRay or Trainyard",
        "lab.yaml:3: kuberay.annotations.io.trainyard/image: is set by KubeRay or Trainyard",
    ),
    lab(
        "a namespace with capitals",
        "kuberay: {namespace: Team_A}\n",
        "lab.yaml:3: kuberay.namespace: must be a name that Kubernetes takes: lower-case letters, "
        "digits, '-' and '.', got \"Team_A\"",
    ),
    lab(
        "a service without its namespace",
        "existing: {service: lab-head-svc}\nkuberay: {requests: {cpus: 0}}\n",
        "lab.yaml:3: existing.service: must be NAMESPACE/NAME of a service, such as team/lab-head-svc, "
        'got "lab-head-svc"',
        "lab.yaml:4: kuberay.requests.cpus: must be above 0, got 0",
    ),
)
