#!/usr/bin/env bash
# check_model.sh SPIN MODEL EXPECTED OPTION...: passes when Spin, given the options, finds what is
# expected: none (no error in a complete search), assertion (one that fails) or deadlock.
set -euo pipefail
spin=$1 model=$2 expected=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$spin" "$@" -a "$model"
optimize=-O2
[[ $expected == none ]] || optimize=-O0 # what is wrong is found in an instant
cc -DSAFETY -DMEMLIM=1500 $optimize -w -o pan pan.c
./pan -m100000 | tee report
case $expected in
  none)
    grep -q 'errors: 0' report && ! grep -qE 'max search depth too small|not completed' report
    ;;
  assertion) grep -qF 'assertion violated (' report ;;
  deadlock) grep -q 'invalid end state' report ;;
  *) exit 1 ;;
esac
