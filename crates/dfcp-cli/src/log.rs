//! What a service says: lines on standard error as every command has them, or a log for programs, through
//! `tracing`: JSON, a line for each event, or journald's own protocol, where each event has fields.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use dfcp_command::output::{self, ERR};
use dfcp_command::text::printable;
use dfcp_command::{Failure, Kind};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::progress;

/// How a log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Lines for people on standard error
    #[default]
    Text,
    /// JSON on standard error, a line for each event
    Json,
    /// Events with fields, to journald
    Journal,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As things go.
    Info,
    /// Somebody should look.
    Warning,
    /// Something that was to be done was not.
    Error,
}

/// What programs want to know of an event, beside its words.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// Whose key it is about.
    pub peer: Option<String>,
    /// The peer's address.
    pub from: Option<String>,
    /// The host that was to be reached.
    pub host: Option<String>,
    /// How it ended.
    pub status: Option<&'static str>,
    /// A session's report, JSON.
    pub report: Option<String>,
}

/// The log of a service, or of a section of it.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    form: Form,
    section: &'static str,
}

impl Log {
    /// From now on, for the whole process.
    ///
    /// # Errors
    /// When journald is not there.
    pub fn start(form: Form) -> Result<Self, Failure> {
        if form != Form::Text {
            ERR.say_left_out(|lines| tracing::warn!("{}", output::left_out(lines)));
        }
        let registry = tracing_subscriber::registry();
        match form {
            Form::Text => {}
            Form::Json => {
                let lines = tracing_subscriber::fmt::layer().json();
                let lines = lines.with_writer(|| Lines).with_target(false);
                // Nobody else can have begun one.
                let _ = registry.with(lines.flatten_event(true)).try_init();
            }
            Form::Journal => {
                let journal = tracing_journald::layer().map_err(|error| {
                    let message = format!(
                        "there is no journald to log to: {error}; log = \"text\" needs none"
                    );
                    Failure::new(Kind::LocalIo, message)
                })?;
                let _ = registry.with(journal.with_field_prefix(None)).try_init();
            }
        }
        Ok(Self { form, section: "" })
    }

    /// That of a section.
    pub fn of(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    /// Says something.
    pub fn say(self, message: impl Display) {
        self.tell(Level::Info, &Fields::default(), message);
    }

    /// Says something that somebody should look at.
    pub fn warn(self, message: impl Display) {
        self.tell(Level::Warning, &Fields::default(), message);
    }

    /// Tells why the process ends; its exit code.
    pub fn end(self, failure: &Failure) -> ExitCode {
        let level = match failure.kind.is_interruption() {
            true => Level::Info,
            false => Level::Error,
        };
        self.tell(level, &Fields::default(), &failure.message);
        failure.exit_code()
    }

    /// Tells of an event.
    pub fn tell(self, level: Level, fields: &Fields, message: impl Display) {
        let message = message.to_string();
        let section = self.section;
        if self.form == Form::Text {
            let line = match section {
                "" => message,
                section => format!("{section}: {message}"),
            };
            return progress::say(&line);
        }
        if self.form == Form::Journal {
            let fields = fields.clone();
            // The journal may be halted as well.
            ERR.offer(move || trace(section, level, &fields, &message));
        } else {
            trace(section, level, fields, &message);
        }
    }
}

/// Lines of the log, which come whole.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bytes = line.to_owned();
        ERR.offer(move || output::write_err(&bytes));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn trace(section: &str, level: Level, fields: &Fields, message: &str) {
    let message = printable(message);
    let section = Some(section).filter(|section| !section.is_empty());
    let Fields {
        peer,
        from,
        host,
        status,
        report,
    } = fields;
    let (peer, from, host) = (peer.as_deref(), from.as_deref(), host.as_deref());
    let (status, report) = (*status, report.as_deref());
    // A macro for each: the level of an event is part of what stands still.
    match level {
        Level::Info => {
            tracing::info!(section, peer, from, host, status, report, "{message}");
        }
        Level::Warning => {
            tracing::warn!(section, peer, from, host, status, report, "{message}");
        }
        Level::Error => {
            tracing::error!(section, peer, from, host, status, report, "{message}");
        }
    }
}
