//! The kernel ABI that Spillway stands on, behind safe types: memory files and mappings, userfaultfd,
//! page-map scans, raw threads. The one crate where `unsafe` is at home; no policy here.
#![allow(unsafe_code)]

pub mod machine;
pub mod shared_memory;
pub mod uffd;
