//! HTTP as a client writes and reads it, one request a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::PATIENCE;

pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| &value[..])
    }
}

pub fn send(address: SocketAddr, headers: &[(&str, String)]) -> TcpStream {
    let mut request = String::from("POST /events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.extend([name, ": ", value, "\r\n"]);
    }
    request.push_str("content-length: 0\r\n\r\n");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    stream
}

/// The reply; an error if it breaks off.
pub fn read(stream: &mut TcpStream) -> io::Result<Reply> {
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(broken)?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let reply = Reply { status, headers, body: bytes.split_off(end + 4) };
    let promised = reply.header("content-length").and_then(|len| len.parse().ok());
    if promised.is_some_and(|promised: usize| promised > reply.body.len()) {
        Err(broken())
    } else {
        Ok(reply)
    }
}
