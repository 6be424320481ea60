#!/usr/bin/env bash
# clang-format and clang-tidy, version 19 (Debian 12 and 13 and Ubuntu 24.04 have it), over our C++.
#
#   cmake/lint.sh          check
#   cmake/lint.sh fix      reformat
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t files < <(git ls-files '*.h' '*.cc' '*.hip')
if [[ ${1:-} == fix ]]; then
  clang-format-19 -i "${files[@]}"
  exit
fi
clang-format-19 --dry-run -Werror "${files[@]}"

# Every source that is compiled as C++ for this machine. Tests and benchmarks are left out: the macros of their
# libraries are not ours to tidy. So are .hip files: HIP's names are reserved identifiers.
# Clang 14 does not know the ranges of libstdc++ 12 that schedules.cc of the Python package needs.
# GCC's precompiled headers mean nothing to clang.
cmake --preset release -B build-lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCMAKE_UNITY_BUILD=OFF -DARLAB_BUILD_TESTS=OFF >/dev/null
cmake --build build-lint --target arlab_machine_files >/dev/null  # the only generated source
mapfile -t sources < <(git ls-files 'reference/*.cc' 'sim/*.cc' 'kernels/*.cc' 'experiments/*.cc' ':!*/benchmarks/*'
  ':!experiments/python/module/schedules.cc')
# Sources that need a missing library (MPI, nanobind) are compiled nowhere.
for i in "${!sources[@]}"; do
  if ! grep -qF "\"file\": \"$PWD/${sources[i]}\"" build-lint/compile_commands.json; then
    printf 'lint: %s is not compiled here, and not looked at\n' "${sources[i]}" >&2
    unset "sources[i]"
  fi
done
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy-19 -p build-lint --quiet 2>/dev/null
