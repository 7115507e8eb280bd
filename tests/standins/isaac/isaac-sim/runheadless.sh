#!/bin/bash
# Like Isaac Sim's entry point: starts the simulator, and ignores a given command.
echo "Isaac Sim Full Streaming App is loading ($*)"
echo "no GPU was found" >&2
exit 1
