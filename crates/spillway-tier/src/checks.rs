//! What `spillway doctor` says of this machine's tiers.

use std::path::Path;

use spillway_core::size::Size;
use spillway_sys::machine::{Check, Purpose, Status, as_root};
use spillway_sys::uffd::Uffd;

use crate::markers;
use crate::nodes::{Node, Nodes, NodesError, Tiers};
use crate::settings;
use crate::source::{self, SourceError};

fn check(name: &'static str, status: Status, found: String, meaning: &'static str) -> Check {
    Check::new(name, status, found, meaning).for_purpose(Purpose::Tier)
}

/// Tiers, telemetry and what stands in the way. Takes some milliseconds and changes nothing.
#[must_use]
pub fn checks() -> Vec<Check> {
    let root = Path::new("/");
    let mut checks = vec![tiers(root), telemetry(), migration()];
    checks.push(conflicts(root));
    checks
}

fn tiers(root: &Path) -> Check {
    const NAME: &str = "memory-tiers";
    let nodes = match Nodes::read(root) {
        Ok(nodes) => nodes,
        Err(error) => return check(NAME, Status::Absent, error.to_string(), "'tier' needs memory nodes"),
    };
    match nodes.tiers(None, None) {
        Ok(tiers) => check(
            NAME,
            Status::Ok,
            describe(&nodes, &tiers),
            "'tier' moves pages between them; --fast and --slow override",
        ),
        Err(NodesError::NoSlow(_)) => {
            let all = nodes.all.iter().map(describe_node).collect::<Vec<_>>().join(", ");
            check(
                NAME,
                Status::Absent,
                format!("all fast: {all}"),
                "'tier' needs a slow node beside the fast",
            )
        }
        Err(error) => check(NAME, Status::Absent, error.to_string(), "'tier' needs a slow node"),
    }
}

fn describe(nodes: &Nodes, tiers: &Tiers) -> String {
    let list = |set: &crate::nodes::NodeSet| {
        let of_set = nodes.all.iter().filter(|node| set.0.contains(&node.node));
        of_set.map(describe_node).collect::<Vec<_>>().join(", ")
    };
    format!("fast: {}; slow: {}", list(&tiers.fast), list(&tiers.slow))
}

fn describe_node(node: &Node) -> String {
    let mut parts = vec![Size::from_bytes(node.total_bytes).to_string()];
    parts.extend(node.memory_tier.map(|tier| format!("tier {tier}")));
    parts.extend(node.read_latency_ns.map(|latency_ns| format!("{latency_ns} ns")));
    parts.extend(node.read_bytes_per_s.map(|bytes| format!("{}/s", Size::from_bytes(bytes))));
    if !node.cpus {
        parts.push("no CPUs".to_owned());
    }
    if node.dax {
        parts.push("DAX".to_owned());
    }
    format!("node {} ({})", node.node, parts.join(", "))
}

fn telemetry() -> Check {
    const NAME: &str = "tier-telemetry";
    let (mut works, mut fails) = (Vec::new(), Vec::new());
    for (facts, error) in source::available() {
        match error {
            None => works.push(facts.name.to_owned()),
            Some(SourceError::Unavailable { name, reason }) => fails.push(format!("{name}: {reason}")),
            Some(error) => fails.push(error.to_string()),
        }
    }
    if works.is_empty() {
        return check(NAME, Status::Absent, fails.join("; "), "'tier' cannot know which pages are used");
    }
    let mut found = works.join(", ");
    if !fails.is_empty() {
        found = format!("{found}; not here: {}", fails.join("; "));
    }
    check(NAME, Status::Ok, found, "'tier' knows which pages are used")
}

fn migration() -> Check {
    const NAME: &str = "tier-migration";
    match Uffd::check_events() {
        Ok(()) => check(
            NAME,
            Status::Ok,
            "on demand".to_owned(),
            "hot pages of programs that 'tier' starts migrate with their next access",
        ),
        Err(reason) => check(
            NAME,
            Status::Absent,
            format!("in batches: {}", markers::why(reason)),
            "'tier' migrates hot pages when a scan has found them accessed",
        ),
    }
}

fn conflicts(root: &Path) -> Check {
    const NAME: &str = "tier-conflicts";
    let found = settings::conflicts(root);
    let Some(first) = found.first() else {
        return check(NAME, Status::Ok, "none".to_owned(), "the kernel migrates nothing by itself");
    };
    let all = found.iter().map(|conflict| {
        let name = match conflict.setting.rsplit('/').next() {
            Some("action") | None => "DAMON scheme",
            Some(name) => name,
        };
        format!("{name} is {}", conflict.value)
    });
    let check = check(
        NAME,
        Status::Warn,
        all.collect::<Vec<_>>().join("; "),
        "'tier' starts only with --beside-kernel while the kernel does the same",
    );
    let command = as_root(&format!("sh -c '{}'", first.remedy));
    match first.off {
        Some(_) => check.mended_by(command, "until the next boot"),
        // Who turned it on may want it.
        None => check.mended_by_hand(command, "if nobody wants that scheme"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn nodes_are_shown_with_all_that_is_known_of_them() {
        let tree = Tree::new();
        tree.node(0, "0-3", 2048, 100);
        assert_eq!(tiers(tree.root()).status, Status::Absent);
        assert_eq!(tiers(tree.root()).found, "all fast: node 0 (2.0 GiB)");
        tree.node(1, "", 4096, 100);
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
        tree.write("sys/devices/system/node/node1/access1/initiators/read_latency", "350");
        let found = tiers(tree.root());
        assert_eq!(found.status, Status::Ok);
        assert_eq!(
            found.found,
            "fast: node 0 (2.0 GiB, tier 4); slow: node 1 (4.0 GiB, tier 4, 350 ns, no CPUs)"
        );
        assert_eq!(tiers(Tree::new().root()).status, Status::Absent);
    }

    #[test]
    fn a_conflict_comes_with_its_remedy() {
        let tree = Tree::new();
        assert_eq!(conflicts(tree.root()).status, Status::Ok);
        tree.write("proc/sys/kernel/numa_balancing", "1");
        let found = conflicts(tree.root());
        assert_eq!(found.status, Status::Warn);
        assert_eq!(found.found, "numa_balancing is 1");
        let remedy = found.first_remedy().unwrap();
        assert!(remedy.ends_with("sh -c 'sysctl kernel.numa_balancing=0'"), "{remedy}");
    }
}
