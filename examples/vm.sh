#!/usr/bin/env bash
# A virtual machine with part of its memory far: QEMU as it is gives a guest 192 MiB, of which 96 are local.
# The guest fills its memory with numbers, reads them twice, and powers off. It needs qemu-system-x86, cpio
# and busybox-static; the kernel is Debian's, or KERNEL's.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel=${KERNEL:-$("$(dirname "$0")/../scripts/guest-kernel" "$work/kernel")}
numbers=8000000

mkdir -p "$work"/root/{bin,data,dev}
cp "$(command -v busybox)" "$work/root/bin/busybox"
cat >"$work/root/init" <<INIT
#!/bin/busybox sh
/bin/busybox mount -t tmpfs -o size=90% tmpfs /data
/bin/busybox seq $numbers >/data/numbers
for round in 1 2; do /bin/busybox md5sum /data/numbers; done
/bin/busybox poweroff -f
INIT
chmod +x "$work/root/init"
(cd "$work/root" && find . | cpio --quiet --create --format=newc) >"$work/files"

spillway run --local 96M --stats "$work/stats.json" \
    qemu-system-x86_64 -accel tcg,tb-size=32 -nodefaults -no-user-config -display none -no-reboot \
    -m 192 -serial stdio -kernel "$kernel" -initrd "$work/files" \
    -append "console=ttyS0 panic=-1 quiet" </dev/null | tr --delete '\r' >"$work/console"

expected=$(seq "$numbers" | md5sum | cut --delimiter=' ' --fields=1)
echo "$(grep --count "^$expected " "$work/console") of 2 readings found what the guest wrote"
number() { grep --only-matching "\"$1\":[0-9]*" "$work/stats.json" | cut -d: -f2; }
(($(number peak_local_bytes) <= 96 << 20)) && echo "never more than 96 MiB local"
(($(number pages_fetched) > 0)) && echo "pages went far and came back"
