"""Before nodes want GPUs: a pod on each host that has some shows that a container sees them, and torch in the image."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.errands import errand_pod, gpu_hosts
from trainyard.backends.kuberay.errands.errand import PULL_SECONDS, RUN_SECONDS, Errand, Errands, Outcome
from trainyard.backends.kuberay.errands.gpu_hosts import Trial, Try
from trainyard.backends.kuberay.wanted import Wanted
from trainyard.errors import PrerequisiteError, SmokeError, TrainyardError
from trainyard.steps import Answer, Step, no

PURPOSE = "trial"
# What the kubelet hands on as the container's last words.
SCRIPT = """
import importlib.util, json, re, subprocess, sys
found = {}
try:
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    if asked.returncode:
        found["error"] = (asked.stdout + asked.stderr).strip()[:300]
    found["gpus"] = len(re.findall(r"^GPU \\d+: ", asked.stdout, re.MULTILINE))
except FileNotFoundError:
    found["missing"] = True
except subprocess.TimeoutExpired:
    found["error"] = "it did not answer within 60 s"
if importlib.util.find_spec("torch"):
    asked = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.device_count())"
    asked = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=240)
    said = asked.stdout.split() if asked.returncode == 0 else []
    found["torch"] = said or ["", "", (asked.stderr.strip().splitlines() or ["no reason given"])[-1][:300]]
open("/dev/termination-log", "w").write(json.dumps(found))
"""
RUNTIME = (
    "Containers get NVIDIA's driver from its container runtime: name its runtime class (`kuberay: {runtime_class: "
    "nvidia}`; there are: kubectl get runtimeclasses), or make it containerd's default on the GPU hosts."
)
DRIVER = "Does `nvidia-smi` work on that host itself? If so, is its device plugin there, and does it run?"
TORCH = "A torch built for CPU only, or a driver that is too old for its CUDA; `nvidia-smi` on the host says which."


def steps(asked: Wanted, *, after: str | None) -> list[Step]:
    """Return the step that tries it, where a cluster with real GPUs is to be made; one that runs is proof enough.

    Raises PrerequisiteError when a container sees no GPU, SmokeError when it, or torch, sees others than it was given.
    """
    if not asked.is_new or asked.simulated or not gpu_hosts.groups(asked.spec):
        return []
    trial = gpu_hosts.plan(asked.site.kube, asked.spec, replaces=asked.ray_cluster is not None)
    if not trial.tries:
        return []
    errands = Errands(asked.site, [_errand(asked, one) for one in trial.tries], PURPOSE)
    begun: list[bool] = []

    def begin() -> None:
        begun.append(True)
        errands.begin()

    def done() -> Answer:
        if not begun:
            return no("not tried yet")
        have_ended = errands.look()
        judgement = judge(errands.so_far(), trial, image=asked.image.name)
        if not have_ended and not trial.is_enough(judgement.good):
            return no(errands.words)
        return Answer(True, judgement.refuse(trial))

    where = wording.named([one.title for one in trial.tries])
    return [
        Step(
            f"Try GPUs and torch for a moment, on {where}",
            done=done,
            do=begin,
            deadline=PULL_SECONDS + RUN_SECONDS,
            every=0.5,
            after=after,
            cleanup=errands.remove,
        )
    ]


@dataclass(frozen=True)
class Judgement:
    """What is known so far: where GPUs are as they should be, and what is wrong elsewhere."""

    good: tuple[str, ...]
    bad: Mapping[str, TrainyardError]

    def refuse(self, trial: Trial) -> str:
        """Return what is wrong with hosts that the cluster can do without; raise the first error otherwise."""
        if not self.bad:
            return ""
        first, *others = self.bad
        error = self.bad[first]
        if trial.bears(self.bad.keys(), self.good):
            return f"not on {wording.named(list(self.bad))}, which the cluster can do without: {error.what}"
        if others:
            error.where = f"{error.where or ''}; and something on {wording.named(others)}".removeprefix("; ")
        raise error


def judge(outcomes: Sequence[Outcome | None], trial: Trial, *, image: str) -> Judgement:
    """Judge what has ended, in the order of the tries; None has not."""
    good: list[str] = []
    bad: dict[str, TrainyardError] = {}
    for one, tried in zip(outcomes, trial.tries, strict=True):
        error = judged(one, tried.gpus, image=image) if one else None
        if error:
            bad[tried.title] = error
        elif one:
            good.append(tried.title)
    return Judgement(tuple(good), bad)


def judged(outcome: Outcome, gpus: int, *, image: str) -> TrainyardError | None:
    """Return what is wrong with the GPUs that a pod saw, None if nothing is."""
    if outcome.error is not None:
        return outcome.error
    host = outcome.host or outcome.title
    where = f"a pod with {wording.counted(gpus, 'GPU')} on {host}"
    found = _read(outcome)
    if found is None:
        said = outcome.said.splitlines()[-1] if outcome.said else "it said nothing"
        return PrerequisiteError(
            f"python does not run in image {image}",
            where=f"{where}: exit code {outcome.code}, {said}",
            hint="See what is wrong with it: invoke image.lint",
        )
    if found.get("missing"):
        return PrerequisiteError("there is no nvidia-smi in a container with GPUs", where=where, hint=RUNTIME)
    if found.get("error"):
        return PrerequisiteError(f"nvidia-smi fails in a container: {found['error']}", where=where, hint=DRIVER)
    if found["gpus"] != gpus:
        return SmokeError(f"nvidia-smi lists {found['gpus']} of {gpus} GPUs", where=where, hint=DRIVER)
    return _torch(found.get("torch"), gpus, where)


def _torch(said: Sequence[str] | None, gpus: int, where: str) -> SmokeError | None:
    if said is None:
        return None
    version, cuda, count = said
    if not version:
        return SmokeError(f"torch of the image cannot be imported: {count}", where=where, hint=TORCH)
    if count == str(gpus):
        return None
    built = f"CUDA {cuda}" if cuda != "None" else "CPU only"
    return SmokeError(f"torch {version} (for {built}) sees {count} of {gpus} GPUs", where=where, hint=TORCH)


def _read(outcome: Outcome) -> dict[str, Any] | None:
    try:
        found = json.loads(outcome.said)
    except ValueError:
        return None
    return found if outcome.code == 0 and isinstance(found, dict) else None


def _errand(asked: Wanted, tried: Try) -> Errand:
    spec = asked.spec
    pod = errand_pod.pod(
        spec,
        errand_pod.Wanted(
            name=f"{spec.name}-{PURPOSE}-{secrets.token_hex(3)}",
            purpose=PURPOSE,
            image=asked.image.reference,
            command=["python", "-c", SCRIPT],
            pull_secrets=(*([names.pull_secret(spec.name)] if asked.image.login else []), *spec.kuberay.pull_secrets),
            place=spec.kuberay.placement(tried.group),
            seconds=int(PULL_SECONDS + RUN_SECONDS),
            host=tried.host,
            gpus=tried.gpus,
        ),
    )
    return Errand(tried.title, pod)
