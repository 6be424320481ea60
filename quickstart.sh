#!/usr/bin/env bash
# Installs, builds and runs the main study. No GPU is needed. Can be run again at any time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cmake/install_dependencies.sh
printf '== building build/bin/arlab and build/bin/python (first time: five to ten minutes on two cores)\n' >&2
cmake --preset release -DARLAB_BUILD_TESTS=OFF -DARLAB_BUILD_PYTHON=ON >/dev/null
cmake --build --preset release --target arlab arlab_python
printf '== running the main study\n' >&2
# Two_shot on 8 ranks with real activations is enough here of the table of 1300 rows.
build/bin/arlab study experiments/studies/main/study.toml --out results/main | \
  awk '/^input /{table = 1} table && /^[^-r(]/ && !/^input / && !/^MiniLM activations +8 +two_shot /{next} {print}'
cat <<'END'

What you have now
  results/main/results.csv    every point: input x tensor x ranks x algorithm x codec
  results/main/summary.csv    the table; above are its rows of two_shot, 8 ranks, MiniLM activations
  results/main/*.png          the plots
  build/bin/python            the Python package: PYTHONPATH=build/bin/python .venv/bin/python
Next
  build/bin/arlab list codecs
  build/bin/arlab reduce --algorithm two_shot --codec qr-q4 --ranks 8 --synthetic gaussian --elements 1M
  build/bin/arlab simulate --topology mi300x-8 --algorithm two_shot --codec qr-q4 --bytes 64M
END
