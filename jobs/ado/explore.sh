#!/bin/bash
# Explore the space with ado, or continue: bash explore.sh OPERATION
#
# ado's SQLite file lies in TRAINYARD_CHECKPOINT: the next attempt finds what was measured, and measures the rest.
set -eu
: "${TRAINYARD_CHECKPOINT:=$PWD/checkpoint}" "${TRAINYARD_OUTPUT:=$PWD/output}"
mkdir -p "$TRAINYARD_CHECKPOINT" "$TRAINYARD_OUTPUT"

# ado keeps contexts among its user's settings, which are the node's: here they are the task's own.
export XDG_CONFIG_HOME="$PWD/.config"
printf 'project: pole\nmetadataStore: {scheme: sqlite, path: %s/pole.db}\n' "$TRAINYARD_CHECKPOINT" > context.yaml
ado() { python ado_here.py -c context.yaml "$@"; }

if [ ! -e "$TRAINYARD_CHECKPOINT/space" ]; then
  ado create space -f space.yaml --use-default-sample-store
  touch "$TRAINYARD_CHECKPOINT/space"
fi
ado create operation -f "$1" --use-latest space
ado show measurements space --use-latest -o csv --output-file "$TRAINYARD_OUTPUT/measurements.csv"
