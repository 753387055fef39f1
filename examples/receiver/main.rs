//! A webhook receiver with `OnceDB` in it, and a sender that treats it badly.
//!
//! ```text
//! cargo run --release --example receiver
//! WEBHOOK_SECRET=whsec_... cargo run --release --example receiver -- --listen 127.0.0.1:3000 --data ./dedupe
//! ```
//!
//! Without options this process is the sender. It starts the receiver as a second process on a free
//! loopback port and delivers `deliveries.jsonl` to it over HTTP: with retries after lost answers,
//! copies at the same instant, older events after newer ones, a handler that fails the first time,
//! and a SIGKILL in the middle. Then it compares what was done with what should have been done.
//! With `--listen` or `--data` it is the receiver, for real.
//!
//! # Signatures
//!
//! Senders and receiver follow Standard Webhooks (<https://www.standardwebhooks.com>). A signature
//! covers the id, the time of sending and the body, and a receiver refuses one that is more than
//! five minutes old, so that a recorded request is of no use later. This receiver does so too,
//! always, with the `standardwebhooks` crate as it is. The signatures in the file are of fixed
//! times and thus too old by now. The sender checks each against its payload when it reads the
//! file; then it does what a sender does at every attempt: it signs the same id and the same body
//! again with the time of this attempt. One delivery is sent with its recorded signature, and is
//! refused.
//!
//! # What "handled" means
//!
//! The handler's work is an effect outside the store: a line in a file that is synced, where a real
//! receiver would move money or send mail. So an effect is there or not whatever happens to the
//! process, and at the end the lines can be counted.
//!
//! Where to look first: `receive.rs` turns verdicts into HTTP answers, `work.rs` acts once even if
//! the process dies between the act and its completion.

mod answer;
mod args;
mod client;
mod deliveries;
mod effects;
mod event;
#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/paths.rs"]
mod paths;
mod process;
mod receive;
mod rehearsal;
mod report;
mod sender;
mod server;
mod work;

use std::process::ExitCode;

/// An error with its sentence; nothing here needs to tell one kind from another.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The variable that holds the signing secret of the receiver.
const SECRET_VARIABLE: &str = "WEBHOOK_SECRET";

/// The secret of the made-up senders; it signs nothing but `deliveries.jsonl`.
const DEMO_SECRET: &str = "whsec_b25jZWRiLWRlbW8tc2VjcmV0LWZvci10aGUtZXhhbXBsZQ==";

fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Command::Help) => {
            print!("{}", args::HELP);
            Ok(true)
        }
        Ok(args::Command::Demo) => sender::run(),
        Ok(args::Command::Serve(options)) => server::serve(&options).map(|()| true),
        Err(problem) => {
            eprintln!("receiver: {problem}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("receiver: {error}");
            ExitCode::FAILURE
        }
    }
}
