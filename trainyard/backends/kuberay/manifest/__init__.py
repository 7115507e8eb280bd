"""From a cluster file to the objects that Kubernetes gets; pure."""
