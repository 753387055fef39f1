//! The receiver as a process of its own, so that it can be killed as nothing inside it can be.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::event::Source;
use crate::rehearsal::AT_WORK;
use crate::server::LISTENING;
use crate::{DEMO_SECRET, Failed, SECRET_VARIABLE};

const START_TIMEOUT: Duration = Duration::from_secs(10);
const WORK_TIMEOUT: Duration = Duration::from_secs(10);
/// More than the receiver's own limits together.
const STOP_TIMEOUT: Duration = Duration::from_secs(25);

pub struct Process {
    child: Child,
    pub address: SocketAddr,
    output: Receiver<String>,
    at_work: HashSet<String>,
}

impl Process {
    /// Starts this very program as a receiver on a free port, and waits until it listens.
    pub fn start(data: &Path, effects: &Path) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--listen", "127.0.0.1:0", "--rehearse", "--data"])
            .arg(data)
            .arg("--effects")
            .arg(effects)
            .env(SECRET_VARIABLE, DEMO_SECRET)
            // Its end tells the receiver to stop, also when this process dies.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (lines, output) = mpsc::channel();
        let pipe = child.stdout.take();
        let mut process =
            Self { child, address: ([127, 0, 0, 1], 0).into(), output, at_work: HashSet::new() };
        let pipe = pipe.ok_or("the receiver has no output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let line = process.wait_for_line(LISTENING, Instant::now() + START_TIMEOUT)?;
        process.address = line.parse()?;
        Ok(process)
    }

    /// Waits until the handler says that it is in the middle of this event.
    pub fn wait_until_at_work(&mut self, source: Source, id: &str) -> Result<(), Failed> {
        let wanted = format!(" {source} {id}");
        let deadline = Instant::now() + WORK_TIMEOUT;
        while !self.at_work.contains(&wanted) {
            let event = self.wait_for_line(AT_WORK, deadline)?;
            self.at_work.insert(event);
        }
        Ok(())
    }

    /// The rest of the next line that starts like this.
    fn wait_for_line(&mut self, start: &str, deadline: Instant) -> Result<String, Failed> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .output
                .recv_timeout(left)
                .map_err(|error| format!("the receiver did not say \"{}\": {error}", start.trim_end()))?;
            if let Some(rest) = line.strip_prefix(start) {
                return Ok(rest.to_owned());
            }
        }
    }

    /// SIGKILL: no handler ends, nothing is flushed, nothing is closed.
    pub fn kill(&mut self) -> Result<(), Failed> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Lets it stop by itself, and expects it to do so without an error.
    pub fn stop(mut self) -> Result<(), Failed> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the receiver ended with {status}").into()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err("the receiver did not stop".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
