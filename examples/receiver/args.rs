//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::paths::beside;

pub const HELP: &str = "\
A webhook receiver that handles each event once.

USAGE
    receiver                             run the demo: deliver a file of events to a receiver
                                         process, kill it in the middle, count what was done
    receiver --listen ADDR --data DIR    receive for real

OPTIONS
    --listen ADDR     address and port to listen on [default: 127.0.0.1:3000]; port 0 picks a free one
    --data DIR        directory of the dedupe store [default: ./dedupe]
    --effects FILE    where the handler writes what it did [default: DIR with .effects.jsonl added]
    --rehearse        let the handler fail, hang and take its time as the demo's deliveries ask,
                      and stop when standard input ends
    -h, --help        this text

ENVIRONMENT
    WEBHOOK_SECRET    the signing secret that the senders have too: whsec_ and the base64 of 24 to
                      64 random bytes; needed to receive

ENDPOINTS
    POST /webhooks/payments, /webhooks/subscriptions, /webhooks/repository

    200  done now, done before, or older than what was applied
    400  unreadable; 401 not trusted; 413 too large; 422 the same id with another payload
    409  in progress, with Retry-After
    500  the handler failed; 503 the store can't answer: send it again
";

#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Help,
    Demo,
    Serve(Serve),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Serve {
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub effects: PathBuf,
    pub rehearse: bool,
}

/// Reads the arguments after the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut listen, mut data, mut effects, mut rehearse) = (None, None, None, false);
    let mut any = false;
    while let Some(argument) = parser.next()? {
        any = true;
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Long("listen") => {
                let value = parser.value()?.string()?;
                let address = value.parse::<SocketAddr>().map_err(|_| {
                    format!("--listen takes an address such as 127.0.0.1:3000, not {value:?}")
                })?;
                listen = Some(address);
            }
            Long("data") => data = Some(PathBuf::from(parser.value()?)),
            Long("effects") => effects = Some(PathBuf::from(parser.value()?)),
            Long("rehearse") => rehearse = true,
            other => return Err(other.unexpected()),
        }
    }
    if !any {
        return Ok(Command::Demo);
    }
    let data = data.unwrap_or_else(|| PathBuf::from("./dedupe"));
    let effects = effects.unwrap_or_else(|| beside(&data, ".effects.jsonl"));
    let listen = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 3000)));
    Ok(Command::Serve(Serve { listen, data, effects, rehearse }))
}
