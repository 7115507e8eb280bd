"""The only modules that touch the outside: HTTP, processes, SDKs."""
