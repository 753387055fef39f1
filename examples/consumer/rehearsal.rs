//! The demo: a partition, a consumer that is killed in the middle of its work, and the count.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::Failed;
use crate::consume::{COMMITTED, Tally};
use crate::effects;
use crate::event::Event;
use crate::paths::beside;

const LINES: usize = 40_000;
/// Every fifth line is a copy of one of the thousand before it.
const COPIES: usize = 5;
const REACH: usize = 1_000;
const KILLS: u32 = 6;
const A_LITTLE: Duration = Duration::from_millis(3);
/// Commits that a process is left alive for.
const COMMITS_A_LIFE: usize = 2;

/// Whether everything was done once.
pub fn run() -> Result<bool, Failed> {
    let place = tempfile::tempdir()?;
    let partition = place.path().join("partition.jsonl");
    let ids = write_partition(&partition)?;
    println!("a partition of {LINES} lines, {} events and {} copies", ids.len(), LINES - ids.len());

    let data = place.path().join("dedupe");
    for life in 1..=KILLS {
        let mut process = Process::start(&partition, &data, &[])?;
        let mut offset = String::new();
        for _ in 0..COMMITS_A_LIFE {
            offset = process.committed()?;
        }
        // Into the work after the commit, each time a little further.
        std::thread::sleep(A_LITTLE * life);
        process.child.kill()?;
        process.child.wait()?;
        println!("process {life}: killed in the middle of its work; the next goes on from byte {offset}");
    }
    let tally = Process::start(&partition, &data, &[])?.finish()?;
    println!(
        "process {}: to the end; {} done, {} found done by a process that died, {} copies",
        KILLS + 1,
        tally.done,
        tally.found_done,
        tally.duplicates
    );
    let rewound = Process::start(&partition, &data, &["--from-start"])?.finish()?;
    println!(
        "process {}: rewound to the first line; {} done, {} copies",
        KILLS + 2,
        rewound.done,
        rewound.duplicates
    );
    let piped = Process::start_piped(&partition, &data)?.finish()?;
    println!("process {}: from a pipe; {} done, {} copies", KILLS + 3, piped.done, piped.duplicates);
    let again = [rewound, piped].iter().all(|tally| tally.done + tally.found_done == 0);
    let once = are_done_once(&data, &ids)? && again;

    // Nobody kills this one: what it claims first would be lost with it.
    let data = place.path().join("claimed-first");
    let first = Process::start(&partition, &data, &["--claim-first"])?.finish()?;
    let again = Process::start(&partition, &data, &["--claim-first", "--from-start"])?.finish()?;
    println!("claimed first, with a store of its own: {} done; rewound: {} done", first.done, again.done);
    let once = once && are_done_once(&data, &ids)? && again.done == 0;
    println!("handled exactly once: {}", if once { "yes" } else { "NO" });
    Ok(once)
}

fn are_done_once(data: &Path, ids: &HashSet<String>) -> Result<bool, Failed> {
    let done = effects::read(&beside(data, ".effects.jsonl"))?;
    let mut times: HashMap<&str, usize> = HashMap::new();
    for event in &done {
        *times.entry(&event.id).or_default() += 1;
    }
    let twice = times.values().filter(|&&times| times > 1).count();
    let missing = ids.iter().filter(|id| !times.contains_key(id.as_str())).count();
    let strange = times.keys().filter(|id| !ids.contains(**id)).count();
    println!("{} effects: {twice} twice, {missing} missing, {strange} of no event", done.len());
    Ok(twice + missing + strange == 0)
}

fn write_partition(path: &Path) -> Result<HashSet<String>, Failed> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut events: Vec<Event> = Vec::new();
    for line in 0..LINES {
        if line % COPIES == COPIES - 1 {
            // Spread evenly over those before it, the one just before included.
            let back = 1 + line * 7_919 % REACH.min(events.len());
            serde_json::to_writer(&mut file, &events[events.len() - back])?;
        } else {
            let event = Event { id: format!("evt_{line:06}"), amount: (line as u64 * 37) % 10_000 };
            serde_json::to_writer(&mut file, &event)?;
            events.push(event);
        }
        file.write_all(b"\n")?;
    }
    file.flush()?;
    Ok(events.into_iter().map(|event| event.id).collect())
}

/// The consumer as a process of its own, so that it can be killed as nothing inside it can be.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(partition: &Path, data: &Path, more: &[&str]) -> Result<Self, Failed> {
        Self::spawn(Command::new(std::env::current_exe()?).arg(partition).args(more), data)
    }

    fn start_piped(partition: &Path, data: &Path) -> Result<Self, Failed> {
        Self::spawn(Command::new(std::env::current_exe()?).arg("-").stdin(File::open(partition)?), data)
    }

    fn spawn(command: &mut Command, data: &Path) -> Result<Self, Failed> {
        let mut child = command.args(["--commits", "--data"]).arg(data).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("the consumer has no output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// The offset that it commits next.
    fn committed(&mut self) -> Result<String, Failed> {
        let line = self.line()?;
        let offset = line.strip_prefix(COMMITTED).ok_or("the consumer ended before it could be killed")?;
        Ok(offset.to_owned())
    }

    /// Waits for its end, and for what it says of it.
    fn finish(mut self) -> Result<Tally, Failed> {
        let mut line = self.line()?;
        while line.starts_with(COMMITTED) {
            line = self.line()?;
        }
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("the consumer ended with {status}").into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
