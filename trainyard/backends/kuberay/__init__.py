"""A RayCluster on Kubernetes, made by the KubeRay operator.

The backend microk8s makes a Kubernetes, and then calls these functions with its
own `section`: a kubeconfig, context and namespace that replace those in the
cluster file's `kuberay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from trainyard.backends.contract import (
    Backend,
    ClusterStatus,
    Finding,
    LogLine,
    Site,
    Traits,
    Verified,
    pick,
)
from trainyard.backends.kuberay import (
    doctor,
    down,
    leash,
    location,
    objects,
    operator,
    owned,
    ownership,
    ray_cluster,
    rights,
    wait,
)
from trainyard.backends.kuberay import status as statuses
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.desired import read as read_desired
from trainyard.backends.kuberay.listing import discover
from trainyard.backends.kuberay.snapshot import node_pods
from trainyard.backends.kuberay.verify import verify as verify_hosts
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import owner as owners
from trainyard.backends.shared import refusal
from trainyard.endpoint import Endpoint
from trainyard.images import resolve
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.spec.secrets import hidden
from trainyard.steps import Answer, Stage, Step, no

Section = KuberaySection | None


def up_steps(spec: ClusterSpec, site: Site, section: Section = None) -> list[Stage]:
    at = section or spec.kuberay

    def steps() -> list[Step]:
        return _steps(read_desired(spec, site, at))

    return [Stage("kubernetes", "Ask Kubernetes and the registry", steps)]


def documents(spec: ClusterSpec, site: Site, section: Section = None) -> list[Object]:
    """Return what `up` would apply, without Secrets and secret variables.

    Asks Kubernetes and the registry; raises the same errors as the steps of
    `up`.
    """
    without_secrets = spec.model_copy(update={"env": hidden(spec.env)})
    desired = read_desired(without_secrets, site, section or spec.kuberay)
    documents = desired.documents
    made = (
        documents.namespace,
        documents.claim,
        ray_cluster.document(desired),
        documents.budget,
        documents.network_policy,
    )
    return [document for document in made if document]


def down_steps(
    spec: ClusterSpec, site: Site, section: Section = None, *, purge: bool
) -> list[Stage]:
    """Return the stage with the steps of `down`.

    They remove all that has the cluster's label at the recorded location,
    whatever the file says.
    """

    def steps() -> list[Step]:
        where = location.find(spec, site, section or spec.kuberay)
        return down.steps(where, site, with_purge=purge)

    return [Stage("find-cluster", f"Find cluster {spec.name}", steps)]


def status(spec: ClusterSpec, site: Site, section: Section = None) -> ClusterStatus:
    return statuses.status(spec, site, _dashboard(spec, site, section))


def diagnose(spec: ClusterSpec, site: Site, section: Section = None) -> list[Finding]:
    return doctor.findings(location.find(spec, site, section or spec.kuberay))


def connect(spec: ClusterSpec, site: Site, section: Section = None) -> Endpoint:
    return statuses.connect(spec, _dashboard(spec, site, section))


def logs(
    spec: ClusterSpec, site: Site, section: Section = None, *, follow: bool, node: str = ""
) -> Iterator[LogLine]:
    return statuses.logs(_dashboard(spec, site, section), follow=follow, node=node)


def shell(spec: ClusterSpec, site: Site, *, node: str, command: str, terminal: bool) -> list[str]:
    where = location.find(spec, site, spec.kuberay)
    pod = pick(node_pods(where), node, cluster=spec.name)
    return [
        *location.kubectl_words(where),
        *location.exec_words(where, pod, command, terminal=terminal),
    ]


def verify(
    spec: ClusterSpec, site: Site, section: Section = None, *, report: Callable[[str], None]
) -> Verified:
    return verify_hosts(spec, site, section or spec.kuberay, report=report)


def _dashboard(spec: ClusterSpec, site: Site, section: Section) -> Dashboard:
    return Dashboard(location.find(spec, site, section or spec.kuberay))


def _steps(desired: Desired) -> list[Step]:
    changes = ray_cluster.differences(desired)
    refused = ray_cluster.refusal(desired, changes)
    steps: list[Step] = []
    if refused:
        # After the refusal, a plan shows the steps of --recreate. A cluster whose head was never
        # ready has no runs, so replacing it needs no flag.
        desired = replace(desired, site=desired.site.wishing(recreate=True))
        changes = ()
        if not desired.never_started:
            steps.append(refusal.of_head(refused, title="Replace the whole cluster"))

    where = desired.location
    cluster_leash = leash.of(where)
    former = ray_cluster.replace_step(desired)
    make = ray_cluster.step(desired, changes, after=former.id if former else None)
    set_leash = leashes.steps(desired.spec, desired.site, cluster_leash, after=make.id)
    is_changed = bool(changes) or former is not None
    if is_changed:
        rights.refuse_missing(where, rights.needed(desired.spec, where.section))

    steps += _owner_steps(desired, changes=is_changed, set_leash=set_leash)
    steps.append(_record_step(desired))
    steps += operator.steps(desired.kuberay)
    steps += _object_steps(desired)
    if former:
        steps.append(former)
    steps.append(make)
    steps += owned.steps(where, desired.documents, after=make.id)
    steps += set_leash
    steps.append(wait.step(where, len(desired.spec.nodes()), after=make.id))
    steps += leashes.proof(desired.spec, cluster_leash, after=make.id)
    return steps


def _object_steps(desired: Desired) -> list[Step]:
    where = desired.location
    steps = [objects.namespace_step(where, desired.documents.namespace)]
    # A kept image is pulled with the Secret's present logins, so the Secret stays too.
    if not desired.keeps_logins:
        steps.append(objects.login_step(where, desired.pull_secret))
    steps.append(objects.token_step(where))
    if desired.documents.claim:
        steps.append(objects.claim_step(where, desired.documents.claim))
    return steps


def _owner_steps(desired: Desired, *, changes: bool, set_leash: Sequence[Step]) -> list[Step]:
    """Return a step that refuses another user's cluster, or adopts it.

    With --adopt, the step takes the cluster over. Returns [] for this user's
    cluster, or if nothing would change.
    """
    where = desired.location
    site = desired.site
    theirs = ownership.of(where, desired.live)
    if not ownership.is_other(where, theirs):
        return []
    if site.wishes.adopt:
        return [ownership.take_step(where, theirs)]

    # The leash is checked last: a passed deadline is an error, and a new cluster has no leash.
    changes = changes or desired.live is None
    if not changes and all(step.done().holds for step in set_leash):
        return []

    command = "cluster.up"
    if site.wishes.recreate:
        command += " --recreate"
    error = owners.refused(where.name, theirs, ours=where.owner, command=command)
    return [refusal.of_foreign_cluster(error)]


def _record_step(desired: Desired) -> Step:
    site = desired.site
    where = desired.location
    remarks = []
    if desired.live is not None and location.read(site) is None:
        remarks.append(f"cluster {where.name} was there already")
    for image in resolve.distinct(desired.image, desired.images):
        if image.remark:
            remarks.append(image.remark)

    def done() -> Answer:
        if location.read(site) == location.record_of(where):
            return Answer(True, "; ".join(remarks))
        return no("; ".join(("no location is recorded, or another one", *remarks)))

    title = "Record the cluster's location"
    return Step("record-location", title, done, lambda: location.write(site, where))


BACKEND = Backend(
    traits=Traits(
        # `image.verify` needs the namespace that `cluster.up` makes.
        pushed_image="cluster.up",
        nodes_pull=True,
        leaves="namespace and KubeRay operator stay",
        waits="kuberay.wait_for_machines",
        flags=(owners.ADOPT,),
        storage_stays=lambda spec: (
            spec.kuberay.storage is not None and spec.kuberay.storage.claim is not None
        ),
    ),
    up_steps=up_steps,
    down_steps=down_steps,
    status=status,
    connect=connect,
    logs=logs,
    documents=documents,
    diagnose=diagnose,
    discover=discover,
    shell=shell,
    verify=verify,
)
