#!/usr/bin/env bash
# A policy of one's own in the lab: the one that docs/lab/a-new-policy.md writes, beside two that come along.
# It is built in a copy of the sources, which takes some minutes; CARGO_TARGET_DIR keeps what was built.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$(dirname "$0")/.."

# The page's first block of Rust is the file, its second the line.
block() {
    awk -v wanted="$1" '/^```/ { inside = !inside; mine = inside && /rust/ && ++at == wanted; next }
        mine' docs/lab/a-new-policy.md
}
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "$work"
policies=$work/crates/spillway-policy/src
block 1 >"$policies/eager.rs"
block 2 >"$work/line"
sed -i 's/^pub mod dcm;/pub mod dcm;\npub mod eager;/' "$policies/lib.rs"
sed -i -e '0,/^use crate::{/s//use crate::{eager, /' -e "/^static ENTRIES/r $work/line" \
    "$policies/registry.rs"

cd "$work"
cargo build --quiet --locked --package spillway
lab() { "${CARGO_TARGET_DIR:-target}/debug/spillway" lab "$@"; }
lab list | grep --only-matching "Promotes at the first hint fault, evicts by lot"
for policy in eager hotbox first-touch; do
    lab run --workload memcached-etc --size 16M --policy "$policy" --json >"$policy.json"
done
/usr/bin/python3 - <<'PYTHON'
import json
def migrations(policy):
    return json.load(open(policy + ".json"))["promotions"]
print("first-touch promotes nothing:", migrations("first-touch") == 0)
print("eager promotes:", migrations("eager") > 0, "- hotbox too:", migrations("hotbox") > 0)
PYTHON
