#!/usr/bin/env bash
# Installs what arlab needs on Debian 12, Debian 13 or Ubuntu 24.04: packages of the distribution for C++,
# and Python packages in .venv inside the project. Does nothing that is done already.
#
#   cmake/install_dependencies.sh [test] [full] [lint]     also what only the tests, the tests of a release, or the linters need
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  build-essential cmake ninja-build ca-certificates
  libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libhwy-dev libeigen3-dev libceres-dev libpcre2-dev
  libpugixml-dev libyaml-cpp-dev
  python3 python3-dev python3-venv
)
optional=()
for use in "$@"; do
  case $use in
    test)
      packages+=(git libgtest-dev libbenchmark-dev libopenmpi-dev openmpi-bin)
      # Only for kernels: without them, that part of the tests is left out, and the
      # last line of ./test.sh says so. A|B is one package by the names that different distributions give it.
      optional+=(spin clang-19 lld-19 llvm-19 libamdhip64-dev
        'rocm-device-libs|rocm-device-libs-17')
      ;;
    full) optional+=(g++-aarch64-linux-gnu qemu-user) ;;  # the codecs of another processor
    lint) packages+=(clang-19 clang-tidy-19 clang-format-19) ;;
    *)
      printf 'error: %s: allowed are test, full, lint\n' "$use" >&2
      exit 2
      ;;
  esac
done

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]})); then
  command -v apt-get >/dev/null ||
    die "these packages are missing and apt-get is not here to install them: ${missing[*]}"
  sudo=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "run this once as root, then start again: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get install failed; see above"
fi

is_any_installed() {
  local name
  for name in ${1//|/ }; do
    if is_installed "$name"; then return 0; fi
  done
  return 1
}

wanted=()
for package in "${optional[@]}"; do
  is_any_installed "$package" || wanted+=("$package")
done
if ((${#wanted[@]})) && command -v apt-get >/dev/null; then
  sudo=()
  [[ $(id -u) == 0 ]] || sudo=(sudo -n)
  "${sudo[@]}" apt-get update -qq || true
  for package in "${wanted[@]}"; do
    for name in ${package//|/ }; do
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$name" \
        >/dev/null 2>&1 || continue
      continue 2
    done
    say "$package is not to be had here: what needs it is left out"
  done
fi

# The stamp holds what was installed, so that a change of requirements.txt is noticed.
stamp=.venv/requirements.installed
if ! cmp -s requirements.txt "$stamp"; then
  say "installing the Python packages of requirements.txt into .venv"
  # The distribution's Python: the one that python3-venv belongs to.
  [[ -x .venv/bin/python ]] || /usr/bin/python3 -m venv .venv ||
    die "the virtual environment .venv could not be made; remove .venv and start again"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt ||
    die "pip could not install the packages of requirements.txt; is a package index reachable?"
  cp requirements.txt "$stamp"
fi
# The compiler that tests of GPU code hold their table against; without it they skip it.
if [[ " $* " == *" test "* ]] && ! cmp -s requirements-nvrtc.txt .venv/nvrtc.installed; then
  if .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-nvrtc.txt; then
    cp requirements-nvrtc.txt .venv/nvrtc.installed
  else
    say "nvidia-cuda-nvrtc is not to be had here: what needs it is left out"
  fi
fi
say "dependencies are installed"
