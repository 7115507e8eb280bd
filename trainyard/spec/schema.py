"""The JSON Schemas of what users write, for editors: `python -m trainyard.spec.schema` puts them into docs/.

An editor uses one through the comment `# yaml-language-server: $schema=../docs/cluster.schema.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.image import ImageFile
from trainyard.spec.job import JobSpec

DRAFT = "https://json-schema.org/draft/2020-12/schema"
DOCS = Path(__file__).resolve().parents[2] / "docs"


def cluster_schema() -> dict[str, Any]:
    return {"$schema": DRAFT, **ClusterSpec.model_json_schema(), "title": "Trainyard cluster file"}


def job_schema() -> dict[str, Any]:
    """Return the schema of a job file: all of a job but its name, which is its directory's."""
    schema = JobSpec.model_json_schema()
    del schema["properties"]["name"]
    del schema["required"]
    runs = [{"required": ["command"]}, {"required": ["tasks"]}]
    return {"$schema": DRAFT, **schema, "title": "Trainyard job file", "oneOf": runs}


def image_schema() -> dict[str, Any]:
    return {"$schema": DRAFT, **ImageFile.model_json_schema(), "title": "Trainyard image file"}


def texts() -> dict[str, str]:
    schemas = {"cluster": cluster_schema(), "image": image_schema(), "job": job_schema()}
    return {
        f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }


def main() -> None:
    for name, text in texts().items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
