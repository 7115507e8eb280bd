#!/bin/bash
# Like Isaac Lab's: `-p` runs a script with the Python of the image's environment.
[ "$1" = -p ] || { echo "isaaclab.sh: only -p is here" >&2; exit 1; }
shift
exec "${VIRTUAL_ENV}/bin/python" "$@"
