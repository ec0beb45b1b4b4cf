//! How fast the tiers are before anything of their load is known: what firmware says, else what a light probe
//! measures once.

use spillway_policy::machine::Tier;
use spillway_sys::node_speed;

use crate::link_load::Known;
use crate::nodes::{Nodes, Tiers};

/// Latency and bandwidth of a tier.
#[derive(Clone, Copy)]
struct Speed {
    latency_ns: f64,
    bytes_per_s: f64,
}

fn of_tier(nodes: &Nodes, tiers: &Tiers, tier: Tier) -> Option<Speed> {
    let node = *tiers.nodes(tier).0.first()?;
    let firmware = nodes.get(node).and_then(|node| {
        Some(Speed { latency_ns: node.read_latency_ns? as f64, bytes_per_s: node.read_bytes_per_s? as f64 })
    });
    firmware.or_else(|| {
        let measured = node_speed::measure(node).ok()?;
        Some(Speed { latency_ns: measured.latency_ns, bytes_per_s: measured.bytes_per_s })
    })
}

/// What is known of the way to the far tier. None where it cannot be measured.
#[must_use]
pub fn known(nodes: &Nodes, tiers: &Tiers) -> Option<Known> {
    let (local, far) = (of_tier(nodes, tiers, Tier::Local)?, of_tier(nodes, tiers, Tier::Far)?);
    Some(Known { local_ns: local.latency_ns, far_ns: far.latency_ns, bytes_per_s: far.bytes_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn firmware_is_believed() {
        let tree = Tree::new();
        for (node, cpus, latency_ns) in [(0, "0", "90"), (1, "", "340")] {
            tree.node(node, cpus, 1024, 1024);
            let initiators = format!("sys/devices/system/node/node{node}/access1/initiators");
            tree.write(&format!("{initiators}/read_latency"), latency_ns);
            tree.write(&format!("{initiators}/read_bandwidth"), "1000");
        }
        let nodes = Nodes::read(tree.root()).unwrap();
        let known = known(&nodes, &nodes.tiers(None, None).unwrap());
        assert_eq!(known, Some(Known { local_ns: 90.0, far_ns: 340.0, bytes_per_s: 1000.0 * 1048576.0 }));
    }

    #[test]
    fn a_node_that_cannot_be_measured_promises_nothing() {
        let tree = Tree::new();
        tree.node(0, "0", 1024, 1024);
        tree.node(900, "", 1024, 1024);
        let nodes = Nodes::read(tree.root()).unwrap();
        assert_eq!(known(&nodes, &nodes.tiers(None, None).unwrap()), None);
    }
}
