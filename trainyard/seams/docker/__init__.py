"""A Docker engine and the `docker` command: what Trainyard asks of them, and the errors they give,
in our words.
"""
