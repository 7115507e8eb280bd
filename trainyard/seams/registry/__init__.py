"""A container registry as we ask it; images themselves are pushed and pulled by Docker."""
