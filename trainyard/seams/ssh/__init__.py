"""Hosts that are reached by SSH: connect, run commands, put files, forward ports, many hosts side
by side.
"""
