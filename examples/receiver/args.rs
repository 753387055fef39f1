//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

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
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = Arguments { rest: arguments, attached: None };
    let (mut listen, mut data, mut effects, mut rehearse) = (None, None, None, false);
    let mut any = false;
    while let Some(name) = arguments.name()? {
        any = true;
        match name.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--listen" => {
                let value = arguments.value(&name)?;
                let address = value.to_str().and_then(|text| text.parse::<SocketAddr>().ok());
                listen = Some(address.ok_or_else(|| {
                    format!("--listen takes an address such as 127.0.0.1:3000, not {}", value.display())
                })?);
            }
            "--data" => data = Some(PathBuf::from(arguments.value(&name)?)),
            "--effects" => effects = Some(PathBuf::from(arguments.value(&name)?)),
            "--rehearse" => rehearse = true,
            other => return Err(format!("unknown argument {other}")),
        }
        if arguments.attached.is_some() {
            return Err(format!("{name} takes no value"));
        }
    }
    if !any {
        return Ok(Command::Demo);
    }
    let data = data.unwrap_or_else(|| PathBuf::from("./dedupe"));
    let effects = effects.unwrap_or_else(|| beside(&data));
    let listen = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 3000)));
    Ok(Command::Serve(Serve { listen, data, effects, rehearse }))
}

/// The store owns its directory, so the effects go beside it.
fn beside(data: &std::path::Path) -> PathBuf {
    // By components, so that "./dedupe/" does not put the file into the directory.
    let mut name = data.components().as_path().as_os_str().to_owned();
    name.push(".effects.jsonl");
    PathBuf::from(name)
}

struct Arguments<I> {
    rest: I,
    /// The part after `=` of the option read last.
    attached: Option<OsString>,
}

impl<I: Iterator<Item = OsString>> Arguments<I> {
    fn name(&mut self) -> Result<Option<String>, String> {
        let Some(argument) = self.rest.next() else {
            return Ok(None);
        };
        let text = argument.into_string().map_err(|raw| format!("unknown argument {}", raw.display()))?;
        match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                self.attached = Some(value.into());
                Ok(Some(name.to_owned()))
            }
            _ => Ok(Some(text)),
        }
    }

    fn value(&mut self, name: &str) -> Result<OsString, String> {
        let next_value = |rest: &mut I| {
            // An option is not the value of another; write --data=--odd for such a name.
            rest.next().filter(|value| !value.as_encoded_bytes().starts_with(b"--"))
        };
        let value = self.attached.take().or_else(|| next_value(&mut self.rest));
        value.filter(|value| !value.is_empty()).ok_or_else(|| format!("{name} needs a value"))
    }
}
