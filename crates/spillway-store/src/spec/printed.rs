//! Store URIs as they are printed.

use std::fmt;

use super::query::{Query, encode, encode_path};
use super::{StoreSpec, Transport};

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compressed { size } => {
                f.write_str("compressed:")?;
                Query::default().size(f, *size)
            }
            Self::Ram { size, fabric } => {
                f.write_str("ram:")?;
                let mut query = Query::default();
                query.size(f, *size)?;
                query.fabric(f, *fabric)
            }
            Self::File { path, size } => {
                write!(f, "file:{}", encode_path(path))?;
                Query::default().size(f, Some(*size))
            }
            Self::Nbd { host, port, export, size, patience, claim, transport } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                let scheme = if matches!(transport, Transport::Tls(_)) { "nbds" } else { "nbd" };
                write!(f, "{scheme}://{open}{host}{close}:{port}/{}", encode(export))?;
                let mut query = Query::default();
                query.size(f, *size)?;
                query.patience(f, patience)?;
                query.claim(f, *claim)?;
                transport.put(f, &mut query)
            }
            Self::NbdUnix { socket, export, size, patience, claim } => {
                write!(f, "nbd+unix:///{}", encode(export))?;
                let mut query = Query::default();
                query.put(f, "socket", encode_path(socket))?;
                query.size(f, *size)?;
                query.patience(f, patience)?;
                query.claim(f, *claim)
            }
            Self::Pool(pool) => pool.fmt(f),
            Self::Shm { name, size, patience, fabric } => {
                write!(f, "shm:{}", encode(name))?;
                let mut query = Query::default();
                query.size(f, *size)?;
                query.patience(f, patience)?;
                query.fabric(f, *fabric)
            }
        }
    }
}
