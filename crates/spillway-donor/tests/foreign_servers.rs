//! The client store on NBD servers that are not ours: nbdkit and nbd-server, from Debian's packages.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use spillway_store::testing::{check_store, open_store, pages, read, write};
use spillway_store::{StoreError, StoreSpec};

/// A process that ends with the value.
struct Server(Child);

impl Server {
    fn start(program: &str, package: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        // nbdkit reports every failure that it is told to inject.
        let child =
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(
            child.unwrap_or_else(|error| panic!("{program}: {error}; install it: apt-get install {package}")),
        )
    }

    fn nbdkit(arguments: &[&str]) -> Self {
        Self::start("nbdkit", "nbdkit", &[&["--foreground"], arguments].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that goes into the background; ends with the value.
struct Daemon(std::path::PathBuf);

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

fn await_file(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < deadline, "no {} in 20 s", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn await_port(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    // Only a greeting shows that it is the server, and that it serves.
    let greets = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.read_exact(&mut [0; 18]).ok()
    };
    while greets().is_none() {
        assert!(Instant::now() < deadline, "nobody greets on port {port} in 20 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nbdkit_memory_by_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kit.sock");
    let path = socket.to_str().unwrap();
    let _server = Server::nbdkit(&["--unix", path, "memory", "16M"]);
    await_file(&socket);
    check_store(&format!("nbd+unix:///?socket={path}"));
}

#[test]
fn nbdkit_memory_by_tcp_without_newer_options() {
    let directory = tempfile::tempdir().unwrap();
    let (port, ready) = (free_port().to_string(), directory.path().join("pid"));
    // No structured replies, and neither TRIM nor several connections.
    let _server = Server::nbdkit(&[
        "--ipaddr",
        "127.0.0.1",
        "--port",
        &port,
        "--pidfile",
        ready.to_str().unwrap(),
        "--no-sr",
        "--filter=noextents",
        "--filter=nozero",
        "memory",
        "16M",
    ]);
    await_file(&ready);
    check_store(&format!("nbd://localhost:{port}/"));
}

#[test]
fn nbd_server_with_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("export");
    std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
    let config = directory.path().join("config");
    let port = free_port();
    let text = format!(
        "[generic]\nport = {port}\nlistenaddr = 127.0.0.1\nallowlist = true\n\
         [swap]\nexportname = {}\ntrim = true\nflush = true\n",
        file.display()
    );
    std::fs::File::create(&config).unwrap().write_all(text.as_bytes()).unwrap();
    let config = config.to_str().unwrap();
    let pid_file = directory.path().join("pid");
    let arguments = ["-C", config, "-p", pid_file.to_str().unwrap()];
    let mut starter = Server::start("nbd-server", "nbd-server", &arguments);
    let _server = Daemon(pid_file);
    assert!(starter.0.wait().unwrap().success());
    await_port(port);
    let uri = format!("nbd://127.0.0.1:{port}/swap");
    check_store(&uri);

    let error =
        format!("nbd://127.0.0.1:{port}/none").parse::<StoreSpec>().unwrap().prepare("t").unwrap_err();
    assert!(error.to_string().contains("refuses export 'none'"), "{error}");
}

#[test]
fn exports_that_cannot_hold_pages_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str], &str); 3] = [
        ("ro", &["--readonly", "memory", "1M"], "read-only"),
        ("small", &["memory", "1K"], "does not hold a page"),
        (
            "blocks",
            &[
                "--filter=blocksize-policy",
                "memory",
                "1M",
                "blocksize-minimum=8K",
                "blocksize-preferred=8K",
                "blocksize-maximum=1M",
            ],
            "no pages of 4096",
        ),
    ];
    for (name, arguments, reason) in cases {
        let socket = directory.path().join(name);
        let path = socket.to_str().unwrap().to_owned();
        let _server = Server::nbdkit(&[&["--unix", &path], arguments].concat());
        await_file(&socket);
        let spec: StoreSpec = format!("nbd+unix:///?socket={path}").parse().unwrap();
        let error = spec.prepare("t").unwrap_err();
        assert!(matches!(&error, StoreError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

/// A server that fails requests, now and then or for want of space, fails only those.
#[test]
fn errors_of_the_server_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let slots: Vec<u32> = (0..64).collect();
    for (name, errno, is_expected) in [
        ("full", "ENOSPC", (|error| matches!(error, StoreError::Full { .. })) as fn(&StoreError) -> bool),
        ("broken", "EIO", |error| matches!(error, StoreError::Io { .. })),
    ] {
        let socket = directory.path().join(name);
        let path = socket.to_str().unwrap().to_owned();
        let switch = directory.path().join(format!("{name}.on"));
        let filters = [
            "--unix",
            &path,
            "--filter=error",
            "memory",
            "16M",
            &format!("error={errno}"),
            "error-pwrite-rate=100%",
            &format!("error-pwrite-file={}", switch.display()),
        ];
        let _server = Server::nbdkit(&filters);
        await_file(&socket);
        let (_parts, store) = open_store(&format!("nbd+unix:///?socket={path}"));
        let mut lane = store.open_lane().unwrap();
        assert!(write(&mut *lane, &slots, &pages(64, 1)).iter().all(Result::is_ok));
        std::fs::File::create(&switch).unwrap();
        let outcomes = write(&mut *lane, &slots, &pages(64, 2));
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(is_expected)), "{:?}", outcomes[0]);
        std::fs::remove_file(&switch).unwrap();
        assert!(read(&mut *lane, &slots).iter().all(Result::is_ok));
        assert!(write(&mut *lane, &slots, &pages(64, 3)).iter().all(Result::is_ok));
    }
}
