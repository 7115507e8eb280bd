#!/bin/bash
# Explore the space with ado, or continue: bash explore.sh OPERATION
#
# ado's SQLite file is in TRAINYARD_CHECKPOINT: the next attempt finds all measurements in it, and runs only the missing experiments.
set -eu
: "${TRAINYARD_CHECKPOINT:=$PWD/checkpoint}" "${TRAINYARD_OUTPUT:=$PWD/output}"
mkdir -p "$TRAINYARD_CHECKPOINT" "$TRAINYARD_OUTPUT"

# ado keeps contexts in its user's settings, which all tasks of a node share: this task gets its own.
export XDG_CONFIG_HOME="$PWD/.config"
printf 'project: pole\nmetadataStore: {scheme: sqlite, path: %s/pole.db}\n' "$TRAINYARD_CHECKPOINT" > context.yaml
ado() { python ado_here.py -c context.yaml "$@"; }

if [ ! -e "$TRAINYARD_CHECKPOINT/space" ]; then
  ado create space -f space.yaml --use-default-sample-store
  touch "$TRAINYARD_CHECKPOINT/space"
fi
ado create operation -f "$1" --use-latest space
ado show measurements space --use-latest -o csv --output-file "$TRAINYARD_OUTPUT/measurements.csv"
