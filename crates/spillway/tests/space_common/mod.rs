//! Donors in network namespaces of their own, a program that checks every byte, and what befalls them:
//! - [`net`]: the namespaces, and links between them that lose packets or are cut one way;
//! - [`work`]: programs that check what they read;
//! - [`world`]: donors, etcd and a run on them;
//! - [`harm`]: what befalls the donors, and what must be so after it;
//! - [`story`]: one after the other, by a seed.
#![allow(dead_code, reason = "each test target uses its own part")]

pub mod harm;
pub mod net;
pub mod story;
pub mod work;
pub mod world;
