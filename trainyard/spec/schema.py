"""The JSON Schemas of users' files, for editors.

`python -m trainyard.spec.schema DIRECTORY` writes them.

An editor finds a schema through a comment in the file: `# yaml-language-server:
$schema=../docs/cluster.schema.json`. `make setup` writes the schemas into docs/
of a checkout, and hatch_build.py into the same place of the wheel. They are not
in git.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from trainyard.spec import ray_forms
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.fields import Section
from trainyard.spec.image import ImageFile
from trainyard.spec.job import JobSpec

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each kind of file.

    A job's schema has no key `name`: that is its directory's name.
    """
    models: dict[str, type[Section]] = {"cluster": ClusterSpec, "image": ImageFile, "job": JobSpec}
    documents = {}
    for kind, model in models.items():
        title = f"Trainyard {kind} file"
        documents[kind] = {"$schema": DRAFT, **model.model_json_schema(), "title": title}

    job = documents["job"]
    del job["properties"]["name"]
    del job["required"]
    _open_rays_forms(job["$defs"]["RuntimeEnv"]["properties"])
    env = job["properties"]["runtime_env"]
    env["anyOf"] = [{"$ref": env.pop("$ref")}, {"type": "string"}]
    job["oneOf"] = [{"required": ["command"]}, {"required": ["tasks"]}]
    return documents


def _open_rays_forms(properties: dict[str, Any]) -> None:
    """Allow pip and uv as a requirements file, or a mapping with packages."""
    for key in ray_forms.OPTIONS:
        entry = properties[key]
        a_list = {name: entry.pop(name) for name in ("type", "items") if name in entry}
        entry["anyOf"] = [a_list, {"type": "string"}, {"type": "object", "required": ["packages"]}]


def write(directory: Path) -> list[Path]:
    """Write the schemas; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, schema in schemas().items():
        path = directory / f"{kind}.schema.json"
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    write(Path(*sys.argv[1:]))
