"""Image lint, judged from facts: each defect is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.lint_facts import HEALTHY, asks, failures, is_, says
from trainyard.errors import LintError
from trainyard.images import lint
from trainyard.images.lint import LintReport
from trainyard.images.lint.checks import Finding, judge, reference
from trainyard.images.lint.probe import Inspection, Probed
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import MadeBy
from trainyard.versions import RAY

SHEBANG = "/workspace/isaaclab/_isaac_sim/python.sh"
NOTHING_RUNS = Probed({}, 'exec: "/bin/sh": no such file or directory')
FOR_OTHERS = Probed({}, "exec /bin/sh: exec format error")
UNREADABLE = "1 PermissionError: [Errno 13] Permission denied: '/opt/ray/lib/ray/__init__.py'"
NO_CLICK = "1 ModuleNotFoundError: No module named 'click'"
NO_RAY = "1 ModuleNotFoundError: No module named 'ray'"
NO_OPTUNA = "1 ModuleNotFoundError: No module named 'optuna'"
KEY_NEEDED = "1 EOFError: EOF when reading a line"
SWALLOWS = is_(HEALTHY, entrypoint=("/isaac-sim/runheadless.sh",))
WITH_SECRET = "RUN |1 PIP_TOKEN=hunter22 /bin/sh -c pip install x"

DEFECTS: tuple[tuple[Inspection, str], ...] = (
    (says(HEALTHY, ray_version="2.9.0"), f"ray: has Ray 2.9.0, and clusters run {RAY}"),
    (
        says(HEALTHY, ray_program=None, ray_ended=None, ray_version=None),
        "ray: there is no ray on PATH",
    ),
    (
        says(HEALTHY, ray_ended=NO_CLICK, ray_version=None),
        f"ray: `ray --version` fails as ray (uid 1000): {NO_CLICK[2:]}",
    ),
    (
        says(HEALTHY, python_program="/usr/bin/python", python_prefix="/usr", python_ended=NO_RAY),
        "python: python on PATH is not Ray's: python belongs to /usr, ray belongs to /opt/ray",
    ),
    (says(HEALTHY, python_program=None, python_prefix=None), "python: there is no python on PATH"),
    (
        says(asks(HEALTHY, python="/usr/bin/python3"), asked_prefix="/usr"),
        (
            "python: python on PATH is not Ray's: python belongs to /opt/ray, ray belongs to "
            "/opt/ray, /usr/bin/python3 belongs to /usr"
        ),
    ),
    (
        asks(HEALTHY, python="/nope", answers={"python:/nope": "127 sh: 1: /nope: not found"}),
        "python: /nope does not run: sh: 1: /nope: not found",
    ),
    (
        says(HEALTHY, python_ended=UNREADABLE, ray_ended=UNREADABLE, ray_version=None),
        f'import: `python -c "import ray"` fails as ray (uid 1000): {UNREADABLE[2:]}',
    ),
    (
        says(asks(HEALTHY, ray_interpreter=SHEBANG), ray_ended=NO_RAY, ray_version=None),
        f"interpreter: /opt/ray/bin/ray starts with #!/opt/ray/bin/python3, not #!{SHEBANG}",
    ),
    (
        says(HEALTHY, wget=None),
        "wget: there is no wget: KubeRay probes nodes with it, and would end them",
    ),
    (says(HEALTHY, bash=None), "bash: there is no /bin/bash"),
    (
        replace(HEALTHY, probed=NOTHING_RUNS),
        'bash: no shell can run: exec: "/bin/sh": no such file or directory',
    ),
    (
        replace(is_(HEALTHY, platform="linux/arm64"), probed=FOR_OTHERS),
        "platform: is for linux/arm64, which this engine cannot run: exec format error",
    ),
    (
        replace(SWALLOWS, probed=Probed({}, "no display")),
        "entrypoint: ENTRYPOINT /isaac-sim/runheadless.sh swallows the command that it is given, "
        "such as `ray start`: "
        "no display",
    ),
    (
        says(asks(HEALTHY, user="non-root"), uid="0", user="root"),
        "user: runs as root, and image.yaml says non-root: its programs refuse to run as root",
    ),
    (asks(HEALTHY, user="root"), "user: runs as ray (uid 1000), and image.yaml says root"),
    (
        says(HEALTHY, **{"writable:/tmp": None}),
        "writable: ray (uid 1000) cannot write to /tmp, where Ray keeps its sessions",
    ),
    (
        asks(HEALTHY, max_size=500 * 1024**2),
        (
            "size: takes 600.0 MiB, and at most 500.0 MiB are allowed; its largest layer: 500.0 MiB "
            "by RUN pip install ray"
        ),
    ),
    (
        is_(HEALTHY, env={"WANDB_API_KEY": "0123456789abcdef"}),
        "history: shows secrets: the variable WANDB_API_KEY",
    ),
    (
        replace(HEALTHY, history=(*HEALTHY.history, MadeBy(WITH_SECRET))),
        "history: shows secrets: PIP_TOKEN in `RUN |1 PIP_TOKEN=(hidden) /bin/sh -c pip install x`",
    ),
    (
        says(HEALTHY, **{"secret:/root/.netrc": "yes"}),
        "history: shows secrets: the file /root/.netrc",
    ),
    (
        replace(SWALLOWS, probed=replace(HEALTHY.probed, swallowed="no display")),
        "entrypoint: ENTRYPOINT /isaac-sim/runheadless.sh swallows the command that it is given, "
        "such as `ray start`: "
        "no display",
    ),
    (
        asks(
            HEALTHY,
            path_contains=("/usr/local/nvidia/bin",),
            ld_library_path_contains=("/usr/local/nvidia/lib64",),
        ),
        (
            "search-paths: PATH does not list /usr/local/nvidia/bin; LD_LIBRARY_PATH does not list "
            "/usr/local/nvidia/lib64"
        ),
    ),
    (
        asks(HEALTHY, must_have=("/opt/unreal",), answers={"path:/opt/unreal": ""}),
        "files: /opt/unreal is not in the image",
    ),
    (
        asks(HEALTHY, environ={"OMNI_KIT_ALLOW_ROOT": "1"}),
        "environ: OMNI_KIT_ALLOW_ROOT is not set, not '1'",
    ),
    (
        asks(HEALTHY, imports=("optuna",), answers={"import:optuna": NO_OPTUNA}),
        f"imports: optuna fails as ray (uid 1000): {NO_OPTUNA[2:]}",
    ),
    (
        asks(HEALTHY, imports=("isaacsim",), answers={"import:isaacsim": ""}),
        "imports: isaacsim gave no answer",
    ),
    (
        asks(
            HEALTHY,
            runs=(("schola-rllib", "--help"),),
            answers={"run:schola-rllib --help": KEY_NEEDED},
        ),
        "runs: schola-rllib --help fails as ray (uid 1000): EOFError: EOF when reading a line",
    ),
)


@pytest.mark.parametrize(
    ("inspection", "failure"), DEFECTS, ids=[failure for _, failure in DEFECTS]
)
def test_each_defect_is_found_and_nothing_else(inspection: Inspection, failure: str) -> None:
    assert failures(inspection) == [failure]
    assert all(finding.hint for finding in judge(inspection) if not finding.ok)


def test_nothing_is_wrong_with_a_healthy_image() -> None:
    assert failures(HEALTHY) == []
    assert [finding.check for finding in judge(HEALTHY)] == [
        *("platform", "entrypoint", "bash", "user", "writable", "wget", "ray", "python", "import"),
        *("size", "history"),
    ]


def test_an_image_that_has_all_that_its_file_asks_is_healthy() -> None:
    inspection = asks(
        is_(
            HEALTHY, env={"PATH": "/usr/local/nvidia/bin:/opt/ray/bin", "OMNI_KIT_ALLOW_ROOT": "1"}
        ),
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

    assert failures(says(inspection, asked_prefix="/opt/ray")) == []
    assert not [
        finding for finding in judge(says(inspection, asked_prefix="/opt/ray")) if finding.skipped
    ]


def test_an_entry_point_that_hands_commands_on_is_fine() -> None:
    inspection = is_(HEALTHY, entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",))
    details = {finding.check: finding.detail for finding in judge(inspection)}
    assert details["entrypoint"] == "/opt/nvidia/nvidia_entrypoint.sh: passes commands on"


def test_a_user_that_kubernetes_cannot_tell_from_root_is_noted() -> None:
    def user(name: str) -> str:
        return next(
            finding.detail for finding in judge(is_(HEALTHY, user=name)) if finding.check == "user"
        )

    note = (
        "; `restricted: true` on Kubernetes needs a numeric user: USER 1000, or "
        "kuberay.security.run_as_user"
    )
    assert [user(name) for name in ("1000", "1000:100", "ray")] == [
        *["ray (uid 1000)"] * 2,
        f"ray (uid 1000){note}",
    ]


def test_an_image_of_others_needs_no_wget() -> None:
    assert failures(says(replace(HEALTHY, file=lint.OTHERS), wget=None)) == []


def test_checks_that_depend_on_a_failed_import_are_skipped() -> None:
    inspection = says(HEALTHY, python_ended=UNREADABLE, ray_ended=UNREADABLE, ray_version=None)
    skipped = {finding.check: finding.detail for finding in judge(inspection) if finding.skipped}
    assert skipped == dict.fromkeys(("ray", "python"), "repair `import` first")


def test_a_name_that_no_registry_takes_is_found_before_any_engine_is_asked() -> None:
    digest = f"sha256:{'0' * 64}"
    legal = (
        "schola",
        "schola:Ray-2.60",
        "HOST.example:5000/team/schola:1",
        f"r.io/a@{digest}",
        digest,
    )

    illegal = ("ScholaExamples:registry", "127.0.0.1:32000/Team/schola:1", "schola:-1", "schola//x")
    assert [name for name in (*legal, *illegal) if not reference(name).ok] == [*illegal]
    no_engine = Engine("unix:///none.sock", cast("Any", None), {})
    assert [finding.check for finding in lint.check(None, illegal[0], no_engine).failed] == [
        "reference"
    ]


def test_a_failed_lint_is_an_error_with_every_problem() -> None:
    findings = (
        Finding("bash", True, "/bin/bash"),
        Finding("wget", False, "there is no wget", "Install wget."),
        Finding("user", False, "runs as root", "Let it end with USER."),
    )

    error = LintReport("trainyard/x:1", findings, 1.0).error
    assert str(error) == (
        "the image is not fit to run: 2 of 3 checks failed\n"
        "  at trainyard/x:1\n"
        "  - wget: there is no wget\n"
        "    -> Install wget.\n"
        "  - user: runs as root\n"
        "    -> Let it end with USER."
    )

    assert LintError.exit_code == 5
