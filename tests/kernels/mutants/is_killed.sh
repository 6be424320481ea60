#!/usr/bin/env bash
# is_killed.sh PROBE SEEDS: passes when the probe fails, and says why.
if report=$("$1" "$2" 2>&1); then
  echo "the mutant survives"
  exit 1
fi
grep -E 'differ from the reference|ThreadSanitizer: data race|emulator: ' <<<"$report"
