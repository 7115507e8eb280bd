"""Cluster files that are YAML, and wrong."""

from tests.bad_input.case import DURATION, FEWER_CPUS, NAME, SIZE, cluster, lab

ADDRESS = (
    "lab.yaml:3: registry.address: must be HOST or HOST:PORT, without http:// and without "
    "a user, got "
)
REMOTE = "lab.yaml:3: auth: must be 'token', because existing.address (http://"
EXISTING = "name: lab\nbackend: existing\n"

NODES = (
    cluster(
        "nothing that is required",
        "image: schola\n",
        "lab.yaml:1: name: is missing",
        "lab.yaml:1: backend: is missing",
    ),
    cluster(
        "keys and values that are not known",
        "name: Lab\nbackend: loca\nworkrs: []\nzzz: 1\nworkers:\n  - name: gpu\n    gpu: 1\n",
        f'lab.yaml:1: name: {NAME}"Lab"',
        "lab.yaml:2: backend: must be one of: local, compose, kuberay, microk8s, ec2, existing, "
        "got \"loca\"; did you mean 'local'?",
        "lab.yaml:3: workrs: is not a known key; did you mean 'workers'?",
        "lab.yaml:4: zzz: is not a known key; known: name, backend, image, head, workers, env, "
        "leash, registry, "
        "build, local, compose, kuberay, microk8s, ec2, existing, auth",
        "lab.yaml:7: workers.0.gpu: is not a known key; did you mean 'gpus'?",
    ),
    cluster(
        "names",
        'name: ../lab\nbackend: local\nworkers: [{name: lab-}, {name: "lab٣"}, {name: 7}, {name: '
        "headgroup}]\n",
        f'lab.yaml:1: name: {NAME}"../lab"',
        f'lab.yaml:3: workers.0.name: {NAME}"lab-"',
        f'lab.yaml:3: workers.1.name: {NAME}"lab٣"',
        'lab.yaml:3: workers.2.name: must be text, got 7; write it in quotes: "7"',
        "lab.yaml:3: workers.3.name: must not be one of the head's names: head, headgroup, got "
        '"headgroup"',
    ),
    lab(
        "words of Docker Compose and Kubernetes",
        "ports: [8265]\nregistry: reg.lab:5000\nhead: {cpus: 500m, memory: 512Mi}\n"
        "workers: [{name: gpu, replicas: 2, memory: 512m}]\ncompose: {volumes: [/data], "
        "shm_size: 2g}\n",
        "lab.yaml:3: ports: is not a known key: only the dashboard is published, at "
        "compose.dashboard_port",
        'lab.yaml:4: registry: must be a mapping of keys to values, got "reg.lab:5000"; '
        'write {address: "reg.lab:5000"}',
        f'lab.yaml:5: head.cpus: must be a whole number, got "500m"{FEWER_CPUS}',
        f'lab.yaml:5: head.memory: {SIZE}"512Mi"; write 512MiB',
        "lab.yaml:6: workers.0.replicas: is not a known key: the number of nodes is `count`",
        f'lab.yaml:6: workers.0.memory: {SIZE}"512m"; write 512MiB',
        "lab.yaml:7: compose.volumes: is not a known key: directories of a Docker host are "
        "compose.mounts, volumes of "
        "pods kuberay.volumes",
        f'lab.yaml:7: compose.shm_size: {SIZE}"2g"; write 2GiB',
    ),
    lab(
        "two groups of one name",
        "workers:\n  - {name: gpu}\n  - {name: cpu}\n  - {name: gpu}\n",
        'lab.yaml:6: workers.2.name: is also the name of workers.0, got "gpu"',
    ),
    lab(
        "numbers",
        "head: {cpus: 0.5, memory: 4 * 1024**3, gpus: -1}\nworkers:\n"
        f"  - {{name: a, cpus: {'9' * 100}, memory: 4}}\n"
        "  - {name: b, count: 1, max: 3}\n  - {name: c, min: 4, max: 3}\n  - {name: d, max: 2, "
        "idle_timeout: 300}\n  - {name: e, count: 3, idle_timeout: 5m}\n",
        f"lab.yaml:3: head.cpus: must be a whole number, got 0.5{FEWER_CPUS}",
        f'lab.yaml:3: head.memory: {SIZE}"4 * 1024**3"',
        "lab.yaml:3: head.gpus: must be at least 0, got -1",
        f'lab.yaml:5: workers.0.cpus: must be a whole number, got "{"9" * 59}...',
        f"lab.yaml:5: workers.0.memory: {SIZE}4",
        "lab.yaml:6: workers.1: needs either count (a fixed size) or max, perhaps with min (Ray "
        "chooses between them)",
        "lab.yaml:7: workers.2.min: must be at most max (3), got 4",
        f"lab.yaml:8: workers.3.idle_timeout: {DURATION}300",
        "lab.yaml:9: workers.4.idle_timeout: has no effect without max: the group never shrinks",
    ),
    lab(
        "variables, an image, yes for true",
        'env: {A: "x\\0y", B: 1, C: , NCCL-DEBUG: x}\nimage: ScholaExamples:registry\nlocal: '
        "{simulated_gpus: yes}\n",
        "lab.yaml:3: env.A: must not contain a NUL character",
        'lab.yaml:3: env.B: must be text, got 1; write it in quotes: "1"',
        "lab.yaml:3: env.C: must be text, got nothing",
        "lab.yaml:3: env.NCCL-DEBUG: must be the name of an environment variable: letters, "
        "digits and "
        "'_', got \"NCCL-DEBUG\"",
        "lab.yaml:4: image: must name a directory below images/, or be an image reference such as "
        'registry:5000/team/schola:1.2 (lower case), got "ScholaExamples:registry"',
        'lab.yaml:5: local.simulated_gpus: must be true or false, got "yes"',
    ),
    lab(
        "Ray's token, and a value that cluster.show hid",
        'env: {RAY_AUTH_TOKEN: hunter2, HF_TOKEN: "(hidden)"}\n',
        "lab.yaml:3: env.HF_TOKEN: was hidden when this file was written: fill in the value",
        "lab.yaml:3: env.RAY_AUTH_TOKEN: is set by Trainyard",
    ),
)

