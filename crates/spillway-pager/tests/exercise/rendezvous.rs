//! What a supervisor must stand from a process of its run, and a process from who is in its supervisor's
//! place: no message makes its reader panic or wait, and one that was understood means the same when it is
//! said again. Shared by the property test (`rendezvous.rs`) and the fuzz target
//! (`fuzz/fuzz_targets/rendezvous.rs`).

use std::fmt::Debug;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_core::size::Size;
use spillway_pager::run::rendezvous::{self, FromProcess, Hello, Question, Welcome};
use spillway_pager::run::settings::Settings;
use spillway_pager::run::state::Child;
use spillway_pager::run::told_uses::{Answer, Asker};

/// Where a range begins of which a process asks, and how many pages it has.
const ASKED: (u64, usize) = (1 << 20, 130);
/// More descriptors than may come with a message are a handful here.
const MOST_DESCRIPTORS: usize = 4;

/// Feeds `data` to every reader of messages: as it is, and as changes to sound ones.
pub fn exercise(data: &[u8]) {
    let (first, edits) = data.split_first().unwrap_or((&0, &[]));
    let descriptors = usize::from(*first) % (MOST_DESCRIPTORS + 1);
    let told = r#"{"number":1,"told":{"Uses":{"mapped":[3,18446744073709551615],"accessed":[1,0,7]}}}"#;
    let messages = [data.to_vec(), edited(&hello(), edits), edited(&welcome(), edits)];
    let questions = [
        FromProcess::Ready,
        FromProcess::WhichUsed(Question { number: 1, first_page: 2, pages: 3 }),
        FromProcess::Connected(u64::MAX),
        FromProcess::Disconnected(0),
    ];
    let questions = questions.iter().map(|question| edited(&json(question), edits));
    for message in messages.into_iter().chain(questions) {
        heard::<Hello>(&message, descriptors);
        heard::<Welcome>(&message, descriptors);
        heard::<FromProcess>(&message, descriptors);
    }
    for message in [data.to_vec(), edited(told.as_bytes(), edits)] {
        heard::<Answer>(&message, descriptors);
        answered(&message);
    }
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("a message of our own")
}

fn hello() -> Vec<u8> {
    json(&Hello { token: "t".into(), forked: Some(Child { entry: 3, claim: 9 }), build: "b".into() })
}

fn welcome() -> Vec<u8> {
    let settings = Settings {
        local_bytes: Size::from_bytes(4 << 20),
        stores: vec!["compressed:".to_owned()],
        store_slots: vec![1 << 20],
        block: Default::default(),
        fault_mode: Default::default(),
        fault_mode_reason: String::new(),
        replacement: Default::default(),
        pool: Default::default(),
        fetch: Default::default(),
        seal: Default::default(),
    };
    json(&Welcome {
        build: "b".to_owned(),
        entry: 1,
        settings,
        store_has_fds: vec![[true, false]],
        has_device: true,
        has_trace_ring: false,
        has_tape_log: false,
        has_tape: false,
        refusal: Some("no".to_owned()),
    })
}

/// The text with some of it replaced: each three bytes of `edits` say where, how much, and by what.
fn edited(text: &[u8], edits: &[u8]) -> Vec<u8> {
    const WORDS: [&str; 10] =
        ["", "null", "-1", "18446744073709551615", "1e308", "0.1", "[]", "{}", "\"\\u001b\"", ","];
    let mut text = text.to_vec();
    for &[at, dropped, put] in edits.as_chunks::<3>().0 {
        // Most messages are short, and a welcome some hundred bytes.
        let at = (usize::from(at) * 5).min(usize::from(at) + text.len() / 2) % (text.len() + 1);
        let end = (at + usize::from(dropped % 24)).min(text.len());
        let letter = [put];
        let word = WORDS.get(usize::from(put)).map_or(&letter[..], |word| word.as_bytes());
        text.splice(at..end, word.iter().copied());
    }
    text
}

/// A connection on which this was said, with so many descriptors, by who has hung up.
fn said(message: &[u8], descriptors: usize) -> OwnedFd {
    let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair().expect("two sockets");
    let fds: Vec<BorrowedFd<'_>> = vec![theirs.as_fd(); descriptors];
    if fds.is_empty() {
        assert_eq!(send(&theirs, message, SendFlags::NOSIGNAL), Ok(message.len()));
    } else {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = sendmsg(&theirs, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(message.len()));
    }
    ours
}

fn heard<M: Serialize + DeserializeOwned + Debug>(message: &[u8], descriptors: usize) {
    let Ok(Some((heard, fds))) = rendezvous::receive::<M>(said(message, descriptors)) else { return };
    assert_eq!(fds.len(), descriptors);
    let text = json(&heard);
    let again = rendezvous::receive::<M>(said(&text, 0)).expect("a message of our own").expect("a message");
    assert_eq!(json(&again.0), text, "{heard:?}");
}

/// What a process makes of an answer to its question: it hears of the pages alone of which it asked.
fn answered(message: &[u8]) {
    let (first, pages) = ASKED;
    let supervisor = said(message, 0);
    let mut last = None;
    Asker::default().ask(supervisor.as_fd(), first, pages, &mut |page, _| {
        assert!(
            (first..first + pages as u64).contains(&page) && last.is_none_or(|last| last < page),
            "{page}"
        );
        last = Some(page);
    });
}
