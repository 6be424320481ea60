#!/usr/bin/env bash
# Is there a fused multiply-add in a library? Every operation of the codecs rounds once; a compiler
# that fuses two changes bits, and only on processors that can.
#
#   no_fused_arithmetic.sh LIBRARY     exit code 0: none; 3: some, printed
set -euo pipefail

# Disassembled once; "|| true": grep's 1 for "no line" is an answer, not an error.
code=$(mktemp)
trap 'rm -f "$code"' EXIT
objdump -d --no-show-raw-insn "$1" >"$code"
if ! grep -qE '\bv?mulps\b' "$code"; then
  printf 'error: no multiplication of vectors in %s: is this the right file?\n' "$1" >&2
  exit 2
fi
fused=$(grep -E '\bv?fn?m(add|sub|addsub|subadd)[0-9]*[ps][sdh]\b' "$code" | sort | uniq -c | head -20 || true)
if [[ -n $fused ]]; then
  printf 'fused operations in %s:\n%s\n' "$1" "$fused"
  exit 3
fi
printf 'no fused operation in %s\n' "$1"
