//! A client and a server that take each other's certificates.

use std::sync::LazyLock;

use spillway_tls::making::{Wish, make};
use spillway_tls::{ClientSide, ServerSide};

pub static SIDES: LazyLock<(ClientSide, ServerSide)> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("spillway-tls-exercise-{}", std::process::id()));
    let wish = Wish { hosts: vec!["host".into()], client: "client".into(), from_days: 0, until_days: 9 };
    make(&directory, &wish).unwrap();
    let sides = (ClientSide::load(&directory).unwrap(), ServerSide::load(&directory).unwrap());
    std::fs::remove_dir_all(&directory).unwrap();
    sides
});
