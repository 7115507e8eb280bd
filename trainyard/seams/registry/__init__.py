"""Requests to a container registry; Docker itself pushes and pulls images."""
