"""A RayCluster on Kubernetes, made by the KubeRay operator."""
