#!/usr/bin/env bash
# The accuracy study from start to end: run.sh [FOLDER]. Needs build/bin/arlab and .venv (./quickstart.sh makes both);
# ARLAB_PROGRAM and ARLAB_PYTHON name others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

folder=${1:-results/accuracy}
study=experiments/studies/accuracy/study.toml
program=${ARLAB_PROGRAM:-build/bin/arlab}
export PYTHONPATH=experiments/python${PYTHONPATH:+:$PYTHONPATH}

"$program" study "$study" --out "$folder" --no-plots >/dev/null
"${ARLAB_PYTHON:-.venv/bin/python}" -m arlab.figures accuracy "$folder"
