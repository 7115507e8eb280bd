"""Every backend, held against the contract of backends."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_args

import pytest

# Docker's client opens a socket as it is imported.
import trainyard.backends.compose  # noqa: F401
from trainyard import backends
from trainyard.backends.contract import (
    Backend,
    Discovered,
    Site,
    finds_nothing,
    runs_no_images,
)
from trainyard.errors import RequestError
from trainyard.spec.cluster import Backend as BackendName
from trainyard.spec.cluster import ClusterSpec

BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
SPEC = ClusterSpec.model_validate({"name": "lab", "backend": "local"})
# Arguments of each function, besides the cluster and its site.
ASKED_WITH: dict[str, dict[str, Any]] = {
    "down_steps": {"purge": True},
    "logs": {"follow": True, "node": "head"},
    "shell": {"node": "head", "command": "", "terminal": False},
    "verify": {"report": print},
}
OF_A_CLUSTER = ("up_steps", "status", "connect", "documents", "diagnose", "billed", *ASKED_WITH)


def bare() -> Backend:
    """Return a backend that leaves out all that one may leave out."""
    whole = backends.named("local")
    needed = ("traits", "up_steps", "down_steps", "status", "connect", "logs")
    return Backend(**{name: getattr(whole, name) for name in needed})


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_of_a_cluster_file_is_in_the_module_of_its_name(name: str) -> None:
    module = inspect.getmodule(backends.named(name).up_steps)
    assert isinstance(backends.named(name), Backend)
    assert module is not None and module.__name__ == f"trainyard.backends.{name}"


def test_a_name_that_is_no_backends_is_refused() -> None:
    with pytest.raises(LookupError, match="no backend is called 'slurm'"):
        backends.named("slurm")


@pytest.mark.parametrize("name", BACKENDS)
def test_each_function_accepts_the_arguments_of_the_contract(name: str, tmp_path: Path) -> None:
    backend = backends.named(name)
    site = Site(tmp_path, {}, name)
    for function_name in OF_A_CLUSTER:
        function = getattr(backend, function_name)
        arguments = ASKED_WITH.get(function_name, {})
        inspect.signature(function).bind(SPEC, site, **arguments)
    inspect.signature(backend.discover).bind([(SPEC, site)], [tmp_path], {}, region="all")


@pytest.mark.parametrize("name", BACKENDS)
def test_traits_of_a_backend_match_its_functions(name: str) -> None:
    backend = backends.named(name)
    # A region is asked for by `discover`, and the command after `image.push` needs images on nodes.
    if backend.traits.has_regions:
        assert backend.discover is not finds_nothing
    if backend.traits.pushed_image or backend.traits.nodes_pull:
        assert backend.verify is not runs_no_images


def test_omitted_functions_have_a_default_answer_or_refusal(tmp_path: Path) -> None:
    site = Site(tmp_path, {}, "local")
    backend = bare()
    for ask in (backend.documents, backend.diagnose, backend.billed):
        assert ask(SPEC, site) == []
    assert backend.discover([(SPEC, site)], [], {}) == Discovered()
    with pytest.raises(
        RequestError, match=r"cluster lab \(local\) has no nodes on which a shell could be started"
    ):
        backend.shell(SPEC, site, node="head", command="", terminal=False)
    with pytest.raises(
        RequestError, match=r"cluster lab \(local\) runs no images: there is nothing to verify"
    ):
        backend.verify(SPEC, site, report=print)
