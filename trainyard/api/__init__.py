"""The commands as Python objects, for programs and notebooks: Cluster, Job and Run."""
