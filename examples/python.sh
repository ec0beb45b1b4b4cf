#!/usr/bin/env bash
# Python with more data than local memory: 64 MiB of numbers, a quarter of it local. A share, such as
# --local 25%, would be of the machine's memory.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/squares.py" <<'PYTHON'
from array import array

squares = array("Q", bytes(64 << 20))
for index in range(0, len(squares), 64):
    squares[index] = index * index
print(len(squares), "numbers, sum", sum(squares[::64]))
PYTHON
spillway run --local 16M /usr/bin/python3 "$work/squares.py"
/usr/bin/python3 "$work/squares.py"
