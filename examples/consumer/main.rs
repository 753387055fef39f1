//! A consumer of a partition with `OnceDB` in it: a rewound offset does no work twice.
//!
//! ```text
//! cargo run --release --example consumer
//! cargo run --release --example consumer -- events.jsonl --data ./dedupe
//! tail -f events.jsonl | cargo run --release --example consumer -- - --data ./dedupe
//! ```
//!
//! A partition delivers its messages in order and at least once: a consumer that is started again
//! goes on from the offset that it committed last, which is behind what it has done. Here the
//! partition is a file of JSON lines, or a pipe, and the offset a file beside the store.
//!
//! Without arguments it writes a partition, consumes it in a process that is killed again and again
//! in the middle of its work, reads it once more from the first line, and counts what was done.
//!
//! Where to look first: `consume.rs`.

mod args;
mod consume;
mod effects;
mod event;
#[path = "../common/lines.rs"]
mod lines;
mod partition;
#[path = "../common/paths.rs"]
mod paths;
mod rehearsal;

use std::process::ExitCode;

/// An error with its sentence; nothing here needs to tell one kind from another.
type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Command::Help) => {
            print!("{}", args::HELP);
            Ok(true)
        }
        Ok(args::Command::Demo) => rehearsal::run(),
        Ok(args::Command::Consume(options)) => consume::run(&options).map(|()| true),
        Err(problem) => {
            eprintln!("consumer: {problem}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("consumer: {error}");
            ExitCode::FAILURE
        }
    }
}
