#!/usr/bin/env bash
# is_killed.sh PROBE ARGUMENT...: passes when the probe fails, and says why.
export TSAN_OPTIONS=halt_on_error=1
if report=$(timeout 300 "$@" 2>&1); then
  echo "the mutant survives"
  exit 1
fi
grep -E 'differ from the reference|do not name calls that differ|ThreadSanitizer: data race|emulator: |  FAILED  ' <<<"$report"
