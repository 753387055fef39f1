//! Requests and replies byte by byte, and connections that end when the test says.

use crate::common::PATIENCE;
use crate::server::Server;
use std::io::{Read, Write};
use std::net::TcpStream;

pub fn connect(server: &Server, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    stream
}

/// What comes until the server closes the connection.
pub fn rest(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("the server closes the connection");
    String::from_utf8(reply).expect("a reply of text")
}

pub fn exchange(server: &Server, request: &str) -> String {
    rest(&mut connect(server, request))
}
