#!/usr/bin/env bash
# The accuracy study from start to end: run.sh [FOLDER]. Needs build/bin/arlab and .venv (./quickstart.sh makes both).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

folder=${1:-results/accuracy}
here=experiments/studies/accuracy
build/bin/arlab study "$here/study.toml" --out "$folder" --no-plots >/dev/null
.venv/bin/python "$here/token_sqnr.py" "$here/study.toml" "$folder" >/dev/null
.venv/bin/python "$here/plot_accuracy.py" "$folder"
