#!/usr/bin/env bash
# Tune a program that knows nothing of rmes: it takes numbers and prints one. Here it is a few lines
# of awk that play a press for tablets, with scatter from one tablet to the next.
#
# Run: bash examples/external_program.sh [runs]   (needs pip install "rmes[cli]")
set -euo pipefail
runs=${1:-30}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > press.awk <<'PROGRAM'
BEGIN {
    srand(trial + 1)
    if (force > 28) exit 1                                       # the tablet caps: no value
    scatter = sqrt(-2 * log(1 - rand())) * cos(6.2832 * rand())  # a normal deviate
    print 9 - (force - 18)^2 / 40 - (dwell - 60)^2 / 900 + 0.4 * scatter
}
PROGRAM

cat > study.toml <<'STUDY'
name = "tablets"
direction = "maximize"
seed = 0

[parameters]
force_kN = [5.0, 35.0]
dwell_ms = { low = 10, high = 120, integer = true }
STUDY

rmes init
rmes run --count "$runs" -- awk -v trial={trial} -v force={force_kN} -v dwell={dwell_ms} -f press.awk
rmes recommend
