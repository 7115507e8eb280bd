from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trainyard.spec.load import load_cluster, load_image, load_job
from trainyard.spec.schema import DOCS, schemas, texts
from trainyard.spec.yaml_source import compose

ROOT = DOCS.parent
SCHEMAS = schemas()
LOADERS: dict[str, Callable[[Path], object]] = {
    "cluster": load_cluster,
    "image": lambda path: load_image(path.parent),
    "job": lambda path: load_job(path.parent),
}
SHIPPED = [
    *(("cluster", path) for path in sorted(ROOT.glob("clusters/*.yaml"))),
    *(("image", path) for path in sorted(ROOT.glob("images/*/image.yaml"))),
    *(("job", path) for path in sorted(ROOT.glob("jobs/*/job.yaml"))),
]


def complaints(kind: str, text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMAS[kind])
    return [error.message for error in validator.iter_errors(compose(text, origin="file").value)]


@pytest.mark.parametrize("name", sorted(texts()))
def test_the_schema_in_docs_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == texts()[name], "run: python -m trainyard.spec.schema"


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
def test_an_editor_shows_what_is_wrong(kind: str, text: str) -> None:
    assert complaints(kind, text) != []
