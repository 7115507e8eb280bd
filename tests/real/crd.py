"""Check a RayCluster against the operator's schema, made strict.

An API server silently drops fields that the schema does not know: here they are errors.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import yaml

from tests.bed import programs


def complaints(ray_cluster: dict[str, Any]) -> list[str]:
    """Return the errors that the operator's CRD finds in a RayCluster, unknown fields included."""
    validator = jsonschema.Draft202012Validator(_strict(_schema()))
    return sorted(
        f"{'.'.join(map(str, error.path))}: {error.message}"
        for error in validator.iter_errors(ray_cluster)
    )


def _schema() -> dict[str, Any]:
    path = programs.kuberay_crds() / "ray.io_rayclusters.yaml"
    versions = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"][
        "versions"
    ]
    found: dict[str, Any] = next(
        one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == "v1"
    )
    return found


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an OpenAPI schema; objects may have no unlisted properties."""
    strict = {
        key: value for key, value in schema.items() if not key.startswith("x-") and key != "format"
    }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            strict[key] = _strict(schema[key])
    if "properties" in schema:
        strict["properties"] = {name: _strict(one) for name, one in schema["properties"].items()}
        strict.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("type", None)
        strict["type"] = ["integer", "string"]
    return strict
