//! An NBD client that says exactly what it is told to, and a few well-formed messages.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use spillway_nbd::handshake::{
    self as hs, ClientOption, ExportFlags, InfoQuery, MetaQuery, OptionReply, REPLY_HEADER_BYTES,
};
use spillway_nbd::private::{Claim, PrivateQuery, parse_challenge};
use spillway_nbd::proof::{Nonce, Purpose, RunKey};
use spillway_nbd::transmission::{Command, ReplyHead, Request, RequestFlags, chunk, decode_error};

/// A connection; reads and writes fail after 30 s.
pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Connects, and greets the server.
    pub fn greeted(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address);
        let flags = hs::decode_greeting(&raw.array()).unwrap();
        raw.0.write_all(&flags.bits().to_be_bytes()).unwrap();
        raw
    }

    /// Connects, and opens an export.
    pub fn opened(address: SocketAddr, export: &str, structured: bool) -> Self {
        let mut raw = Self::greeted(address);
        if structured {
            raw.option(&ClientOption::StructuredReply);
            let meta = MetaQuery { name: export, queries: vec![hs::BASE_ALLOCATION] };
            raw.option(&ClientOption::SetMetaContext(meta));
        }
        raw.option(&ClientOption::Go(InfoQuery { name: export, kinds: vec![] }));
        raw
    }

    /// Connects, and asks for what a run of this key may do, with a proof of `signer`'s; its answer.
    pub fn claimed(address: SocketAddr, export: &str, purpose: Purpose, signer: &RunKey) -> (Self, String) {
        let mut raw = Self::greeted(address);
        raw.option(&ClientOption::StructuredReply);
        let nonce = raw.challenge(export);
        let claim = PrivateQuery::Claim(Claim::new(signer, nonce, purpose, export)).text();
        let context = raw.context(export, &claim);
        (raw, if context == claim { "yes".to_owned() } else { context })
    }

    /// What the donor gives to sign.
    pub fn challenge(&mut self, export: &str) -> Nonce {
        parse_challenge(&self.context(export, "spillway:challenge")).unwrap()
    }

    /// The one context that a query is answered with.
    pub fn context(&mut self, export: &str, query: &str) -> String {
        let meta = MetaQuery { name: export, queries: vec![query] };
        let mut bytes = Vec::new();
        hs::put_option(&mut bytes, &ClientOption::SetMetaContext(meta));
        self.say(&bytes);
        let mut context = None;
        loop {
            let header = hs::decode_reply_header(&self.array::<REPLY_HEADER_BYTES>()).unwrap();
            let data = self.bytes(header.data_bytes as usize);
            match hs::decode_reply(header, &data).unwrap() {
                OptionReply::MetaContext { name, .. } => context = Some(name.to_owned()),
                OptionReply::Ack => return context.unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Opens the export that was agreed on; the replies.
    pub fn go(&mut self, export: &str) -> Vec<String> {
        self.option(&ClientOption::Go(InfoQuery { name: export, kinds: vec![] }))
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends an option; its replies as text, up to the last.
    pub fn option(&mut self, option: &ClientOption<'_>) -> Vec<String> {
        let mut bytes = Vec::new();
        hs::put_option(&mut bytes, option);
        self.say(&bytes);
        self.replies()
    }

    pub fn replies(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let header = hs::decode_reply_header(&self.array::<REPLY_HEADER_BYTES>()).unwrap();
            let data = self.bytes(header.data_bytes as usize);
            let reply = hs::decode_reply(header, &data).unwrap();
            all.push(format!("{reply:?}"));
            if matches!(reply, OptionReply::Ack | OptionReply::Error { .. }) {
                return all;
            }
        }
    }

    pub fn request(&mut self, command: Command, offset: u64, length: u32, data: &[u8]) -> u64 {
        self.request_with(RequestFlags::empty(), command, offset, length, data)
    }

    pub fn request_with(
        &mut self,
        flags: RequestFlags,
        command: Command,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> u64 {
        let cookie = 0x1234_5678_0000_0000 | offset;
        let mut bytes = Request { flags, command, cookie, offset, length }.encode().to_vec();
        bytes.extend(data);
        self.say(&bytes);
        cookie
    }

    /// The head of the next reply.
    pub fn head(&mut self) -> ReplyHead {
        let mut bytes = Vec::new();
        loop {
            bytes.extend(self.array::<1>());
            if let Some(head) = ReplyHead::decode(&bytes).unwrap() {
                return head;
            }
        }
    }

    /// The error number of a simple reply.
    pub fn simple(&mut self) -> u32 {
        match self.head() {
            ReplyHead::Simple { error, .. } => error,
            other => panic!("not a simple reply: {other:?}"),
        }
    }

    /// Writes; the error number.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.request(Command::Write, offset, data.len() as u32, data);
        self.simple()
    }

    /// Reads; with structured replies only what has no hole in it.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.request(Command::Read, offset, length, &[]);
        match self.head() {
            ReplyHead::Simple { error: 0, .. } => Ok(self.bytes(length as usize)),
            ReplyHead::Simple { error, .. } => Err(error),
            ReplyHead::Chunk { kind, payload_bytes, .. } => {
                let payload = self.bytes(payload_bytes as usize);
                match kind {
                    chunk::OFFSET_DATA => Ok(payload[8..].to_vec()),
                    _ => Err(decode_error(&payload).unwrap().0),
                }
            }
        }
    }

    /// Whether the server hangs up, without a further byte, within 30 s.
    pub fn is_hung_up_on(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Whether an option was refused with this error.
pub fn error_of(replies: &[String], kind: u32) -> bool {
    replies.len() == 1 && replies[0].starts_with(&format!("Error {{ kind: {kind},"))
}

/// What the exports of a donor can do.
pub fn export_flags() -> ExportFlags {
    ExportFlags::HAS_FLAGS
        | ExportFlags::SEND_FLUSH
        | ExportFlags::SEND_FUA
        | ExportFlags::SEND_TRIM
        | ExportFlags::SEND_WRITE_ZEROES
        | ExportFlags::SEND_DF
        | ExportFlags::SEND_CACHE
        | ExportFlags::CAN_MULTI_CONN
}
