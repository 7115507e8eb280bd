from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trainyard.spec.load import load_cluster, load_image, load_job
from trainyard.spec.schema import schemas, write
from trainyard.spec.yaml_source import compose

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = schemas()
LOADERS: dict[str, Callable[[Path], object]] = {
    "cluster": load_cluster,
    "image": lambda path: load_image(path.parent),
    "job": lambda path: load_job(path.parent),
}
SCHEMA_COMMENT = re.compile(r"^# yaml-language-server: \$schema=(\S+)", re.MULTILINE)
SHIPPED = [
    *(("cluster", path) for path in sorted(ROOT.glob("clusters/*.yaml"))),
    *(("image", path) for path in sorted(ROOT.glob("images/*/image.yaml"))),
    *(("job", path) for path in sorted(ROOT.glob("jobs/*/job.yaml"))),
]


def complaints(kind: str, text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMAS[kind])
    return [error.message for error in validator.iter_errors(compose(text, origin="file").value)]


def test_each_schema_is_written_to_a_directory_that_may_be_new(tmp_path: Path) -> None:
    paths = write(tmp_path / "schemas")

    assert {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths} == {
        f"{kind}.schema.json": schema for kind, schema in SCHEMAS.items()
    }


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda part: Path(part).stem)
def test_a_file_we_ship_names_its_schema_in_docs_if_it_names_one(kind: str, path: Path) -> None:
    named = SCHEMA_COMMENT.findall(path.read_text(encoding="utf-8"))

    assert {(path.parent / name).resolve() for name in named} <= {
        ROOT / "docs" / f"{kind}.schema.json"
    }


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_the_schemas_are_schemas_and_describe_every_field(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    sections = [schema, *schema["$defs"].values()]
    fields = [field for section in sections for field in section.get("properties", {}).items()]
    assert [name for name, field in fields if not field.get("description")] == []


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda part: Path(part).stem)
def test_the_files_we_ship_are_right_for_editors_and_for_us(kind: str, path: Path) -> None:
    assert complaints(kind, path.read_text(encoding="utf-8")) == []
    assert LOADERS[kind](path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cluster", "backend: local\n"),
        ("cluster", "name: lab\nbackend: locl\n"),
        ("cluster", "name: lab\nbackend: local\nwrokers: []\n"),
        ("cluster", "name: lab\nbackend: local\nhead: {memory: 4}\n"),
        ("cluster", "name: lab\nbackend: local\nenv: {A: 1}\n"),
        ("job", "retries: 1\n"),
        ("job", "command: python train.py\n"),
        ("job", "command: [a.py]\ntasks: []\n"),
        ("job", "command: [a.py]\ntimeout: 5\n"),
        ("job", "tasks: [{name: a/b, command: [a.py]}]\n"),
    ],
)
def test_a_schema_finds_mistakes_in_cluster_and_job_files(kind: str, text: str) -> None:
    assert complaints(kind, text) != []
