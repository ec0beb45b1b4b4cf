#!/usr/bin/env bash
# redis-server with 16 MiB of local memory for some 40 MiB of values; the rest lies with a donor. Here that
# is a process on this machine; on another one: --listen ADDRESS:10809 --tls-certificates DIR, and
# --store 'nbds://ADDRESS/?tls-certificates=DIR'.
set -euo pipefail
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

spillway donor --memory 256M --unix "$work/donor" >"$work/donor.log" &
donor=$!
until grep --quiet "listening on" "$work/donor.log"; do sleep 0.1; done

spillway run --local 16M --store "nbd+unix:///?socket=$work/donor" \
    redis-server --port 0 --unixsocket "$work/redis" --save "" --loglevel warning >"$work/redis.log" 2>&1 &
server=$!
ask() { redis-cli -s "$work/redis" "$@"; }
until [[ $(ask ping 2>/dev/null) == PONG ]]; do sleep 0.1; done

# 20,000 values of 2 KB, and one of them again.
awk 'BEGIN { for (key = 1; key <= 20000; key++) printf "SET key:%d %02000d\r\n", key, key }' |
    ask --pipe | tail -n 1
echo "$(ask dbsize) keys; the last digits of key:17 are $(ask get key:17 | tail -c 6)"
ask shutdown nosave
wait "$server" && echo "redis ended well"
kill "$donor"
wait "$donor" || true
grep --quiet "of which 0 failed" "$work/donor.log" && echo "no connection failed"
