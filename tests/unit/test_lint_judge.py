"""Image lint, judged from facts: each defect is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.lint_facts import HEALTHY, asks, failures, is_, says
from trainyard.errors import LintError
from trainyard.images.lint import judge, start_checks
from trainyard.images.lint.probe import Probed
from trainyard.images.lint.report import Finding, LintReport
from trainyard.images.lint.seen import Seen
from trainyard.seams.docker.images import Layer

SHEBANG = "/workspace/isaaclab/_isaac_sim/python.sh"
NOTHING_RUNS = Probed(False, False, 'exec: "/bin/sh": no such file or directory', {}, {})
FAILED_IMPORT = "1 PermissionError: [Errno 13] Permission denied: '/opt/ray/lib/ray/__init__.py'"
TRY = "Try it: docker run --rm -it IMAGE"

DEFECTS: dict[str, tuple[Seen, str]] = {
    "another version of Ray": (
        says(HEALTHY, ray_version="2.9.0"),
        "ray: has Ray 2.9.0, and clusters run 2.60.0 -> "
        "Install ray[default]==2.60.0: nodes of two versions do not talk.",
    ),
    "no ray on PATH": (
        says(HEALTHY, ray_program=None, ray_ended=None, ray_version=None, ray_python=None),
        "ray: there is no ray on PATH -> Install ray[default]==2.60.0. "
        "Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH",
    ),
    "a ray that fails": (
        says(HEALTHY, ray_ended="1 ModuleNotFoundError: No module named 'click'", ray_version=None),
        "ray: `ray --version` fails as ray (uid 1000): ModuleNotFoundError: No module named 'click' -> "
        f"{TRY} ray --version",
    ),
    "the system's Python first": (
        says(
            HEALTHY,
            python_program="/usr/bin/python",
            python_prefix="/usr",
            python_ended="1 ModuleNotFoundError: No module named 'ray'",
            python_ray=None,
        ),
        "python: python on PATH is not Ray's: /usr/bin/python is of /usr, ray of /opt/ray -> "
        "Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH",
    ),
    "no python": (
        says(HEALTHY, python_program=None, python_prefix=None, python_ended="127 sh: 1: python: not found"),
        "python: there is no python on PATH -> Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH",
    ),
    "a Ray that its user may not read": (
        says(HEALTHY, python_ended=FAILED_IMPORT, python_ray=None, ray_ended=FAILED_IMPORT, ray_version=None),
        f'import: `python -c "import ray"` fails as ray (uid 1000): {FAILED_IMPORT[2:]} -> '
        "What was installed by root must be readable by ray (uid 1000); WORKDIR has no ray/.",
    ),
    "the wrong first line of ray": (
        says(
            asks(HEALTHY, ray_interpreter=SHEBANG),
            ray_ended="1 ModuleNotFoundError: No module named 'ray'",
            ray_version=None,
        ),
        f"interpreter: /opt/ray/bin/ray starts with #!/opt/ray/bin/python3, not #!{SHEBANG} -> "
        f"Write it anew after the installation: RUN sed -i '1c #!{SHEBANG}' /opt/ray/bin/ray",
    ),
    "no wget": (
        says(HEALTHY, wget=None),
        "wget: there is no wget, with which KubeRay probes its nodes: it would end them -> "
        "Install wget, or say `wget: false` in image.yaml if only KubeRay 1.6 and newer runs it.",
    ),
    "no bash": (
        says(HEALTHY, bash=None),
        "bash: there is no /bin/bash -> Install bash: KubeRay and Ray's autoscaler start nodes with it.",
    ),
    "no shell at all": (
        replace(HEALTHY, probed=NOTHING_RUNS),
        'bash: no shell at all can be run: exec: "/bin/sh": no such file or directory -> '
        "Install bash: KubeRay and Ray's autoscaler start every node with /bin/bash.",
    ),
    "an entry point that swallows commands": (
        replace(
            is_(HEALTHY, entrypoint=("/isaac-sim/runheadless.sh",)),
            probed=replace(HEALTHY.probed, came_through=False),
        ),
        "entrypoint: ENTRYPOINT /isaac-sim/runheadless.sh swallows the command that it is given, such as `ray start` "
        '-> Reset it in the Dockerfile: ENTRYPOINT [], or let it end with: exec "$@"',
    ),
    "another machine's programs": (
        replace(
            is_(HEALTHY, platform="linux/arm64"),
            probed=Probed(False, False, "exec /bin/sh: exec format error", {}, {}),
        ),
        "platform: is for linux/arm64, which this engine cannot run: exec format error -> "
        "Meant for other machines, it can be pushed without being run here: invoke image.push --skip-lint. Install "
        "QEMU (qemu-user-static, binfmt) to run it here all the same, or build it for this machine: leave out "
        "--platform.",
    ),
    "root where programs refuse it": (
        says(asks(HEALTHY, user="non-root"), uid="0", user="root"),
        "user: runs as root, and image.yaml says non-root: its programs refuse to run as root -> "
        "Let the Dockerfile end with a USER that it made: RUN useradd ..., USER ...",
    ),
    "a user where root is needed": (
        asks(HEALTHY, user="root"),
        "user: runs as ray (uid 1000), and image.yaml says root -> Let the Dockerfile end with: USER root",
    ),
    "a closed /tmp": (
        says(HEALTHY, **{"writable:/tmp": None}),
        "writable: ray (uid 1000) cannot write to /tmp, where Ray keeps its sessions -> "
        "Give /tmp back its mode: RUN chmod 1777 /tmp",
    ),
    "too large": (
        asks(HEALTHY, max_size=500 * 1024**2),
        "size: takes 600 MiB, and at most 500 MiB are allowed -> Its largest layer takes 400 MiB: RUN pip install ray",
    ),
    "a secret in a variable": (
        is_(HEALTHY, env={"WANDB_API_KEY": "0123456789abcdef"}),
        "history: shows secrets: the variable WANDB_API_KEY -> "
        "Change the secret, then pass it to the build as one: RUN --mount=type=secret,id=...",
    ),
    "a secret in the history": (
        replace(HEALTHY, history=(*HEALTHY.history, Layer("RUN |1 PIP_TOKEN=hunter22 /bin/sh -c pip install x", 0))),
        "history: shows secrets: PIP_TOKEN in step 3 of its history -> "
        "Change the secret, then pass it to the build as one: RUN --mount=type=secret,id=...",
    ),
    "no place for NVIDIA's driver": (
        asks(HEALTHY, path_contains=("/usr/local/nvidia/bin",), ld_library_path_contains=("/usr/local/nvidia/lib64",)),
        "search-paths: PATH does not list /usr/local/nvidia/bin; LD_LIBRARY_PATH does not list /usr/local/nvidia/lib64 "
        "-> Add it in the Dockerfile: ENV PATH=/usr/local/nvidia/bin:$PATH",
    ),
    "a file that is missing": (
        asks(HEALTHY, must_have=("/opt/unreal",), answers={"path:/opt/unreal": ""}),
        "files: /opt/unreal is not in the image -> image.yaml says that the image needs it: add it in the Dockerfile.",
    ),
    "a program that is missing": (
        asks(HEALTHY, programs=("schola-train",), answers={"program:schola-train": ""}),
        "programs: schola-train is not on PATH -> image.yaml says that the image needs it: add it in the Dockerfile.",
    ),
    "a variable that is not set": (
        asks(HEALTHY, environ={"OMNI_KIT_ALLOW_ROOT": "1"}),
        "environ: OMNI_KIT_ALLOW_ROOT is not set, not '1' -> Set it in the Dockerfile: ENV NAME=VALUE",
    ),
    "a module that is missing": (
        asks(
            HEALTHY, imports=("optuna",), answers={"import:optuna": "1 ModuleNotFoundError: No module named 'optuna'"}
        ),
        f"imports: optuna fails as ray (uid 1000): ModuleNotFoundError: No module named 'optuna' -> {TRY} bash",
    ),
    "a module that ends Python": (
        asks(HEALTHY, imports=("isaacsim",), answers={"import:isaacsim": ""}),
        f"imports: isaacsim fails as ray (uid 1000): it ended Python -> {TRY} bash",
    ),
    "a command that waits for a key": (
        asks(
            HEALTHY,
            runs=(("schola-rllib", "--help"),),
            answers={"run:schola-rllib --help": "1 EOFError: EOF when reading a line"},
        ),
        "runs: `schola-rllib --help` waits for a key: EOFError: EOF when reading a line -> "
        "Jobs have no keyboard: call the function that does not wait.",
    ),
    "an entry point that waits for a key": (
        asks(
            HEALTHY,
            entry_point="schola.scripts.ray.launch:debug_main_from_cli",
            answers={
                "entry:schola.scripts.ray.launch:debug_main_from_cli": "1 EOFError: EOF when reading a line",
            },
        ),
        "entry-point: schola.scripts.ray.launch:debug_main_from_cli(--help) waits for a key: "
        "EOFError: EOF when reading a line -> Jobs have no keyboard: call the function that does not wait.",
    ),
    "a Python that is not what image.yaml names": (
        says(asks(HEALTHY, python="/usr/bin/python3"), asked_prefix="/usr"),
        "python: python on PATH is not Ray's: /opt/ray/bin/python is of /opt/ray, ray of /opt/ray, "
        "/usr/bin/python3 of /usr -> Put the directory of Ray's Python first: ENV PATH=/opt/ray/bin:$PATH",
    ),
    "a Python in image.yaml that is not there": (
        asks(HEALTHY, python="/nope", answers={"python:/nope": "127 sh: 1: /nope: not found"}),
        "python: /nope does not run: sh: 1: /nope: not found -> "
        "image.yaml names it as the Python of Ray and the jobs: lint.python",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_found_and_nothing_else(defect: str) -> None:
    seen, message = DEFECTS[defect]
    assert failures(seen) == [message]


def test_nothing_is_wrong_with_a_healthy_image() -> None:
    assert failures(HEALTHY) == []
    assert [finding.check for finding in judge(HEALTHY)] == [
        *("platform", "entrypoint", "bash", "user", "writable", "wget", "ray", "python", "import"),
        *("size", "history"),
    ]


def test_an_image_that_has_all_that_its_file_asks_is_healthy() -> None:
    seen = asks(
        is_(HEALTHY, env={"PATH": "/usr/local/nvidia/bin:/opt/ray/bin", "OMNI_KIT_ALLOW_ROOT": "1"}),
        user="non-root",
        python="/opt/ray/bin/python",
        ray_interpreter="/opt/ray/bin/python3",
        must_have=("/opt/ray",),
        programs=("ray", "wget"),
        path_contains=("/usr/local/nvidia/bin",),
        environ={"OMNI_KIT_ALLOW_ROOT": "1"},
        imports=("numpy",),
        entry_point="schola.scripts.ray.launch:main_from_cli",
        runs=(("schola-train", "--help"),),
    )
    assert failures(says(seen, asked_prefix="/opt/ray")) == []
    assert not [finding for finding in judge(says(seen, asked_prefix="/opt/ray")) if finding.skipped]


def test_an_entry_point_that_hands_commands_on_is_fine() -> None:
    seen = is_(HEALTHY, entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",))
    found = {finding.check: finding.detail for finding in judge(seen)}
    assert found["entrypoint"] == "/opt/nvidia/nvidia_entrypoint.sh: hands commands on"


def test_an_image_of_others_needs_no_wget_if_its_ray_is_probed_by_http() -> None:
    foreign = says(replace(HEALTHY, file=None), wget=None)
    assert failures(foreign) == []
    old = says(replace(foreign, ray_version="2.52.1"), ray_version="2.52.1")
    assert failures(old) == [
        "wget: there is no wget, with which KubeRay probes its nodes: it would end them -> Install wget."
    ]


def test_what_follows_from_a_cause_is_not_tested() -> None:
    seen, _ = DEFECTS["a Ray that its user may not read"]
    skipped = {finding.check: finding.detail for finding in judge(seen) if finding.skipped}
    assert skipped == {"ray": "import ray fails"}


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("ScholaExamples:registry", "ScholaExamples:registry has capital letters (ES); no registry takes them"),
        (
            "127.0.0.1:32000/Team/schola:1",
            "127.0.0.1:32000/Team/schola:1 has capital letters (T); no registry takes them",
        ),
        ("schola:-1", "schola:-1 has an illegal tag or digest"),
        ("schola//x", "schola//x is no name"),
    ],
)
def test_a_name_that_no_registry_takes_is_found(reference: str, problem: str) -> None:
    assert start_checks.reference(reference).detail == problem


@pytest.mark.parametrize(
    "reference",
    ["schola", "schola:Ray-2.60", "HOST.example:5000/team/schola:1", f"r.io/a@sha256:{'0' * 64}", f"sha256:{'0' * 64}"],
)
def test_a_legal_name_is_fine(reference: str) -> None:
    assert start_checks.reference(reference).ok


def test_a_failed_lint_is_an_error_with_every_problem() -> None:
    found = (
        Finding("bash", True, "/bin/bash"),
        Finding("wget", False, "there is no wget", "Install wget."),
        Finding("user", False, "runs as root", "Let it end with USER."),
    )
    with pytest.raises(LintError) as raised:
        LintReport("trainyard/x:1", found, 1.0).check()
    assert str(raised.value) == (
        "the image is not fit to be run: 2 of 3 checks failed\n"
        "  at trainyard/x:1\n"
        "  - wget: there is no wget\n"
        "    -> Install wget.\n"
        "  - user: runs as root\n"
        "    -> Let it end with USER."
    )
    assert raised.value.exit_code == 5


def test_a_report_is_a_document() -> None:
    report = LintReport("x:1", (Finding("bash", True, "/bin/bash"),), 1.23456)
    assert report.document() == {
        "reference": "x:1",
        "ok": True,
        "seconds": 1.235,
        "cached": False,
        "checks": [{"check": "bash", "ok": True, "detail": "/bin/bash", "hint": "", "skipped": False}],
    }
