"""Cluster files that are YAML, and wrong: environments, images, registries, ways in."""

from tests.bad_input.case import cluster, lab

CLUSTER_ACCESS = (
    lab(
        "a variable that is a number",
        "env: {OMP_NUM_THREADS: 1}\n",
        'lab.yaml:3: env.OMP_NUM_THREADS: must be text, got 1; write it in quotes: "1"',
    ),
    lab("a variable without a value", "env: {NCCL_DEBUG: }\n", "lab.yaml:3: env.NCCL_DEBUG: must be text, got nothing"),
    lab(
        "a variable with a dash",
        "env: {NCCL-DEBUG: WARN}\n",
        "lab.yaml:3: env.NCCL-DEBUG: must be the name of an environment variable: letters, digits and "
        "'_', got \"NCCL-DEBUG\"",
    ),
    lab(
        "a variable with a NUL character", 'env: {A: "x\\0y"}\n', "lab.yaml:3: env.A: must not contain a NUL character"
    ),
    lab(
        "Ray's token in the variables",
        "env: {RAY_AUTH_TOKEN: hunter2}\n",
        "lab.yaml:3: env.RAY_AUTH_TOKEN: is set by Trainyard",
    ),
    lab(
        "a value that cluster.show hid",
        'env: {HF_TOKEN: "(hidden)"}\n',
        "lab.yaml:3: env.HF_TOKEN: was hidden when this file was written: put the value",
    ),
    lab(
        "an image with capitals",
        "image: ScholaExamples:registry\n",
        "lab.yaml:3: image: must be a directory of images/ or an image reference such as "
        'registry:5000/team/schola:1.2 (lower case), got "ScholaExamples:registry"',
    ),
    lab(
        "a registry with http://",
        'registry: {address: "http://192.0.2.10:32000"}\n',
        "lab.yaml:3: registry.address: must be HOST or HOST:PORT, without http:// and without a user, "
        'got "http://192.0.2.10:32000"',
    ),
    lab(
        "a registry at every address",
        'registry: {address: "[::]:32000"}\n',
        'lab.yaml:3: registry.address: must be an address that clients can ask, got "[::]:32000"',
    ),
    lab(
        "a registry's port that is none",
        'registry: {address: "127.0.0.1:99999"}\n',
        "lab.yaml:3: registry.address: must be HOST or HOST:PORT, without http:// and without a user, "
        'got "127.0.0.1:99999"',
    ),
    lab(
        "a password in the file",
        'registry: {address: "192.0.2.10:32000", username: ops, password: hunter2}\n',
        "lab.yaml:3: registry.password: is not a known key; did you mean 'password_env'?",
    ),
    lab(
        "a user without a password",
        'registry: {address: "192.0.2.10:32000", username: ops}\n',
        "lab.yaml:3: registry: needs username together with one of password_env and password_file, or none of them",
    ),
    lab(
        "yes for true",
        "local: {simulated_gpus: yes}\n",
        'lab.yaml:3: local.simulated_gpus: must be true or false, got "yes"',
    ),
    cluster(
        "existing without its section",
        "name: lab\nbackend: existing\n",
        "lab.yaml:1: existing: is missing: the backend 'existing' needs the address of a Ray cluster",
    ),
    cluster(
        "existing without an address",
        "name: lab\nbackend: existing\nexisting: {token_env: RAY_TOKEN}\n",
        "lab.yaml:3: existing: needs either address (http://HOST:8265) or service (NAMESPACE/NAME on Kubernetes)",
    ),
    cluster(
        "existing without a token",
        'name: lab\nbackend: existing\nexisting: {address: "http://127.0.0.1:8265"}\n',
        "lab.yaml:3: existing: needs token_env, token_file or, with service, token_secret (`auth: none` "
        "if there is none)",
    ),
    cluster(
        "a token in the file",
        'name: lab\nbackend: existing\nexisting: {address: "http://127.0.0.1:8265", token: hunter2}\n',
        "lab.yaml:3: existing.token: is not a known key; did you mean 'token_env'?",
    ),
    cluster(
        "no authentication beyond loopback",
        'name: lab\nbackend: existing\nauth: none\nexisting: {address: "http://192.0.2.10:8265"}\n',
        "lab.yaml:3: auth: must be 'token' unless the cluster is on loopback, and existing.address is "
        'http://192.0.2.10:8265, got "none"',
    ),
    cluster(
        "a host that only begins like loopback",
        'name: lab\nbackend: existing\nauth: none\nexisting: {address: "http://127.0.0.1.example.org:8265"}\n',
        "lab.yaml:3: auth: must be 'token' unless the cluster is on loopback, and existing.address is "
        'http://127.0.0.1.example.org:8265, got "none"',
    ),
    cluster(
        "an address with a password",
        'name: lab\nbackend: existing\nexisting: {address: "http://ops:hunter2@192.0.2.10:8265", token_env: A}\n',
        "lab.yaml:3: existing.address: must be the dashboard's address such as http://127.0.0.1:8265 (no "
        'user, path or query), got "http://(hidden)@192.0.2.10:8265"',
    ),
)
