#!/bin/bash
# Like Isaac Lab's: `-p` runs a script with Isaac's Python.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ "$1" != -p ]; then
    echo "isaaclab.sh: only -p is here" >&2
    exit 1
fi
shift
echo "[INFO] Using python from: $here/_isaac_sim/python.sh"
exec "$here/_isaac_sim/python.sh" "$@"
