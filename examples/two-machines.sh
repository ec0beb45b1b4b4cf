#!/usr/bin/env bash
# Two machines: one lends memory, the other runs a program with it. Here they are two network namespaces of
# this machine with a cable between them, which takes root; on real ones it is the three lines that have
# "spillway".
set -euo pipefail
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# A machine is here as long as its first process.
unshare --net sleep infinity & lender=$!
unshare --net sleep infinity & worker=$!
on() { nsenter --net="/proc/$1/ns/net" "${@:2}"; }
for machine in $lender $worker; do
    until [[ $(readlink "/proc/$machine/ns/net") != $(readlink /proc/self/ns/net) ]]; do sleep 0.1; done
    on "$machine" ip link set lo up
done
ip link add cable netns "$lender" type veth peer name cable netns "$worker"
on "$lender" ip address add 10.73.0.1/24 dev cable
on "$worker" ip address add 10.73.0.2/24 dev cable
for machine in $lender $worker; do on "$machine" ip link set cable up; done

# Who the two are to each other: made once, and brought to both.
spillway donor certificates "$work/tls" --host 10.73.0.1 --client worker >"$work/made"

# On the machine that lends:
nsenter --net="/proc/$lender/ns/net" \
    spillway donor --memory 256M --listen 10.73.0.1:10809 --tls-certificates "$work/tls" \
    >"$work/donor.log" 2>&1 &
donor=$!
until grep --quiet "listening on" "$work/donor.log"; do sleep 0.1; done

# On the one that needs memory:
seq 1000000 | rev >"$work/lines"
on "$worker" \
    spillway run --local 16M --store "nbds://10.73.0.1:10809/?size=200M&tls-certificates=$work/tls" \
    sort --buffer-size=128M --parallel=1 --output="$work/sorted" "$work/lines"

sort --check "$work/sorted" && echo "$(wc -l <"$work/sorted") lines in order"
kill "$donor"
wait "$donor" || true
grep --only-matching "run 1 of client worker begins: 200.0 MiB promised" "$work/donor.log"
grep --only-matching "run 1 of client worker has ended" "$work/donor.log"
grep --quiet "^ended: .* of which 0 failed" "$work/donor.log" && echo "no connection failed"
