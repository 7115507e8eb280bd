from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trainyard.spec import load_cluster, load_image, load_job
from trainyard.spec.schema import DOCS, cluster_schema, image_schema, job_schema, texts
from trainyard.spec.yaml_source import compose

ROOT = DOCS.parent
CLUSTER_FILES = sorted((ROOT / "clusters").glob("*.yaml"))
JOB_FILES = sorted((ROOT / "jobs").glob("*/job.yaml"))
IMAGE_FILES = sorted((ROOT / "images").glob("*/image.yaml"))


def complaints(schema: dict[str, Any], text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(compose(text, origin="file").value)]


@pytest.mark.parametrize("name", sorted(texts()))
def test_the_schema_in_docs_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == texts()[name], "run: python -m trainyard.spec.schema"


@pytest.mark.parametrize("schema", [cluster_schema(), image_schema(), job_schema()], ids=["cluster", "image", "job"])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("schema", [cluster_schema(), image_schema(), job_schema()], ids=["cluster", "image", "job"])
def test_every_field_is_described(schema: dict[str, Any]) -> None:
    sections = [schema, *schema["$defs"].values()]
    fields = [field for section in sections for field in section.get("properties", {}).items()]

    assert [name for name, field in fields if not field.get("description")] == []


@pytest.mark.parametrize("path", CLUSTER_FILES, ids=lambda path: path.name)
def test_the_cluster_files_we_ship_are_right_for_editors_and_for_us(path: Path) -> None:
    assert complaints(cluster_schema(), path.read_text(encoding="utf-8")) == []
    assert load_cluster(path).spec.name


@pytest.mark.parametrize("path", IMAGE_FILES, ids=lambda path: path.parent.name)
def test_the_image_files_we_ship_are_right_for_editors_and_for_us(path: Path) -> None:
    assert complaints(image_schema(), path.read_text(encoding="utf-8")) == []
    assert load_image(path.parent).base


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_the_job_files_we_ship_are_right_for_editors_and_for_us(path: Path) -> None:
    assert complaints(job_schema(), path.read_text(encoding="utf-8")) == []
    assert load_job(path.parent).name == path.parent.name


@pytest.mark.parametrize(
    "text",
    [
        "backend: local\n",
        "name: Lab\nbackend: local\n",
        "name: lab\nbackend: locl\n",
        "name: lab\nbackend: local\nwrokers: []\n",
        "name: lab\nbackend: local\nhead: {memory: 4}\n",
        "name: lab\nbackend: local\nhead: {cpus: -1}\n",
        "name: lab\nbackend: local\nenv: {A: 1}\n",
        "name: lab\nbackend: local\nenv: {A-B: x}\n",
    ],
)
def test_an_editor_shows_what_is_wrong_with_a_cluster_file(text: str) -> None:
    assert complaints(cluster_schema(), text) != []


@pytest.mark.parametrize(
    "text",
    [
        "retries: 1\n",
        "command: python train.py\n",
        "command: []\n",
        "command: [a.py]\ntasks: []\n",
        "command: [a.py]\nmatrix: {seed: []}\n",
        "command: [a.py]\ntimeout: 5\n",
        "command: [a.py]\nname: mine\n",
        "tasks: [{name: a/b, command: [a.py]}]\n",
    ],
)
def test_an_editor_shows_what_is_wrong_with_a_job_file(text: str) -> None:
    assert complaints(job_schema(), text) != []
