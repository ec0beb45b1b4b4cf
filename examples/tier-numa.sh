#!/usr/bin/env bash
# Tier on a machine with a fast and a slow memory node: hot pages come to the fast one. Where this machine has
# one node, a guest with two is started, which takes minutes and needs what vm.sh needs.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(dirname "$0")
cc -O2 -static -o "$work/hot_tenth" "$here/../tests/programs/hot_tenth.c"

if (($(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' | wc -l) > 1)); then
    spillway tier --policy hotbox --local 25% --stats "$work/stats.json" \
        -- "$work/hot_tenth" 64 40 >"$work/said"
else
    kernel=${KERNEL:-$("$here/../scripts/guest-kernel" "$work/kernel")}
    mkdir -p "$work"/root/{bin,proc,sys,run,dev}
    cp "$(command -v busybox)" "$work/root/bin/busybox"
    cp "$work/hot_tenth" "$work/root/"
    strip -o "$work/root/spillway" "$(command -v spillway)"
    for library in $(ldd "$(command -v spillway)" | grep --only-matching '/[^ ]*'); do
        install -D "$library" "$work/root/$library"
    done
    cat >"$work/root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t tmpfs tmpfs /run
/spillway tier --policy hotbox --local 25% --scan-interval 200 --telemetry-cpu 20 --stats /run/stats.json \
    -- /hot_tenth 64 40 >/run/said
/bin/busybox echo BEGIN stats; /bin/busybox cat /run/stats.json; /bin/busybox echo END stats
/bin/busybox echo BEGIN said; /bin/busybox cat /run/said; /bin/busybox echo END said
/bin/busybox poweroff -f
INIT
    chmod +x "$work/root/init"
    (cd "$work/root" && find . | cpio --quiet --create --format=newc) >"$work/files"
    # Time passes with the guest's instructions, whatever else runs here.
    qemu-system-x86_64 -accel tcg -icount shift=2,sleep=off -rtc clock=vm,base=2026-01-01 \
        -nodefaults -no-user-config -display none -no-reboot -m 1024 -smp 1 -serial stdio \
        -object memory-backend-ram,id=fast,size=512M -numa node,nodeid=0,memdev=fast,cpus=0 \
        -object memory-backend-ram,id=slow,size=512M -numa node,nodeid=1,memdev=slow \
        -kernel "$kernel" -initrd "$work/files" -append "console=ttyS0 panic=-1 quiet no_timer_check \
        cryptomgr.notests numa_balancing=disable" </dev/null | tr --delete '\r' >"$work/console"
    for part in stats said; do
        sed -n "/^BEGIN $part\$/,/^END $part\$/p" "$work/console" | sed '1d;$d' >"$work/$part"
    done
    mv "$work/stats" "$work/stats.json"
fi
/usr/bin/python3 - "$work/stats.json" "$work/said" <<'PYTHON'
import json, sys
[group] = json.load(open(sys.argv[1]))["groups"]
hits = json.load(open(sys.argv[2]))["local_hit_ratio"]
print("policy:", group["policy"])
print("pages came to the fast node:", group["promotions"] > 0)
print("more of the accesses are local than of the memory:", hits > 0.3)
PYTHON
