#!/usr/bin/env bash
# The study of spreads from start to end: run.sh [FOLDER]. Needs build/bin/arlab and .venv (./quickstart.sh makes both);
# ARLAB_PROGRAM and ARLAB_PYTHON name others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

folder=${1:-results/spread}
"${ARLAB_PROGRAM:-build/bin/arlab}" study experiments/studies/spread/study.toml --out "$folder" --no-plots >/dev/null
PYTHONPATH=experiments/python${PYTHONPATH:+:$PYTHONPATH} \
  "${ARLAB_PYTHON:-.venv/bin/python}" -m arlab.figures error_bars "$folder/results.csv" --ranks 4
