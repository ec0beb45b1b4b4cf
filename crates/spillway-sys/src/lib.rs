//! The kernel ABI that Spillway stands on, behind safe types: memory files and mappings, userfaultfd,
//! page-map scans, raw threads, samples of what CPUs do and of what memory is accessed. The one crate where
//! `unsafe` is at home; no policy here.
#![allow(unsafe_code)]

pub mod access_events;
pub mod accesses;
pub mod arena;
pub mod at_rest;
mod bpf;
pub mod btf;
pub mod call_stubs;
pub mod cancellable;
pub mod code_patch;
pub mod dispatch;
pub mod error_text;
pub mod kernel_memory;
pub mod machine;
pub mod mapping;
pub mod maps;
pub mod mark_events;
pub mod memory;
pub mod memory_policy;
pub mod migration;
pub mod node_speed;
pub mod nodes;
pub mod objects;
pub mod own_copy;
pub mod own_memory;
pub mod page;
pub mod page_pipe;
pub mod page_tables;
mod perf;
pub mod process;
mod process_filter;
pub mod ranges;
pub mod raw;
pub mod raw_thread;
pub mod ring;
pub mod sampling;
pub mod sealed_memory;
pub mod shared_memory;
pub mod signal;
pub mod socket;
pub mod uffd;
