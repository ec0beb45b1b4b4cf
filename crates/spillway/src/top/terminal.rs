//! Takes the terminal, shows what is seen, and gives the terminal back: at the end, on a signal, on a panic.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::signal as signals;
use signal_hook::iterator::Signals;
use spillway_snapshot::heat::HeatMap;
use spillway_snapshot::reader::{self, Seen};
use spillway_snapshot::snapshot::Body;
use spillway_sys::process;

use crate::pool::Pools;
use crate::top::app::App;
use crate::top::palette::Palette;
use crate::top::rates::Key;

/// What was seen, and a map of the row that is shown in detail.
type LookTaken = (Vec<Seen>, Option<(Key, HeatMap)>);
/// The row of which a map is wanted.
type Wanted = Mutex<Option<Key>>;

/// A look is noticed within this time.
const NOTICE: Duration = Duration::from_millis(100);

/// Watches until a key or a signal ends it. The terminal is as it was then.
///
/// # Errors
/// The terminal cannot be had, or is gone.
pub fn watch(interval: Duration, pools: Pools) -> io::Result<ExitCode> {
    end_on_signals()?;
    let wanted = Arc::new(Mutex::new(None));
    let (looks, _end) = begin_to_look(interval, wanted.clone());
    // On a panic the terminal is restored before the message is printed.
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let watched = show(
        &mut terminal,
        &looks,
        &wanted,
        App::new(Palette::of_environment(), interval.as_secs_f64(), pools),
    );
    give_back();
    if terminal.show_cursor().is_err() {
        // Nobody is there any more. Its end would say so on a terminal that is gone, and panic for it.
        std::mem::forget(terminal);
    }
    watched.map(|()| ExitCode::SUCCESS)
}

/// Ends by a signal that comes, from a thread of its own: the other one may be waiting for the terminal.
fn end_on_signals() -> io::Result<()> {
    let mut received = Signals::new([signals::SIGTERM, signals::SIGINT, signals::SIGHUP, signals::SIGQUIT])?;
    std::thread::spawn(move || {
        if let Some(signal) = received.forever().next() {
            give_back();
            process::end_by_signal(signal);
        }
    });
    Ok(())
}

/// Makes the terminal what it was, if it is there.
fn give_back() {
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), Show);
}

/// Waits for a key; false where the terminal is gone. Who reads from such a terminal reads nothing for ever.
fn wait_for_key() -> io::Result<bool> {
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let notice = Timespec { tv_sec: 0, tv_nsec: NOTICE.subsec_nanos().into() };
    match poll(&mut polled, Some(&notice)) {
        Ok(_) | Err(Errno::INTR) => {
            Ok(!polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
        }
        Err(error) => Err(error.into()),
    }
}

/// Looks from a thread of its own, so that one that does not answer keeps no key waiting. Looking ends when
/// the sender is dropped.
fn begin_to_look(interval: Duration, wanted: Arc<Wanted>) -> (Receiver<LookTaken>, SyncSender<()>) {
    let (sender, receiver) = sync_channel(1);
    let (end, ended) = sync_channel::<()>(1);
    std::thread::spawn(move || {
        while sender.send(look(&wanted)).is_ok() {
            if !matches!(ended.recv_timeout(interval), Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
    });
    (receiver, end)
}

/// The map is asked for as long as it is shown, and no longer.
fn look(wanted: &Wanted) -> LookTaken {
    let seen = reader::look();
    let wanted = wanted.lock().map_or(None, |wanted| *wanted);
    let heat = wanted.and_then(|key| {
        let (seen, pid) = seen.iter().find_map(|seen| Some((seen, process_of(seen, key)?)))?;
        Some((key, reader::heat(seen, pid)?))
    });
    (seen, heat)
}

/// The process that a row is about: of a run its largest.
fn process_of(seen: &Seen, key: Key) -> Option<u32> {
    let snapshot = seen.answer.as_ref().ok()?;
    let Body::Run { run } = &snapshot.body else { return None };
    if (snapshot.uid, snapshot.pid) != (key.uid, key.supervisor_pid) {
        return None;
    }
    key.process_pid.or_else(|| run.processes.first()?.pid)
}

fn show(
    terminal: &mut DefaultTerminal,
    looks: &Receiver<LookTaken>,
    wanted: &Wanted,
    mut app: App,
) -> io::Result<()> {
    // The first look takes some milliseconds.
    if let Ok((seen, heat)) = looks.recv_timeout(NOTICE) {
        app.take(seen, heat);
    }
    terminal.draw(|frame| app.draw(frame))?;
    while wait_for_key()? {
        let mut has_changed = false;
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if !app.press(key) => return Ok(()),
                _ => has_changed = true,
            }
        }
        for (seen, heat) in looks.try_iter() {
            app.take(seen, heat);
            has_changed = true;
        }
        if let Ok(mut wanted) = wanted.lock() {
            *wanted = app.wanted();
        }
        if has_changed {
            terminal.draw(|frame| app.draw(frame))?;
        }
    }
    Ok(())
}
