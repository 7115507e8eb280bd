"""The only modules that talk to outside systems: HTTP, processes, SDKs."""
