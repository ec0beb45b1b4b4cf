//! The commands on newcomers' pages that take longer or need each other (pages.rs says which), on this
//! machine. scripts/try-package runs those that the package serves on a clean Debian root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;
mod support;

use pages_common::{Shown, expect_shape, newcomers_commands, on_a_terminal, shape, typed};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, free_port};

const PYTHON: &str = "python3 -c 'x = [str(i) for i in range(3000000)]; print(len(x), x[-1])'";

fn shown(command: &str) -> Shown {
    newcomers_commands().into_iter().find(|shown| shown.command == command).expect("it is on a page")
}

#[test]
fn a_donor_and_a_run_that_uses_it_print_what_the_page_shows() {
    // The page's port may be somebody's here.
    let port = free_port().to_string();
    let elsewhere = |shown: &Shown| Shown {
        command: shown.command.replace("10809", &port),
        output: shown.output.iter().map(|line| line.replace("10809", &port)).collect(),
    };
    let lending = elsewhere(&shown("spillway donor --memory 1G --listen 127.0.0.1:10809"));
    let mut donor = Running::start(&mut typed(&format!("exec {}", lending.command)));
    donor.expect("\n");
    expect_shape(&lending, &donor.text());
    let using =
        elsewhere(&shown(&format!("spillway run --local 64M --store nbd://127.0.0.1:10809/ {PYTHON}")));
    expect_shape(&using, &on_a_terminal(&using.command));
    donor.signal(Signal::INT);
    let finished = donor.finish(PATIENCE);
    assert!(finished.success().contains("ended: "), "{}", finished.text());
}

#[test]
fn a_command_is_compared_with_all_memory_and_with_zram() {
    let command = shown(&format!("sudo spillway bench command --local 64M {PYTHON}")).command;
    let printed = on_a_terminal(command.trim_start_matches("sudo "));
    for words in ["zram", "Spillway"] {
        assert!(printed.contains(words), "no {words} in {printed}");
    }
    assert!(shape(&printed).contains('N'));
}
