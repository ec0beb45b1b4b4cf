//! Takes the terminal, shows what is seen, and gives the terminal back: at the end, on a signal, on a panic.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::signal as signals;
use spillway_snapshot::reader::{self, Seen};
use spillway_sys::process;

use crate::top::app::App;
use crate::top::palette::Palette;

/// A signal or a look is noticed within this time.
const NOTICE: Duration = Duration::from_millis(100);

/// Watches until a key or a signal ends it. The terminal is as it was then.
///
/// # Errors
/// The terminal cannot be had, or is gone.
pub fn watch(interval: Duration) -> io::Result<ExitCode> {
    let signal = Arc::new(AtomicUsize::new(0));
    for ending in [signals::SIGTERM, signals::SIGINT, signals::SIGHUP, signals::SIGQUIT] {
        signal_hook::flag::register_usize(ending, signal.clone(), ending as usize)?;
    }
    let (looks, _end) = begin_to_look(interval);
    // On a panic the terminal is restored before the message is printed.
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let watched = show(&mut terminal, &looks, &signal, interval);
    ratatui::restore();
    watched?;
    match signal.load(Ordering::Acquire) {
        0 => {}
        ending => process::end_by_signal(ending as i32),
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks from a thread of its own, so that one that does not answer keeps no key waiting. Looking ends when
/// the sender is dropped.
fn begin_to_look(interval: Duration) -> (Receiver<Vec<Seen>>, SyncSender<()>) {
    let (sender, receiver) = sync_channel(1);
    let (end, ended) = sync_channel::<()>(1);
    std::thread::spawn(move || {
        while sender.send(reader::look()).is_ok() {
            if !matches!(ended.recv_timeout(interval), Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
    });
    (receiver, end)
}

fn show(
    terminal: &mut DefaultTerminal,
    looks: &Receiver<Vec<Seen>>,
    signal: &AtomicUsize,
    interval: Duration,
) -> io::Result<()> {
    let mut app = App::new(Palette::of_environment(), interval.as_secs_f64());
    // The first look takes some milliseconds.
    if let Ok(seen) = looks.recv_timeout(NOTICE) {
        app.take(seen);
    }
    terminal.draw(|frame| app.draw(frame))?;
    while signal.load(Ordering::Acquire) == 0 {
        let mut has_changed = false;
        if event::poll(NOTICE)? {
            match event::read()? {
                Event::Key(key) if !app.press(key) => return Ok(()),
                _ => has_changed = true,
            }
        }
        for seen in looks.try_iter() {
            app.take(seen);
            has_changed = true;
        }
        if has_changed {
            terminal.draw(|frame| app.draw(frame))?;
        }
    }
    Ok(())
}
