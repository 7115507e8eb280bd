"""From a cluster file to what Kubernetes gets, and in what a running cluster differs from it."""
