//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::paths::beside;

pub const HELP: &str = "\
A consumer of JSON lines that handles each event once.

USAGE
    consumer                             run the demo: consume a partition in a process that is
                                         killed again and again, rewind it, count what was done
    consumer FILE --data DIR             consume a file from the offset that was committed last
    consumer - --data DIR                consume standard input

OPTIONS
    --data DIR        directory of the dedupe store [default: ./dedupe]
    --effects FILE    where the work is done: a line an effect [default: DIR with .effects.jsonl added]
    --from-start      consume FILE from its first line, whatever was committed
    --batch N         at most so many lines share a sync, 1 to 10000 [default: 500]
    --claim-first     claim before the work: an event may be lost with the process, but there is one
                      sync a batch less
    --commits         print a line a commit
    -h, --help        this text

A line is an object with an id and an amount: {\"id\":\"evt_1\",\"amount\":1200}. One that cannot be read
is told of on standard error and passed over.
";

/// More would hold up the first event of a batch for too long.
const MOST_IN_A_BATCH: usize = 10_000;

#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Help,
    Demo,
    Consume(Consume),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Consume {
    /// `None` for standard input.
    pub file: Option<PathBuf>,
    pub data: PathBuf,
    pub effects: PathBuf,
    pub offsets: PathBuf,
    pub from_start: bool,
    pub batch: usize,
    pub claim_first: bool,
    pub commits: bool,
}

/// Reads the arguments after the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut source, mut data, mut effects) = (None, None, None);
    let (mut batch, mut from_start, mut claim_first, mut commits) = (500, false, false, false);
    let mut any = false;
    while let Some(argument) = parser.next()? {
        any = true;
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Long("data") => data = Some(PathBuf::from(parser.value()?)),
            Long("effects") => effects = Some(PathBuf::from(parser.value()?)),
            Long("from-start") => from_start = true,
            Long("batch") => {
                batch = parser.value()?.parse()?;
                if !(1..=MOST_IN_A_BATCH).contains(&batch) {
                    return Err(format!("--batch takes a number from 1 to {MOST_IN_A_BATCH}").into());
                }
            }
            Long("claim-first") => claim_first = true,
            Long("commits") => commits = true,
            Value(name) if source.is_none() => source = Some(name),
            other => return Err(other.unexpected()),
        }
    }
    if !any {
        return Ok(Command::Demo);
    }
    let source = source.ok_or("which file? (- for standard input)")?;
    let data = data.unwrap_or_else(|| PathBuf::from("./dedupe"));
    let file = (source != "-").then(|| PathBuf::from(source));
    if file.is_none() && from_start {
        return Err("--from-start needs a file: a pipe cannot be read again".into());
    }
    Ok(Command::Consume(Consume {
        file,
        effects: effects.unwrap_or_else(|| beside(&data, ".effects.jsonl")),
        offsets: beside(&data, ".offset"),
        data,
        from_start,
        batch,
        claim_first,
        commits,
    }))
}
