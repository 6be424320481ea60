#!/usr/bin/env bash
# check_model.sh SPIN MODEL RANKS VARIANT: passes when Spin finds no error in CORRECT, and an
# assertion that fails in every other variant.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$1" -DRANKS="$3" -D"$4" -a "$2"
cc -DSAFETY -O1 -w -o pan pan.c
./pan -m100000 | tee report
if [[ $4 == CORRECT ]]; then
  grep -q 'errors: 0' report && ! grep -q 'max search depth too small' report
else
  grep -q 'assertion violated' report
fi
