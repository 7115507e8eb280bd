"""The objects that Trainyard makes fit the schema of the operator that is built for the tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kuberay_files import EVERYTHING, RESTRICTED, SMALL, made
from tests.real import crd

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize(
    "fields", [{}, SMALL, EVERYTHING, RESTRICTED], ids=["nothing", "small", "all", "restricted"]
)
def test_the_operator_s_own_schema_knows_every_field(fields: dict[str, Any]) -> None:
    assert crd.complaints(made(**fields, pull_secrets=("lab.pull",)).ray_cluster) == []
