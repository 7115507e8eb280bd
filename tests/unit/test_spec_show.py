from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec import as_json, as_yaml, load_cluster, load_job

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
tasks:
  - {name: a, command: [a.py], resources: {gpus: 1}, outputs: []}
  - {name: b, command: [b.py], env: {X: "1"}, node: {name: head}, timeout: 0.5s}
"""


EXISTING = """\
name: lab
backend: existing
existing: {address: "http://127.0.0.1:8265", token_env: RAY_TOKEN}
"""


@pytest.mark.parametrize("text", [CLUSTER, EXISTING])
def test_a_shown_cluster_loads_again_to_the_same(text: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(text)
    spec = load_cluster(first).spec
    second.write_text(as_yaml(spec))

    assert load_cluster(second).spec == spec


@pytest.mark.parametrize("text", [JOB, TASKS])
def test_a_shown_job_loads_again_to_the_same(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    job = load_job(tmp_path)
    (tmp_path / "job.yaml").write_text(as_yaml(job))

    assert load_job(tmp_path) == job


def test_defaults_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: lab\nbackend: local\nhead: {cpus: 2}\nworkers: [{name: gpu, gpus: 1, memory: 4GiB}]\n")

    assert as_yaml(load_cluster(path).spec) == (
        "name: lab\n"
        "backend: local\n"
        "head:\n"
        "  cpus: 2\n"
        "  gpus: 0  # default\n"
        "workers:\n"
        "- name: gpu\n"
        "  count: 1  # default\n"
        "  memory: 4GiB\n"
        "  gpus: 1\n"
        "env: {}  # default\n"
        "build:\n"
        "  network: default  # default\n"
        "local:\n"
        "  simulated_gpus: false  # default\n"
        "auth: token  # default\n"
    )


def test_only_the_own_backend_has_a_section(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(EXISTING + "kuberay: {namespace: mine}\ncompose: {simulated_gpus: true}\n")

    shown = as_yaml(load_cluster(path).spec)

    assert "existing:\n" in shown
    assert not {"local:", "compose:", "kuberay:"} & set(shown.split())


def test_the_json_form_names_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: lab\nbackend: local\nhead: {memory: 4GiB}\n")

    shown = json.loads(json.dumps(as_json(load_cluster(path).spec)))

    assert shown["head"] == {"cpus": None, "memory": "4GiB", "gpus": 0}
    assert "head.gpus" in shown["defaults"]
    assert "head.memory" not in shown["defaults"]


def test_secrets_are_hidden_and_their_names_are_not(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(
        CLUSTER.replace("env: {", "env: {HF_TOKEN: hunter2, MY_PASSWORD: hunter2, TOKENIZERS_PARALLELISM: fast, ")
    )
    spec = load_cluster(path).spec

    for shown in (as_yaml(spec), json.dumps(as_json(spec))):
        assert "hunter2" not in shown
        assert "fast" in shown
        assert "REGISTRY_PASSWORD" in shown


def test_secrets_of_tasks_are_hidden(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("tasks: [{name: a, command: [a.py], env: {WANDB_API_KEY: hunter2}}]\n")
    job = load_job(tmp_path)

    assert "hunter2" not in as_yaml(job) + json.dumps(as_json(job))


def test_the_charts_values_are_hidden(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: lab\nbackend: kuberay\nkuberay: {operator: {values: {auth: {password: hunter2}, b: 1}}}\n")
    spec = load_cluster(path).spec

    assert as_json(spec)["kuberay"]["operator"]["values"] == {"auth": "(hidden)", "b": "(hidden)"}
    assert "hunter2" not in as_yaml(spec)


def test_a_value_of_the_chart_that_was_hidden_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: lab\nbackend: kuberay\nkuberay: {operator: {values: {auth: (hidden)}}}\n")

    with pytest.raises(RequestError) as caught:
        load_cluster(path)

    assert "kuberay.operator.values.auth: was hidden when this file was written" in str(caught.value)
