"""The house: which package may know which, and what only seams may import."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAINYARD, RUNNER = ROOT / "trainyard", ROOT / "runner" / "trainyard_runner"

# Lowest first; a package or module of trainyard/ imports from its own layer and from those below
# it.
LAYERS = (
    ("diagnosis", "errors", "versions", "wording"),
    ("endpoint", "lock", "paths", "render", "spec", "steps"),
    ("seams", "results"),
    ("registry",),
    ("images",),
    ("backends",),
    ("dispatch", "importing"),
    ("operations",),
    ("console",),
    ("api", "sematic", "__init__"),
    ("tasks", "main"),
)
# Modules that talk to the world outside this process.
OUTSIDE = {
    "boto3",
    "botocore",
    "docker",
    "fabric",
    "httpx",
    "kubernetes",
    "paramiko",
    "subprocess",
    "websocket",
}
# A node has these modules: the runner travels alone. Optuna is imported for a sweep only, boto3
# where Ray's autoscaler needs it.
ON_NODES = {"ray", "trainyard_runner"}
ON_SOME_NODES = {"head/study.py": {"optuna"}, "leash.py": {"boto3", "botocore"}}
# Modules of the runner, except `wire`, that trainyard/ uses.
SHARED_BESIDE_THE_WIRE = {"bootstrap", "leash"}
# The rooms of the runner, and the rooms that a module in each may import. Modules above the rooms
# are for both: head and node never import each other.
ABOVE_THE_ROOMS = {"bootstrap", "each_gpu", "leash", "ray_package", "shipped", "stopping"}
ROOMS = {
    "wire": {"wire"},
    "head": {"wire", "head", *ABOVE_THE_ROOMS},
    "node": {"wire", "node", *ABOVE_THE_ROOMS},
}
# A function that Ray carries to a node imports the node's modules, once the package has arrived.
CROSSINGS = {("shipped.py", "node")}
BACKENDS = {"compose", "ec2", "existing", "kuberay", "local", "microk8s"}
# Where a backend's name is a value of the cluster file, or Docker's own word, a cluster's default
# name, or an extra's.
NAMES_ALLOWED = (
    "backends",
    "seams",
    "spec/cluster.py",
    "spec/show.py",
    "paths.py",
    "versions.py",
)

LONGEST_FUNCTION = 40
# Functions up to so many lines are read as quickly as a docstring.
SPEAKS_FOR_ITSELF = 7


@cache
def modules(directory: Path = TRAINYARD) -> dict[str, ast.Module]:
    """Return every module of trainyard/, or of another directory, by its path there."""
    found = sorted(directory.rglob("*.py"))
    return {str(path.relative_to(directory)): ast.parse(path.read_text()) for path in found}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package(path: str) -> str:
    """Return the package or root module that a path or dotted name below trainyard is of."""
    return path.removesuffix(".py").replace("/", ".").split(".")[0]


def functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module and the methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node)


def lines_of(function: ast.FunctionDef) -> int:
    """Return how many lines the statements take: no docstring, comment, or blank line."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    lines: set[int] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt):
                inner = getattr(node, "body", None)
                last = inner[0].lineno - 1 if inner else node.end_lineno or node.lineno
                lines.update(range(node.lineno, last + 1))

    return len(lines)


def layer(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name in names)


def test_every_package_has_its_layer() -> None:
    assert {package(path) for path in modules()} <= {name for names in LAYERS for name in names}


def test_imports_point_downwards() -> None:
    upwards = [
        f"{path} imports {name}"
        for path, tree in modules().items()
        for name in imported(tree)
        if name.startswith("trainyard.") and name != "trainyard.__version__"
        if layer(package(name.removeprefix("trainyard."))) > layer(package(path))
    ]
    assert upwards == []


def test_shared_modules_import_no_backend() -> None:
    found = [
        f"{path} imports {name}"
        for path, tree in modules().items()
        for name in imported(tree)
        if path.startswith("backends/shared/") and name.startswith("trainyard.backends.")
        if name.split(".")[2] not in ("contract", "shared")
    ]
    assert found == []


def test_contributing_draws_the_layers_as_they_are() -> None:
    drawing = "\n".join(f"    {', '.join(names)}" for names in LAYERS)
    assert f"\n\n{drawing}\n\n" in (ROOT / "CONTRIBUTING.md").read_text()


