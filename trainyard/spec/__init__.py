"""Cluster file, job file and image file -> frozen, validated models, or every problem with them at once."""

from trainyard.spec.cluster import ClusterSpec, LocalSection
from trainyard.spec.docker import BuildSection, ComposeSection, Mount, Registry
from trainyard.spec.existing import ExistingSection
from trainyard.spec.expand import TaskSpec, expand
from trainyard.spec.image import ImageFile, LintSection
from trainyard.spec.job import JobSpec, Placement, Resources, RuntimeEnv, SmokeNeeds, TaskEntry
from trainyard.spec.load import LoadedCluster, load_cluster, load_image, load_job
from trainyard.spec.nodes import Head, NodeSpec, WorkerGroup
from trainyard.spec.overrides import split as split_overrides
from trainyard.spec.show import as_json, as_yaml

__all__ = [
    "BuildSection",
    "ClusterSpec",
    "ComposeSection",
    "ExistingSection",
    "Head",
    "ImageFile",
    "JobSpec",
    "LintSection",
    "LoadedCluster",
    "LocalSection",
    "Mount",
    "NodeSpec",
    "Placement",
    "Registry",
    "Resources",
    "RuntimeEnv",
    "SmokeNeeds",
    "TaskEntry",
    "TaskSpec",
    "WorkerGroup",
    "as_json",
    "as_yaml",
    "expand",
    "load_cluster",
    "load_image",
    "load_job",
    "split_overrides",
]
