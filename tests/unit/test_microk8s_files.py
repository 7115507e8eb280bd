"""Files of hosts: from templates, snaps and images of this machine; what a node waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.test_microk8s_leaving import Told, made
from tests.unit.test_microk8s_preflight import GOOD, INSTALLED
from tests.unit.test_microk8s_states import FRESH
from trainyard.backends.microk8s import files, install, offline, pulls, shown
from trainyard.backends.microk8s.facts import MARK, SYSCTLS, Facts
from trainyard.backends.microk8s.lab import Lab
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.programs import Ran
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.microk8s import Microk8sSection

SIDELOAD = "/var/snap/microk8s/common/etc/sideload"
MIRROR = "http://192.0.2.10:5000"
ADDRESS = "192.0.2.10:32000"
FILE: dict[str, Any] = {
    "name": "lab",
    "backend": "microk8s",
    "registry": {"address": ADDRESS, "insecure": True},
    "microk8s": {
        "hosts": [{"address": "ops@a"}, {"address": "ops@b"}],
        "mirror": {"docker.io": MIRROR},
    },
    "kuberay": {"operator": {"values": {"image": {"tag": "v1"}}}},
}
SPEC = ClusterSpec.model_validate(FILE, context={})
LIMITS = dict(SYSCTLS)


def lab_of(fact: Facts, *, told: Told | None = None, **more: Any) -> Lab:
    lab, _ = made(fact, told or Told())
    for name, value in more.items():
        setattr(lab, name, value)
    return lab


def test_only_the_first_host_launches_with_dns_and_storage() -> None:
    first = files.launch(is_first=True, mirrors={}).decode()
    assert first.splitlines()[0] == MARK
    assert yaml.safe_load(first) == {
        "version": "0.1.0",
        "extraKubeletArgs": files.KUBELET_ARGUMENTS,
        "addons": [{"name": "dns"}, {"name": "hostpath-storage"}],
        "containerdRegistryConfigs": {},
    }
    other = yaml.safe_load(files.launch(is_first=False, mirrors={"docker.io": MIRROR}))
    assert other["addons"] == []
    assert other["containerdRegistryConfigs"]["docker.io"].endswith(
        f'[host."{MIRROR}"]\n  capabilities = ["pull", "resolve"]\n'
    )


def test_no_limit_of_a_kernel_is_lowered() -> None:
    text = files.limits({**LIMITS, "fs.aio-max-nr": 2**21}).decode()
    kept = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert kept == [
        "fs.inotify.max_user_instances = 1024",
        "fs.inotify.max_user_watches = 1048576",
        "fs.aio-max-nr = 2097152",
    ]


def test_containerd_knows_the_registry_and_each_mirror() -> None:
    registry, mirror = files.registries(SPEC, {})
    server = f"http://{ADDRESS}"
    assert (registry.name, registry.is_mirror, mirror.name, mirror.is_mirror) == (
        ADDRESS,
        False,
        "docker.io",
        True,
    )
    assert f'server = "{server}"\n\n[host."{server}"]\n' in registry.hosts_toml
    # Without a server of its own, containerd asks docker.io where the mirror does not answer.
    assert "server =" not in mirror.hosts_toml


@pytest.mark.parametrize(
    ("url", "is_own"), [("https://harbor/v2/hub", True), ("https://nexus/hub", False)]
)
def test_a_mirror_whose_path_is_that_of_the_api_is_asked_there(url: str, is_own: bool) -> None:
    spec = SPEC.model_copy(
        update={
            "microk8s": Microk8sSection.model_validate({**FILE["microk8s"], "mirror": {"a": url}})
        }
    )
    assert ("override_path = true" in files.registries(spec, {})[1].hosts_toml) == is_own


def test_a_plan_shows_the_files_of_each_host_and_the_operators_values() -> None:
    lab = lab_of(replace(FRESH, sysctls=LIMITS), mirrors={"docker.io": MIRROR})
    lab._facts["a"] = replace(lab.fact(lab.first), sysctls=LIMITS, snap=INSTALLED)
    first, second, operator = shown.documents(SPEC, lab, {})
    written = {"/etc/sysctl.d/60-trainyard-microk8s.conf", "/etc/hosts"}
    written |= {f"{files.CERTS_D}/{name}/hosts.toml" for name in (ADDRESS, "docker.io")}
    assert set(first["files"]) == written
    assert set(second["files"]) == {*written, "/var/snap/microk8s/common/.microk8s.yaml"}
    assert (second["name"], second["address"], second["microk8s"]) == ("b", "ops@b", "1.34/stable")
    assert set(operator["values"]) == {"tolerations", "image"}


def test_missing_image_files_are_copied_and_awaited_until_loaded(
    tmp_path: Path,
) -> None:
    for name in ("a.tar", "b.tar", "notes.txt"):
        (tmp_path / name).write_text("1234")

    section = Microk8sSection.model_validate({**FILE["microk8s"], "images": str(tmp_path)})
    images = offline.image_files(section, Path("/"))
    told = Told()
    has = {"a.tar.loaded": 4, "b.tar": 3}
    lab = lab_of(replace(GOOD, images=has), told=told, images=images)
    lab._facts["a"] = replace(lab.fact(lab.first), images={"a.tar": 4, "b.tar.loaded": 4})
    step = offline.put_step(lab)
    assert (step.title, step.done().detail) == ("Every host has 2 image files", "b: lacks b.tar")
    step.do()
    assert told.commands == [f"mkdir -p {SIDELOAD}", f"write {SIDELOAD}/b.tar"]
    lab = lab_of(replace(GOOD, images=has), images=images)
    lab._facts["a"] = replace(lab.fact(lab.first), images={"a.tar.loaded": 4, "b.tar.loaded": 4})
    waits = offline.loaded_step(lab, after="x").done().detail
    assert waits == "b: has not loaded b.tar: snap logs microk8s.daemon-containerd says why"


def test_files_that_are_not_there_are_one_error(tmp_path: Path) -> None:
    section = Microk8sSection.model_validate(
        {**FILE["microk8s"], "images": "gone", "snap": ["microk8s_1.snap"]}
    )
    with pytest.raises(PrerequisiteError, match=r"gone has no \*.tar"):
        offline.image_files(section, tmp_path)
    with pytest.raises(PrerequisiteError, match=r"no such file: .*/microk8s_1.snap"):
        offline.snap_files(section, tmp_path)


def test_snap_files_are_acked_or_dangerous_and_an_installed_base_is_kept(
    tmp_path: Path,
) -> None:
    names = ("core22_2.snap", "core22_2.assert", "microk8s_9.snap")
    for name in names:
        (tmp_path / name).write_text("1")

    told = Told(facts="")
    snaps = [tmp_path / "core22_2.snap", tmp_path / "microk8s_9.snap"]
    lab = lab_of(GOOD, told=told, snaps=snaps)
    install._install_step(lab).do()
    there = "/var/tmp/trainyard"

    # The fake answers as if the base snap were installed already.
    assert told.commands == [
        "snap list core22",
        f"write {there}-microk8s_9.snap",
        f"snap install {there}-microk8s_9.snap --classic --dangerous",
        f"rm -f {there}-microk8s_9.snap {there}-microk8s_9.snap.assert",
        "snap refresh --hold microk8s",
    ]

    (tmp_path / "microk8s_9.assert").write_text("1")
    told.commands.clear()
    offline.install(lab.hosts[1], lab)
    assert told.commands[2:5] == [
        f"write {there}-microk8s_9.snap.assert",
        f"snap ack {there}-microk8s_9.snap.assert",
        f"snap install {there}-microk8s_9.snap --classic",
    ]


def test_a_snap_without_its_assertion_is_named(tmp_path: Path) -> None:
    for name in ("core22_2.snap", "core22_2.assert", "microk8s_9.snap"):
        (tmp_path / name).write_text("1")
    lab = lab_of(GOOD, snaps=[tmp_path / "core22_2.snap", tmp_path / "microk8s_9.snap"])
    assert offline.unverified(lab).startswith("microk8s_9.snap: no .assert next to it")
    assert offline.unverified(lab_of(GOOD)) == ""


def test_a_host_with_another_snap_than_the_files_is_refused(tmp_path: Path) -> None:
    snap = tmp_path / "microk8s_9.snap"
    snap.write_text("1234")
    fact = replace(FRESH, snap=replace(INSTALLED, channel="-"), snap_bytes=5)
    with pytest.raises(
        RequestError, match=r"b runs another MicroK8s \(v1.34.2\) than microk8s_9.snap\n"
    ):
        install.steps(lab_of(fact, snaps=[snap]), upgrade=False)
    install.steps(lab_of(replace(fact, snap_bytes=4), snaps=[snap]), upgrade=False)


def test_a_snap_of_a_file_is_taken_for_the_channel_of_its_minor() -> None:
    fact = replace(FRESH, snap=replace(INSTALLED, channel="-"))
    install.steps(lab_of(fact), upgrade=False)
    with pytest.raises(
        RequestError,
        match=r"b runs MicroK8s v1.34.2, which was installed from a file, and .* 1.35/stable",
    ):
        install.steps(lab_of(fact, channel="1.35/stable"), upgrade=True)


@pytest.mark.parametrize(
    ("sign", "what"),
    [
        ("v1.34.1", ""),
        ("^", "an installation takes the next safer"),
        ("--", "nothing can be installed from it; "),
    ],
)
def test_a_closed_channel_is_said_before_it_is_installed(sign: str, what: str) -> None:
    class Store(Told):
        def sudo(self, command: Any, **_: Any) -> Ran:
            listed = (
                f"channels:\n  1.34/stable:    {sign}  2026-01-01 (8511) 168MB classic\n  "
                "1.34/edge:  ^\n"
            )
            return Ran(0, listed, "")

    lab = lab_of(replace(GOOD, hostname="b"), told=Store())
    said = install.closed_channel(lab, {"a": replace(GOOD, snap=INSTALLED), "b": GOOD})
    assert said.startswith(f"1.34/stable is closed: {what}") if what else said == ""

    assert (
        install.closed_channel(
            lab, {"a": replace(GOOD, snap=INSTALLED), "b": replace(GOOD, snap=INSTALLED)}
        )
        == ""
    )


def pod(name: str, inits: list[Any], containers: list[Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {"initContainerStatuses": inits, "containerStatuses": containers},
    }


def waiting(image: str, reason: str, **more: str) -> dict[str, Any]:
    return {"image": image, "imageID": "", "state": {"waiting": {"reason": reason, **more}}}


BEHIND = waiting("node", "PodInitializing")
RUNS = {"image": "cni", "imageID": "1", "state": {"running": {}}}
ENDED = {"image": "cni", "state": {"terminated": {}}}
CRASHES = {"image": "b", "imageID": "1", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
REFUSED = waiting("cni", "ErrImagePull", message="429 Too Many Requests")


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([], ""),
        ([pod("calico", [waiting("cni", "PodInitializing")], [BEHIND])], "calico waits for cni"),
        # Its first container does something, and waits for no image.
        ([pod("calico", [RUNS], [BEHIND])], ""),
        ([pod("calico", [ENDED], [BEHIND])], "calico waits for node"),
        (
            [
                pod("coredns", [], [waiting("coredns", "ContainerCreating")]),
                pod("calico", [REFUSED], []),
            ],
            "calico waits for cni: 429 Too Many Requests",
        ),
        ([pod("a", [], [waiting("b", "ImagePullBackOff")])], "a waits for b: ImagePullBackOff"),
        ([pod("a", [], [CRASHES])], ""),
        ([{"metadata": {"name": "pending"}}], ""),
    ],
)
def test_a_node_says_which_image_it_waits_for(pods: list[Any], said: str) -> None:
    assert pulls.waited_for(pods) == said
