#!/usr/bin/env bash
# page.sh PAGE BUILD PROGRAM: runs the lines that a page tells its reader to run, with PROGRAM as the reader's, and looks at what they leave.
set -euo pipefail
lines=$(sed -n '/^```sh$/,/^```$/p' "$1" | sed '/^```/d')
[[ $(wc -l <<<"$lines") == 5 ]] || { echo "the page has not five lines: $lines"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$2" "$folder/build"
ln -s "$3" "$folder/your_program"
cd "$folder"
ARLAB_BOOTSTRAP_DIR=$folder bash -euo pipefail -c "$lines" >said 2>errors || { cat said errors; exit 1; }
for what in 'all sums are right' '2,1,all_reduce,bf16,524288,1048576,rule' 'ranks_identical *yes'; do
  grep -q "$what" said || { echo "nobody says '$what':"; cat said errors; exit 1; }
done
for rank in 0 1; do
  grep -q "arlab: rank $rank of 2: all_reduce 1 by rules, 0 by the library, 0 plain" errors || { cat errors; exit 1; }
done
# A program that does not destroy its communicators has its calls written down, too.
ARLAB_BOOTSTRAP_DIR=$folder ARLAB_NCCL_RECORD=left ARLAB_NCCL_DEBUG=1 LD_PRELOAD=$PWD/build/lib/libarlab_nccl.so ./your_program leaves >said 2>errors
grep -q ',2,1,all_reduce,bf16,524288,1048576,plain,' left/calls.csv || { cat said errors left/calls.csv; exit 1; }
[[ $(grep -c 'of 2: all_reduce 0 by rules, 0 by the library, 1 plain' errors) == 2 ]] || { cat errors; exit 1; }
# Without this library, the program has another one's results.
if ./your_program; then echo 'the program needs no library'; exit 1; fi
# Calls without a rule go to the library that the program is linked with, found by its name, though that calls us by ours.
! ARLAB_BOOTSTRAP_DIR=$folder ARLAB_NCCL_LIBRARY=libnccl.so.2 ARLAB_NCCL_DEBUG=1 LD_PRELOAD=$PWD/build/lib/libarlab_nccl.so ./your_program 2>errors
grep -q 'all other calls by the real library' errors || { cat errors; exit 1; }
