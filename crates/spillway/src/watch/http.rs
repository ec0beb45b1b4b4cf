//! What is told by HTTP: `GET` of a few paths and nothing else, one request a connection. A page of another
//! site that a browser on this machine shows may send requests here too; its host is another, and so it is
//! refused.

use std::net::IpAddr;
use std::sync::Arc;

use httparse::{EMPTY_HEADER, Request, Status};
use spillway_snapshot::server::Reply;

/// What OpenMetrics text is called.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const MOST_HEADERS: usize = 32;

/// What a path leads to.
pub struct Content {
    /// What it is, as HTTP names it.
    pub kind: &'static str,
    /// What it says, whole.
    pub body: String,
}

/// Answers what has been received so far. `hosts` are names by which this machine may be called, besides
/// addresses and `localhost`; `paths` are all that there are, and `content` is asked for one of them only.
pub fn answer(
    received: &[u8],
    is_full: bool,
    hosts: &[String],
    paths: &[&str],
    content: impl FnOnce(&str) -> Content,
) -> Reply {
    let refusal = |status: &str| refusal(status, paths);
    let mut headers = [EMPTY_HEADER; MOST_HEADERS];
    let mut request = Request::new(&mut headers);
    match request.parse(received) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) if is_full => return refusal("431 Request Header Fields Too Large"),
        Ok(Status::Partial) => return Reply::More,
        Err(httparse::Error::TooManyHeaders) => return refusal("431 Request Header Fields Too Large"),
        Err(_) => return refusal("400 Bad Request"),
    }
    let mut named = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = named.next().map_or("", |header| str::from_utf8(header.value).unwrap_or("\u{0}"));
    if named.next().is_some() {
        return refusal("400 Bad Request");
    }
    if !is_ours(host, hosts) {
        return refusal("421 Misdirected Request");
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    match request.method {
        Some("GET") if paths.contains(&path) => {
            let Content { kind, body } = content(path);
            respond("200 OK", kind, &body)
        }
        Some("GET") => refusal("404 Not Found"),
        _ => refusal("405 Method Not Allowed"),
    }
}

/// Whether a `Host` calls this machine by an address, or by a name that it is known by here. A name of
/// another site may lead to this address too.
fn is_ours(host: &str, names: &[String]) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let name = without_port.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    name.is_empty() || name == "localhost" || names.contains(&name) || name.parse::<IpAddr>().is_ok()
}

fn refusal(status: &str, paths: &[&str]) -> Reply {
    let paths = paths.join(" or ");
    respond(status, "text/plain; charset=utf-8", &format!("{status}: ask for GET {paths}\n"))
}

fn respond(status: &str, content: &str, body: &str) -> Reply {
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let length = body.len();
    Reply::Answer(Arc::new(
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
             connect-src 'self'; img-src data:; frame-ancestors 'none'\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str, is_full: bool) -> String {
        let names = ["machine.example".to_owned()];
        let content = |_: &str| Content { kind: OPEN_METRICS, body: "metrics".to_owned() };
        match answer(request.as_bytes(), is_full, &names, &["/metrics"], content) {
            Reply::More => "more".to_owned(),
            Reply::Answer(answer) => {
                let answer = String::from_utf8_lossy(&answer).into_owned();
                answer.split(' ').nth(1).unwrap_or_default().to_owned()
            }
        }
    }

    #[test]
    fn only_metrics_are_told_and_only_to_who_calls_this_machine_by_its_name() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9100\r\n\r\n", "200"),
            ("GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: [::1]:9100\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: Machine.Example:80\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost.evil.example:9100\r\n\r\n", "421"),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            ("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            ("\u{1}\u{2}\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\nHost: local", "more"),
            ("", "more"),
        ] {
            assert_eq!(status(request, false), expected, "{request:?}");
        }
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: local", true), "431");
        let many = "A: b\r\n".repeat(MOST_HEADERS + 1);
        assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"), false), "431");
    }
}
