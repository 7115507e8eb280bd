"""The JSON Schemas of what users write, for editors: `python -m trainyard.spec.schema DIRECTORY`
writes them there.

An editor uses one through the comment `# yaml-language-server:
$schema=../docs/cluster.schema.json`. `make setup` writes them into docs/ of a checkout, and
hatch_build.py into the same place of the wheel; git has none.
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
    """Return the schema of each kind of file; a job's name is its directory's, and no key of its
    file.
    """
    models: dict[str, type[Section]] = {"cluster": ClusterSpec, "image": ImageFile, "job": JobSpec}
    made = {}
    for kind, model in models.items():
        made[kind] = {
            "$schema": DRAFT,
            **model.model_json_schema(),
            "title": f"Trainyard {kind} file",
        }

    job = made["job"]
    del job["properties"]["name"], job["required"]
    _open_rays_forms(job["$defs"]["RuntimeEnv"]["properties"])
    env = job["properties"]["runtime_env"]
    env["anyOf"] = [{"$ref": env.pop("$ref")}, {"type": "string"}]
    job["oneOf"] = [{"required": ["command"]}, {"required": ["tasks"]}]

    return made


def _open_rays_forms(properties: dict[str, Any]) -> None:
    """Allow what Ray takes besides lists: a requirements file, and a mapping with packages."""
    for key in ray_forms.OPTIONS:
        entry = properties[key]
        listed = {name: entry.pop(name) for name in ("type", "items") if name in entry}
        entry["anyOf"] = [listed, {"type": "string"}, {"type": "object", "required": ["packages"]}]


def texts() -> dict[str, str]:
    return {
        f"{kind}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for kind, schema in schemas().items()
    }


def write(directory: Path) -> list[Path]:
    """Write the schemas there, and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in texts().items():
        paths.append(directory / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


if __name__ == "__main__":
    write(Path(*sys.argv[1:]))
