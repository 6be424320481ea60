#!/usr/bin/env bash
# Installs, builds and runs all tests. Can be run again at any time.
#
# The last line says what was left out, if anything was. In CI, or with ARLAB_WARNINGS=error, a warning ends the build; with
# ARLAB_REQUIRE_MODELS=1 two language models are fetched (200 MB), and the tests that need them are not skipped.
#
#   ./test.sh                                     the suite, release build
#   ./test.sh full                                and what only a release checks (tests/README.md)
#   ./test.sh full lint release asan-ubsan tsan   and static analysis, and the same suite under
#                                                 AddressSanitizer + UBSan and under ThreadSanitizer
#   ./test.sh torch                               arlab in PyTorch, in an environment of its own (6 GB); exit code 75 where
#                                                 that cannot be had
#   ./test.sh --changed [COMMIT]                  what was changed since COMMIT (default: the last one) has tests for
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Folders of tests that a file has, and of the command line only those of its own command; one per line.
tests_of() {
  local part=${1#*/}
  case $1 in
    tests/*/*) printf '%s\n' "tests/${part%%/*}" ;;
    reference/device_facts/*) printf '%s\n' tests/codecs tests/collectives tests/kernels tests/sim tests/experiments ;;
    reference/*/*) printf '%s\n' "tests/${part%%/*}" ;;
    reference/*) printf '%s\n' tests/formats tests/collectives tests/tensors ;;
    sim/* | kernels/*) printf '%s\n' "tests/${1%%/*}" ;;
    experiments/lab/*) printf '%s\n' tests/cli tests/python ;;
    experiments/cli/*) part=$(basename "${1%.*}") && printf '%s\n' "tests/cli:cli_(${part}|help)_test" ;;
    experiments/models/*) printf '%s\n' tests/models ;;
    experiments/python/arlab/figures/*) printf '%s\n' tests/experiments ;;
    experiments/python/*) printf '%s\n' tests/python ;;
    experiments/site/* | experiments/studies/* | *.md) printf '%s\n' tests/experiments ;;
    notebooks/*) printf '%s\n' tests/notebooks ;;
    *) printf 'no tests are looked for: %s\n' "$1" >&2 ;;
  esac
}

test_changed() {
  local files=() rooms=() targets=() room
  git rev-parse --quiet --verify "$1^{commit}" >/dev/null || {
    printf 'error: --changed %s: there is no such commit\n' "$1" >&2
    exit 2
  }
  mapfile -t files < <(git diff --name-only "$1" && git ls-files --others --exclude-standard)
  mapfile -t rooms < <(for file in "${files[@]}"; do tests_of "$file"; done | sort -u)
  say "changed: ${#files[@]} files; tests: ${rooms[*]:-none}"
  ((${#rooms[@]})) || return 0
  configure release
  mapfile -t targets < <(printf '%s/all\n' "${rooms[@]%%:*}" | sort -u)
  cmake --build --preset release --target arlab "${targets[@]}"
  for room in "${rooms[@]}"; do
    [[ $room == *:* ]] || room+=:.
    # Thousands of mutants and fuzzed files take minutes: the whole suite has them.
    ctest --test-dir "build/${room%%:*}" -j "$(nproc)" --output-on-failure -R "${room#*:}" -E 'mutants|^[Ff]uzz|model_mutants'
  done
  say "all passed of what was changed; ./test.sh runs all tests"
}

say() { printf '== %s\n' "$*" >&2; }

configure() {  # PRESET
  local as_error=()
  [[ -z ${CI-} && ${ARLAB_WARNINGS-} != error ]] || as_error=(-DCMAKE_COMPILE_WARNING_AS_ERROR=ON)
  cmake --preset "$1" -DARLAB_BUILD_TESTS=ON -DARLAB_FULL_TESTS="$full" "${as_error[@]}" >/dev/null
}

# The environment with PyTorch. ARLAB_INSTALL_SECONDS is the most that installing may take.
torch_environment=.venv-torch
install_torch() {
  local stamp=$torch_environment/requirements.installed free_gb
  cmp -s requirements-torch.txt "$stamp" && return
  free_gb=$(df --output=avail -BG . | tail -n 1 | tr -dc 0-9)
  if ((free_gb < 15)); then
    say "PyTorch is not installed: $free_gb GB are free, 15 are needed"
    return 1
  fi
  say "installing PyTorch into $torch_environment"
  /usr/bin/python3 -m venv $torch_environment &&
    timeout "${ARLAB_INSTALL_SECONDS:-3600}" $torch_environment/bin/python -m pip install --quiet --disable-pip-version-check \
      -r requirements-torch.txt && cp requirements-torch.txt "$stamp"
}

test_torch() {
  say "torch: building"
  configure release
  cmake --build --preset release --target arlab arlab_python arlab_python_stub
  say "torch: testing"
  PYTHONPATH=$PWD/build/bin/python ARLAB_EXTENSION=1 ARLAB_BIN=$PWD/build/bin PYTHONDONTWRITEBYTECODE=1 $torch_environment/bin/python \
    -m pytest -q -rs -p no:cacheprovider tests/python/test_torch.py tests/python/test_torch_distributed.py \
    tests/python/test_tails.py tests/python/test_tail_check.py tests/python/test_tensors.py
}

full=OFF
if [[ ${1-} == --changed ]]; then
  test_changed "${2-HEAD}"
  exit
fi

uses=(test)
configurations=()
for word in "$@"; do
  case $word in
    full) full=ON && uses+=(full) && export ARLAB_LONG_TESTS=1 ;;
    lint | release | asan-ubsan | tsan | torch) configurations+=("$word") ;;
    *)
      printf 'error: unknown configuration %s; allowed are full, lint, release, asan-ubsan, tsan, torch, --changed\n' "$word" >&2
      exit 2
      ;;
  esac
done
((${#configurations[@]})) || configurations=(release)

[[ " ${configurations[*]} " != *" lint "* ]] || uses+=(lint)
cmake/install_dependencies.sh "${uses[@]}"
if [[ -n ${ARLAB_REQUIRE_MODELS-} ]]; then
  for model in smollm2 minilm; do
    say "the language model $model is here: $(PYTHONPATH=experiments/python .venv/bin/python -m arlab.fetch "$model")"
  done
fi
left_out=
for configuration in "${configurations[@]}"; do
  if [[ $configuration == lint ]]; then
    say "lint: formatting and static analysis"
    cmake/lint.sh
    continue
  fi
  if [[ $configuration == torch ]]; then
    install_torch || exit 75
    test_torch
    continue
  fi
  say "$configuration: building"
  configure "$configuration"
  cmake --build --preset "$configuration"
  say "$configuration: testing"
  # One more than there are processors: some tests wait, for ranks that do not come.
  ctest --preset "$configuration" -j $(($(nproc) + 1))
  folder=build
  [[ $configuration == release ]] || folder+=-$configuration
  of_this=$(python3 tests/left_out.py "$folder")
  left_out+=${of_this:+"; left out of $configuration: $of_this"}
done
say "all passed: ${configurations[*]}$left_out"
