//! Reads the workspace's own sources, for the tests that hold them to their rules.
#![allow(dead_code)]

pub mod arrows;
pub mod circles;
pub mod module_tree;
pub mod workspace;
