//! The kernel ABI that Spillway stands on, behind safe types: memory files and mappings, userfaultfd,
//! page-map scans, raw threads, samples of what CPUs do. The one crate where `unsafe` is at home; no policy here.
#![allow(unsafe_code)]

pub mod arena;
pub mod btf;
pub mod code_patch;
pub mod dispatch;
pub mod kernel_memory;
pub mod machine;
pub mod mapping;
pub mod maps;
pub mod memory;
pub mod migration;
pub mod node_speed;
pub mod page_tables;
pub mod process;
pub mod raw;
pub mod raw_thread;
pub mod ring;
pub mod sampling;
pub mod shared_memory;
pub mod signal;
pub mod uffd;