ACCESS = (
    lab(
        "a registry with http://, a cluster without an address",
        'registry: {address: "http://192.0.2.10:32000"}\nexisting: {token_env: RAY_TOKEN}\n',
        f'{ADDRESS}"http://192.0.2.10:32000"',
        "lab.yaml:4: existing: needs either address (http://HOST:8265) or service "
        "(NAMESPACE/NAME on Kubernetes)",
    ),
    cluster(
        "variables of nodes that are made elsewhere",
        EXISTING
        + 'existing: {address: "http://127.0.0.1:8265"}\nauth: none\nenv: {HF_HOME: /data}\n',
        "lab.yaml:5: env: has no effect with the backend existing: its nodes are made outside "
        "Trainyard; `env` of a job sets variables of its tasks",
    ),
    lab(
        "a registry's port that is none, an address with a password",
        'registry: {address: "127.0.0.1:99999"}\nexisting: {address: '
        '"http://ops:hunter2@192.0.2.10", token_env: A}\n',
        f'{ADDRESS}"127.0.0.1:99999"',
        "lab.yaml:4: existing.address: must be the dashboard's address such as "
        "http://127.0.0.1:8265 (no "
        'user, path or query), got "http://(hidden)@192.0.2.10"',
    ),
    lab(
        "a password and a token in the file",
        'registry: {address: "192.0.2.10:32000", username: ops, password: hunter2}\n'
        'existing: {address: "http://127.0.0.1:8265", token: hunter2}\n',
        "lab.yaml:3: registry.password: is not a known key; did you mean 'password_env'?",
        "lab.yaml:4: existing.token: is not a known key; did you mean 'token_env'?",
    ),
    lab(
        "a user without a password",
        'registry: {address: "192.0.2.10:32000", username: ops}\n',
        "lab.yaml:3: registry: needs username together with one of password_env and "
        "password_file, or none of them",
    ),
    lab(
        "a registry at every address",
        'registry: {address: "[::]:32000"}\n',
        'lab.yaml:3: registry.address: must be an address that clients can reach, got "[::]:32000"',
    ),
    cluster(
        "existing without its section",
        EXISTING,
        "lab.yaml:1: existing: is missing: the backend 'existing' needs the address of a Ray "
        "cluster",
    ),
    cluster(
        "existing without a token",
        f'{EXISTING}existing: {{address: "http://127.0.0.1:8265"}}\n',
        "lab.yaml:3: existing: needs token_env, token_file or, with service, token_secret "
        "(`auth: none` "
        "if there is none)",
    ),
    cluster(
        "a host that only begins like loopback",
        f'{EXISTING}auth: none\nexisting: {{address: "http://127.0.0.1.example.org:8265"}}\n',
        f'{REMOTE}127.0.0.1.example.org:8265) is not on loopback, got "none"',
    ),
)