def test_only_seams_talk_to_the_outside() -> None:
    found = [
        f"{path} imports {name}"
        for path, tree in modules().items()
        for name in imported(tree)
        if name.split(".")[0] in OUTSIDE and package(path) != "seams"
    ]
    assert found == []


def test_only_the_command_line_knows_invoke() -> None:
    found = [
        path
        for path, tree in modules().items()
        if any(name.split(".")[0] == "invoke" for name in imported(tree))
        if package(path) not in ("tasks", "main")
    ]
    assert found == []


def test_operations_are_told_the_environment_and_the_directory() -> None:
    """One process may serve several: what asks this process is a task or the Python API."""
    asks = {"os.environ", "os.environb", "os.getenv", "os.getcwd", "Path.cwd"}
    attributes = [
        f"{path}:{node.lineno} asks {ast.unparse(node)}"
        for path, tree in modules(TRAINYARD / "operations").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in asks
    ]

    imports = [
        f"{path} imports {name}"
        for path, tree in modules(TRAINYARD / "operations").items()
        for name in imported(tree)
        if name in asks
    ]

    assert attributes + imports == []


def test_the_runner_imports_what_every_node_has() -> None:
    found = [
        f"{path} imports {name}"
        for path, tree in modules(RUNNER).items()
        for name in imported(tree)
        if name.split(".")[0]
        not in sys.stdlib_module_names | ON_NODES | ON_SOME_NODES.get(path, set())
    ]
    assert found == []


def test_operator_and_nodes_share_the_wire() -> None:
    """`wire` stands on nothing; what else of the runner is used here is named, and becomes less."""
    standing = [
        f"wire/{path} imports {name}"
        for path, tree in modules(RUNNER / "wire").items()
        for name in imported(tree)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith("trainyard_runner.wire.")
    ]

    assert standing == []
    shared = {
        name.split(".")[1]
        for tree in modules().values()
        for name in imported(tree)
        if name.startswith("trainyard_runner.")
    }

    assert shared == {"wire", *SHARED_BESIDE_THE_WIRE}


def test_head_and_node_are_rooms_apart() -> None:
    crossings = {
        (path, name.split(".")[1])
        for path, tree in modules(RUNNER).items()
        for name in imported(tree)
        if name.startswith("trainyard_runner.")
        if name.split(".")[1] not in ROOMS.get(path.split("/")[0], {"wire", *ABOVE_THE_ROOMS})
    }
    assert crossings == CROSSINGS
    assert {package(path) for path in modules(RUNNER)} == {*ROOMS, *ABOVE_THE_ROOMS, "__init__"}


def test_no_backend_is_known_by_name_outside_backends() -> None:
    found = []
    for path, tree in modules().items():
        if path.startswith(NAMES_ALLOWED):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in BACKENDS:
                found.append(f"{path}:{node.lineno} says {node.value!r}")
            if isinstance(node, ast.Attribute) and node.attr in BACKENDS:
                found.append(f"{path}:{node.lineno} reads .{node.attr}")
    assert found == []


@pytest.mark.parametrize("directory", [TRAINYARD, RUNNER], ids=lambda directory: directory.name)
def test_functions_fit_on_a_page(directory: Path) -> None:
    found = [
        f"{path}: {function.name} has {lines_of(function)} lines"
        for path, tree in modules(directory).items()
        for function in functions(tree)
        if lines_of(function) > LONGEST_FUNCTION
    ]
    assert found == []


@pytest.mark.parametrize("directory", [TRAINYARD, RUNNER], ids=lambda directory: directory.name)
def test_public_functions_that_do_not_speak_for_themselves_are_described(directory: Path) -> None:
    found = [
        f"{path}: {function.name}"
        for path, tree in modules(directory).items()
        for function in functions(tree)
        if not function.name.startswith("_") and not ast.get_docstring(function)
        if lines_of(function) > SPEAKS_FOR_ITSELF
    ]
    assert found == []


def test_a_unit_test_can_start_no_process_and_open_no_socket() -> None:
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        os.fork()
    with pytest.raises(pytest.fail.Exception, match="opens a socket"):
        socket.socket(socket.AF_INET)
