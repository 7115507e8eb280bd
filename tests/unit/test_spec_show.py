from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.expand import expand
from trainyard.spec.load import load_cluster, load_job
from trainyard.spec.show import as_json, as_yaml

CLUSTER = """\
name: lab
backend: kuberay
image: "ray:2.60.0"
head: {cpus: 2, memory: 4GiB}
workers:
  - {name: gpu, count: 3, memory: 1.5GiB, gpus: 1}
  - {name: burst, max: 5, idle_timeout: 90s}
env: {A: "no", B: "1", C: "two\\nlines \\u00e9 \\U0001F600 \\e", D: "", E: "- x: #y", F: "yes please"}
registry: {address: "192.0.2.10:32000", username: ops, password_env: REGISTRY_PASSWORD}
kuberay:
  groups: {head: {node_selector: {pool: "1"}}, gpu: {tolerations: [{key: gpu}], spread: none}}
  volumes: [{target: /datasets, claim: datasets, read_only: true}]
  storage: {size: 20GiB}
  wait_for_machines: 10m
"""

JOB = """\
command: [python, train.py, "--seed", "{seed}{lr-x}", "{{x}}", "a, b", "[", "~", "0x1", "1e3"]
matrix: {seed: [0, 1.0, true, "1", no, 1e-7], "lr-x": ["a: b"]}
resources: {gpus: 0.5, memory: 500MB}
timeout: 36h
runtime_env: {env_vars: {X: "1"}, pip: ["a>=1,<2"]}
node: {group: gpu}
outputs: [runs/, "a b"]
smoke: {min_disk: 10GiB}
"""

TASKS = """\
resources: {gpus: 1, cpus: 4}
tasks:
  - {name: a, command: [a.py], resources: {gpus: 1}, outputs: []}
  - {name: b, command: [b.py], env: {X: "1"}, node: {name: head}, timeout: 0.5s}
  - {name: c, command: [c.py], resources: {cpus: 2}}
"""

EXISTING = """\
name: lab
backend: existing
existing: {address: "http://127.0.0.1:8265", token_env: RAY_TOKEN}
"""
KUBERAY = "name: lab\nbackend: kuberay\n"


def cluster(directory: Path, text: str) -> ClusterSpec:
    (directory / "lab.yaml").write_text(text)
    return load_cluster(directory / "lab.yaml").spec


@pytest.mark.parametrize("text", [CLUSTER, EXISTING])
def test_a_shown_cluster_loads_again_to_the_same(text: str, tmp_path: Path) -> None:
    spec = cluster(tmp_path, text)
    assert cluster(tmp_path, as_yaml(spec)) == spec


def test_unicode_line_breaks_in_a_value_stay_text(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("name: lab\nbackend: local\n")
    spec = load_cluster(tmp_path / "lab.yaml", overrides=["env.A=\u2028x\x85y\u2029z"]).spec
    assert spec.env == {"A": "\u2028x\x85y\u2029z"}
    assert cluster(tmp_path, as_yaml(spec)) == spec


@pytest.mark.parametrize("text", [JOB, TASKS])
def test_a_shown_job_loads_again_to_the_same(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    job = load_job(tmp_path)
    (tmp_path / "job.yaml").write_text(as_yaml(job))
    assert load_job(tmp_path) == job
    assert expand(load_job(tmp_path)) == expand(job)


def test_defaults_are_marked(tmp_path: Path) -> None:
    spec = cluster(
        tmp_path,
        "name: lab\nbackend: local\nhead: {cpus: 2}\nworkers: [{name: gpu, memory: 4GiB}]\n",
    )

    shown = """\
name: lab
backend: local
head:
  cpus: 2
  gpus: 0  # default
  resources: {}  # default
  labels: {}  # default
  ray_start: {}  # default
workers:
- name: gpu
  count: 1  # default
  memory: 4GiB
  gpus: 0  # default
  resources: {}  # default
  labels: {}  # default
  ray_start: {}  # default
env: {}  # default
build:
  network: default  # default
local:
  simulated_gpus: false  # default
auth: token  # default
"""

    assert as_yaml(spec) == shown
    document = json.loads(json.dumps(as_json(spec)))
    of_ray: dict[str, object] = {"image": None, "resources": {}, "labels": {}, "ray_start": {}}
    assert document["head"] == {"cpus": 2, "memory": None, "gpus": 0, **of_ray}
    assert {"head.gpus", "head.cpus"} & set(document["defaults"]) == {"head.gpus"}


def test_only_the_own_backend_has_a_section(tmp_path: Path) -> None:
    shown = as_yaml(
        cluster(
            tmp_path, EXISTING + "kuberay: {namespace: mine}\ncompose: {simulated_gpus: true}\n"
        )
    )
    assert {"existing:", "local:", "compose:", "kuberay:"} & set(shown.split()) == {"existing:"}


def test_secrets_are_hidden_and_their_names_are_not(tmp_path: Path) -> None:
    secrets = "env: {HF_TOKEN: hunter2, MY_PASSWORD: hunter2, TOKENIZERS_PARALLELISM: fast, "
    spec = cluster(tmp_path, CLUSTER.replace("env: {", secrets))
    (tmp_path / "job.yaml").write_text(
        "tasks: [{name: a, command: [a.py], env: {WANDB_API_KEY: hunter2}}]\n"
    )
    job = load_job(tmp_path)
    for shown in (as_yaml(spec) + as_yaml(job), json.dumps([as_json(spec), as_json(job)])):
        assert "hunter2" not in shown
        assert all(
            name in shown for name in ("HF_TOKEN", "fast", "REGISTRY_PASSWORD", "WANDB_API_KEY")
        )


def test_the_charts_values_are_hidden_and_one_that_was_is_asked_for(tmp_path: Path) -> None:
    spec = cluster(
        tmp_path,
        f"{KUBERAY}kuberay: {{operator: {{values: {{auth: {{password: hunter2}}, b: 1}}}}}}\n",
    )
    assert as_json(spec)["kuberay"]["operator"]["values"] == {"auth": "(hidden)", "b": "(hidden)"}
    assert "hunter2" not in as_yaml(spec)
    with pytest.raises(
        RequestError,
        match=r"kuberay\.operator\.values\.auth: was hidden when this file was written",
    ):
        cluster(tmp_path, as_yaml(spec))