KUBERNETES = (
    cluster(
        "a channel without a version, and a host that stands there twice",
        "name: lab\nbackend: microk8s\nmicrok8s:\n  channel: latest\n  hosts:\n"
        "    - {address: ops@b}\n    - {address: b}\n",
        "lab.yaml:4: microk8s.channel: must be a channel of MicroK8s such as 1.34/stable, got "
        '"latest"',
        'lab.yaml:7: microk8s.hosts.1.address: is also the address of hosts.0, got "b"',
    ),
    cluster(
        "a user and a port that are given twice",
        "name: lab\nbackend: microk8s\nmicrok8s:\n  hosts:\n    - {address: ops@a, user: root}\n"
        '    - {address: "b:2222", port: 22}\n',
        'lab.yaml:5: microk8s.hosts.0.user: is in address, too: ops@a, got "root"',
        "lab.yaml:6: microk8s.hosts.1.port: is in address, too: b:2222, got 22",
    ),
    cluster(
        "roles of hosts",
        "name: lab\nbackend: microk8s\nmicrok8s:\n  hosts:\n    - {address: a, role: worker}\n"
        "    - {address: b, role: control-plane}\n    - {address: c, role: control-plane}\n",
        "lab.yaml:4: microk8s.hosts: has 2 control planes, which both end if one is lost: give 1, "
        "or 3 and more",
        "lab.yaml:5: microk8s.hosts.0.role: must be control-plane: the others join this host, "
        'got "worker"',
    ),
    cluster(
        "no token, and a placement of a group that there is none of",
        "name: lab\nbackend: kuberay\nauth: none\nworkers: [{name: gpu}]\nkuberay: {groups: "
        "{cpu: {spread: none}}}\n",
        "lab.yaml:3: auth: must be 'token' with the backend kuberay: every pod of the Kubernetes "
        "cluster "
        'reaches the dashboard, got "none"',
        "lab.yaml:5: kuberay.groups.cpu: is no group of this file (it has: head, gpu)",
    ),
    lab(
        "the section for Kubernetes",
        "kuberay:\n  namespace: Team_A\n  labels: {ray.io/cluster: x, team: a}\n  annotations: "
        "{io.trainyard/image: x}"
        "\n  storage: {access: ReadWriteOnce}\n  volumes: [{target: /datasets}]\n  requests: "
        "{cpus: 0}\n"
        "existing: {service: lab-head-svc}\n",
        "lab.yaml:4: kuberay.namespace: must be a name that Kubernetes accepts: lower-case letters, "
        "digits, '-' and '.', got \"Team_A\"",
        "lab.yaml:5: kuberay.labels.ray.io/cluster: is set by KubeRay or Trainyard",
        "lab.yaml:6: kuberay.annotations.io.trainyard/image: is set by KubeRay or Trainyard",
        "lab.yaml:7: kuberay.storage: needs either `claim` (one that exists) or `size` (of one "
        "to be made)",
        "lab.yaml:8: kuberay.volumes.0: needs exactly one of: claim, config_map, secret, "
        "host_path, empty_dir",
        "lab.yaml:9: kuberay.requests.cpus: must be above 0, got 0",
        "lab.yaml:10: existing.service: must be NAMESPACE/NAME of a service, such as "
        "team/lab-head-svc, "
        'got "lab-head-svc"',
    ),
)

CLUSTERS = (*NODES, *ACCESS, *KUBERNETES)
