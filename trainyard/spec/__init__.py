"""Cluster file, job file and image file -> frozen, validated models, or every problem with them at once."""

from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import BuildSection
from trainyard.spec.expand import TaskSpec, expand
from trainyard.spec.image import ImageFile, LintSection
from trainyard.spec.job import JobSpec, Placement, Resources, RuntimeEnv
from trainyard.spec.load import LoadedCluster, load_cluster, load_image, load_job
from trainyard.spec.nodes import Head, NodeSpec, WorkerGroup
from trainyard.spec.show import as_json, as_yaml

__all__ = [
    "BuildSection",
    "ClusterSpec",
    "Head",
    "ImageFile",
    "JobSpec",
    "LintSection",
    "LoadedCluster",
    "NodeSpec",
    "Placement",
    "Resources",
    "RuntimeEnv",
    "TaskSpec",
    "WorkerGroup",
    "as_json",
    "as_yaml",
    "expand",
    "load_cluster",
    "load_image",
    "load_job",
]
