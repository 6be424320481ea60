#!/usr/bin/env bash
# Builds the documentation as a site, into build/site or the folder that is named. Needs ./quickstart.sh before (the program, the package
# arlab, and the packages of requirements.txt), but no network.
#
#   experiments/site/build.sh [--out DIR]
set -euo pipefail
out=
if [[ ${1:-} == --out && $# == 2 ]]; then
  out=$(realpath -m -- "$2")
elif (($#)); then
  printf 'error: allowed is --out DIR, not %s\n' "$*" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")"
repository=$(realpath ../..)
out=${out:-$repository/build/site}
python=${ARLAB_PYTHON:-$repository/.venv/bin/python}
if [[ -e $out && ! -f $out/search/search_index.json ]] && [[ ! -d $out || -n $(ls -A -- "$out") ]]; then
  printf 'error: %s is there and is no site: building would empty it\n' "$out" >&2
  exit 2
fi
program=${ARLAB_BIN:-$repository/build/bin}/arlab
if [[ ! -x $program ]]; then
  printf 'error: there is no %s: ./quickstart.sh builds it, or ARLAB_BIN names its folder\n' "$program" >&2
  exit 2
fi
if ! "$python" -c 'import mkdocs, mkdocstrings, nbconvert, markdown_it' 2>/dev/null; then
  printf 'error: %s lacks packages of requirements.txt: ./quickstart.sh installs them\n' "$python" >&2
  exit 2
fi
export ARLAB_PACKAGE=${program%/*}/python
# With --quiet, MkDocs counts no warnings, and --strict ends nothing.
if ! log=$("$python" -m mkdocs build --strict --clean --config-file mkdocs.yml --site-dir "$out" 2>&1); then
  printf '%s\n' "$log" >&2
  exit 1
fi
printf '%s\n' "$out/index.html"
