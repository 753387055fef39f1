//! A test binary that runs itself again as another process, to be killed for real.
//!
//! The child is one `#[test]` of the same binary, which does nothing unless its role is in the
//! environment. It speaks in lines on its standard output; its standard input ends when the parent
//! is gone.

use super::PATIENCE;
use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const ROLE: &str = "ONCEDB_CHILD_ROLE";
const DIR: &str = "ONCEDB_CHILD_DIR";
const MARKER: &str = "@ ";

/// How many lines this process has said.
static SAID: AtomicU64 = AtomicU64::new(0);

pub struct Child {
    process: process::Child,
    said: BufReader<ChildStdout>,
}

impl Child {
    /// Runs the test named `test` of this binary in a process of its own.
    pub fn start(test: &str, role: &str, dir: &Path) -> Self {
        let mut process = Command::new(env::current_exe().expect("this binary has a path"))
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary runs itself again");
        let stdout = process.stdout.take().expect("the output of the child is piped");
        Self { process, said: BufReader::new(stdout) }
    }

    /// The next thing the child says; `None` once it has ended. A line it did not end was not said.
    pub fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            self.said.read_line(&mut line).expect("the child speaks UTF-8");
            let whole = line.strip_suffix('\n')?;
            if let Some((_, said)) = whole.split_once(MARKER) {
                return Some(said.to_owned());
            }
        }
    }

    #[track_caller]
    pub fn expect(&mut self, said: &str) {
        assert_eq!(self.hear().as_deref(), Some(said), "what the child says next");
    }

    /// One byte for the child's standard input.
    pub fn tell(&mut self) {
        let told = self.process.stdin.as_mut().map(|stdin| stdin.write_all(b"\n"));
        told.expect("the input of the child is piped").expect("the child listens");
    }

    /// SIGKILL: the child gets no chance to put anything in order.
    pub fn kill(&mut self) {
        self.process.kill().expect("the child can be killed");
    }

    /// Waits until the child is gone.
    pub fn bury(&mut self) {
        self.process.wait().expect("the child ends");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The role this process was started in and the directory of its store; `None` in the parent.
pub fn role() -> Option<(String, PathBuf)> {
    Some((env::var(ROLE).ok()?, env::var_os(DIR)?.into()))
}

/// Says a line to the parent: once this returns, the parent will hear it whatever happens here.
pub fn say(line: &str) {
    SAID.fetch_add(1, Ordering::Relaxed);
    let mut out = io::stdout().lock();
    let said = out.write_all(format!("{MARKER}{line}\n").as_bytes()).and_then(|()| out.flush());
    if said.is_err() {
        process::exit(1);
    }
}

/// Ends this process, and says so, once it has said nothing for longer than any call takes.
pub fn watch_over_silence() {
    thread::spawn(|| {
        let mut heard = SAID.load(Ordering::Relaxed);
        loop {
            thread::park_timeout(PATIENCE);
            let said = SAID.load(Ordering::Relaxed);
            if said == heard {
                say("failed nothing happens any more");
                process::exit(1);
            }
            heard = said;
        }
    });
}

/// Goes on only if the parent ends without killing this process.
pub fn wait_for_the_kill() {
    let mut rest = Vec::new();
    drop(io::stdin().lock().read_to_end(&mut rest));
}
