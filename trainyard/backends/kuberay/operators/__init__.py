"""The KubeRay operator: which there is, what is to be installed, and whether it runs."""
