#!/usr/bin/env bash
# Installs, builds and runs all tests. Can be run again at any time.
#
#   ./test.sh                                     the whole suite, release build
#   ./test.sh lint release asan-ubsan tsan        and static analysis, and the same suite under
#                                                 AddressSanitizer + UBSan and under ThreadSanitizer
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

configurations=("$@")
((${#configurations[@]})) || configurations=(release)
for configuration in "${configurations[@]}"; do
  case $configuration in
    lint | release | asan-ubsan | tsan) ;;
    *)
      printf 'error: unknown configuration %s; allowed are lint, release, asan-ubsan, tsan\n' "$configuration" >&2
      exit 2
      ;;
  esac
done

say() { printf '== %s\n' "$*" >&2; }

cmake/install_dependencies.sh test
for configuration in "${configurations[@]}"; do
  if [[ $configuration == lint ]]; then
    say "lint: formatting and static analysis"
    cmake/lint.sh
    continue
  fi
  say "$configuration: building"
  cmake --preset "$configuration" -DARLAB_BUILD_TESTS=ON >/dev/null
  cmake --build --preset "$configuration"
  say "$configuration: testing"
  ctest --preset "$configuration" -j "$(nproc)"
done
say "all passed: ${configurations[*]}"
