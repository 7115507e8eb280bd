"""Requests to a container registry; images themselves are pushed and pulled by Docker."""
