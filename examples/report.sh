#!/usr/bin/env bash
# Reading a report: a job is recorded while it runs, and what became of it is read out of the history, by a
# script and as a page for a browser.
set -euo pipefail
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# The job: Python by a name of its own, by which it is recorded.
ln -s /usr/bin/python3 "$work/night-job"
cat >"$work/job.py" <<'PYTHON'
import time
numbers = [bytearray(4096) for _ in range(12000)]
end = time.monotonic() + 2
rounds = 0
while time.monotonic() < end or rounds < 3:
    for number in numbers:
        number[0] = (number[0] + 1) % 256
    rounds += 1
print("all the same:", len({number[0] for number in numbers}) == 1)
PYTHON

# In another terminal, or before the night: it begins when the job does, and ends with it.
spillway record --wait --every 0.2 "$work/night.history" night-job &
recorder=$!
spillway run --local 16M "$work/night-job" "$work/job.py"
wait "$recorder"

# For a browser: one file, without scripts.
page=$(spillway report "$work/night.history")
echo "the page is ${page##*/}"
(($(grep --count "<svg" "$page") > 0)) && echo "it has pictures"

# For a script.
spillway report "$work/night.history" --json >"$work/night.json"
/usr/bin/python3 - "$work/night.json" <<'PYTHON'
import json, sys
[run] = json.load(open(sys.argv[1]))["runs"]
print(run["name"], "had at most", run["local_limit_bytes"] >> 20, "MiB local")
print("more than that was far:", run["peak_far_bytes"] > run["local_limit_bytes"])
print("it waited for memory:", run["lost_share"] > 0, "- worst at a moment:", run["worst"]["lost_share"] > 0)
print("no page was lost:", run["refused_faults"] == 0)
PYTHON
