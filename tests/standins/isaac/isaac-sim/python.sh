#!/bin/bash
# Like Isaac Sim's python.sh: runs its Python with the environment that its modules need.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARB_APP_PATH="$here/kit" ISAAC_PATH="$here" EXP_PATH="$here/apps"
export PYTHONPATH="$PYTHONPATH:$here/exts/omni.isaac.ml_archive/pip_prebundle"
"$here/kit/python/bin/python3" "$@" || { code=$?; echo "There was an error running python"; exit $code; }
