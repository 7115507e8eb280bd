"""The commands for programs and notebooks: Cluster, Job and Run."""
