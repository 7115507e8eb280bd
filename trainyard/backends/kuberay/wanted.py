"""What `cluster.up` was asked for: the documents of a cluster, and the Kubernetes that is to have them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import access, image, location, names, pods, pull, site, there
from trainyard.backends.kuberay.access import Task
from trainyard.backends.kuberay.documents.document import Documents, Wish, documents, shipped_templates
from trainyard.backends.kuberay.image import Chosen
from trainyard.backends.kuberay.operators import charts, definitions, installing
from trainyard.backends.kuberay.operators.operator import HelmRelease
from trainyard.backends.kuberay.operators.operator_steps import Kuberay
from trainyard.backends.kuberay.site import Site
from trainyard.backends.kuberay.there import There
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images.types import PinnedImage
from trainyard.seams.helm import Helm, Release
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import Operator as Section


@dataclass(frozen=True)
class Wanted:
    """A cluster as it should be, and what there was when the command began."""

    spec: ClusterSpec
    tools: Tools
    site: Site
    there: There
    chosen: Chosen
    documents: Documents
    kuberay: Kuberay
    simulated: bool

    @property
    def image(self) -> PinnedImage:
        """Return the exact image of every node."""
        return self.chosen.image

    @property
    def ray_cluster(self) -> Object | None:
        """Return the RayCluster that there was, None if there was none, or only one that is being removed."""
        found = self.there.ray_cluster.found
        return None if found is None or pods.is_leaving(found) else found

    @property
    def is_new(self) -> bool:
        """Say whether the RayCluster is to be made, or made anew."""
        return self.ray_cluster is None or self.tools.recreate

    def task(self) -> Task:
        """Return what is going to be done that not everybody may."""
        gpus = self.spec.head.gpus or any(group.gpus for group in self.spec.workers)
        return Task(
            namespace=not self.there.has_namespace,
            definitions=self.kuberay.plan.changes or lacks_definitions(self.there),
            operator=self.kuberay.plan.changes,
            trial=self.is_new and bool(gpus) and not self.simulated,
            remove=self.tools.recreate and self.ray_cluster is not None,
            login=not self.chosen.kept and names.pull_secret(self.spec.name) in pull_secrets_of(self.documents),
        )


def wanted(spec: ClusterSpec, tools: Tools) -> Wanted:
    """Find out what the file means on its Kubernetes. Raises what stands in the way."""
    where = location.of_section(spec, tools, spec.kuberay)
    location.refuse_other(tools, where)
    section = spec.kuberay.operator
    helm = Helm(tools.environ, site.kubeconfig(spec, tools), where.kube.context or None)
    with ThreadPoolExecutor(3) as pool:
        asked_image = pool.submit(image.asked, spec, tools, where)
        ours = pool.submit(_release, where.kube, helm, section)
        found = there.look(where, section)
        if not access.sees(found):
            access.refuse_missing(where.kube, access.needs(spec, Task()), command="cluster.up")
        if found.ray_cluster.found is not None:
            site.refuse_foreign(found.ray_cluster.found, where)
        version = charts.version_of(section, directory=tools.directory)
        plan = installing.decide(found, section, where.namespace, ours=ours.result(), version=version)
        refuse_lacking(found, section, version=version)
        if plan.what == "install":
            release = HelmRelease(section.release, section.namespace)
            installing.refuse_foreign(where.kube, helm, release, bears_pending=True)
        live = found.ray_cluster.found
        chosen = image.choose(spec, tools, asked_image.result(), live, recreate=tools.recreate)
    simulated = simulates(spec)
    return Wanted(
        spec=spec,
        tools=tools,
        site=where,
        there=found,
        chosen=chosen,
        documents=documents(_wish(spec, chosen, simulated=simulated), shipped_templates()),
        kuberay=Kuberay(where.kube, helm, section, charts.chart_of(section, directory=tools.directory), version, plan),
        simulated=simulated,
    )


def pull_secrets_of(found: Documents) -> list[str]:
    """Return the names of the Secrets that the nodes' image is pulled with."""
    pod = found.ray_cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return [one["name"] for one in pod.get("imagePullSecrets") or ()]


def simulates(spec: ClusterSpec) -> bool:
    """Say whether the GPUs of the file are numbers of Ray only."""
    return spec.kuberay.simulated_gpus and bool(spec.head.gpus or any(group.gpus for group in spec.workers))


def lacks_definitions(found: There) -> bool:
    """Say whether Kubernetes must be told (better) what a RayCluster is, and lets us see that."""
    if found.crd.refusal is not None:
        return False
    return found.crd.found is None or not definitions.fits(found.crd.found)


def refuse_lacking(found: There, section: Section, *, version: str) -> None:
    """Raise PrerequisiteError if CRDs are lacking, and the file says that they are somebody else's."""
    if section.install or not lacks_definitions(found):
        return
    raise PrerequisiteError(
        "Kubernetes knows no RayCluster as our clusters need it, and the cluster file says that somebody else installs "
        "KubeRay",
        where=f"kuberay.operator.install: false; CRD {definitions.RAY_CLUSTERS}",
        hint=definitions.how_to_apply(version),
    )


def _wish(spec: ClusterSpec, chosen: Chosen, *, simulated: bool) -> Wish:
    if chosen.kept:
        return Wish(spec, chosen.image.reference, simulated=simulated, pull_secrets=chosen.pull_secrets)
    named = spec.kuberay.pull_secrets
    made = pull.secret(spec.name, chosen.image, others=named, now=datetime.now(timezone.utc))
    own = (names.pull_secret(spec.name),) if made else ()
    return Wish(spec, chosen.image.reference, simulated=simulated, pull_secrets=(*own, *named))


def _release(kube: Kube, helm: Helm, section: Section) -> Release | None:
    """Return the Helm release that we made; who has no Helm, or may not see releases, did not make one."""
    try:
        return installing.own_release(kube, helm, HelmRelease(section.release, section.namespace))
    except (OutsideError, PrerequisiteError):
        return None
