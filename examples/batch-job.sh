#!/usr/bin/env bash
# A batch job with a limit: sort may use a buffer of 256 MiB for these lines, and gets 16 MiB of it locally;
# the rest lies in compressed memory. What it writes is the same.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

seq 1000000 | rev >"$work/lines"
spillway run --local 16M --stats "$work/stats.json" \
    sort --buffer-size=256M --parallel=1 --output="$work/sorted" "$work/lines"

sort --check "$work/sorted" && echo "$(wc -l <"$work/sorted") lines in order"
number() { grep --only-matching "\"$1\":[0-9]*" "$work/stats.json" | cut -d: -f2; }
(($(number peak_local_bytes) <= 16 << 20)) && echo "never more than 16 MiB local"
(($(number pages_fetched) > 0)) && echo "pages went far and came back"
