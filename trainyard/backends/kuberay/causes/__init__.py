"""Why what should run does not, from all that Kubernetes says: one module per kind of cause."""
