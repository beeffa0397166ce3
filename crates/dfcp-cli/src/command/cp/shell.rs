//! Starting an agent on another machine through the user's own ssh.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use dfcp_command::text::printable;
use dfcp_command::{Failure, Kind};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::control::GREETING;
use super::login;
use crate::ask;
use crate::progress::{Relay, Show};

/// Most bytes that a login may print before the agent's greeting.
const MAX_NOISE: u64 = 64 << 10;
/// What the search on the other machine prints when it finds no `dfcp`, before system and processor.
const MISSING: &str = "DFCP-NONE";
/// What an installation prints when it worked, and when the copy does not run there.
const INSTALLED: &str = "DFCP-INSTALLED";
const UNFIT: &str = "DFCP-UNFIT";
/// What is printed before what a program there prints.
const HANDED: &str = "DFCP-HANDED-OVER";
/// Where `dfcp` is looked for after PATH, which is short for commands over ssh.
const SEARCHED: &str = "\"$HOME/.local/bin/dfcp\" \"$HOME/.cargo/bin/dfcp\" /usr/local/bin/dfcp \
                        /opt/homebrew/bin/dfcp";
/// Exit code where no `dfcp` was found, as shells have it of any command; `dfcp` has no such code.
const NOT_FOUND: i32 = 127;
/// That of ssh itself, which has said why.
const NO_LOGIN: i32 = 255;
/// How long an agent that is not needed any more is waited for.
const LEAVING: Duration = Duration::from_secs(1);

/// How a command ended that another machine ran.
#[derive(Debug)]
pub struct Handed {
    /// Its exit code.
    pub code: u8,
    /// Whether all that it printed could be printed here.
    pub printed: io::Result<()>,
}

/// How other machines are reached, and what is run there.
#[derive(Clone, Debug, clap::Args)]
pub struct Shell {
    /// Remote shell, with its options
    #[arg(
        short = 'e',
        long = "rsh",
        value_name = "COMMAND",
        default_value = "ssh"
    )]
    command: String,
    /// Where dfcp is on the other machine [default: PATH, ~/.local/bin, ~/.cargo/bin, /usr/local/bin]
    #[arg(long, value_name = "PATH")]
    remote_path: Option<String>,
    /// Where the other machine has no dfcp, ask, and copy this program to its ~/.local/bin
    #[arg(long)]
    install: bool,
    /// Install without asking
    #[arg(long, requires = "install")]
    yes: bool,
}

/// A running agent and the pipe to it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    /// To the agent.
    pub stdin: ChildStdin,
    /// From it.
    pub stdout: BufReader<ChildStdout>,
}

/// Prints what comes. After a failure the rest is read all the same: who says it is not to wait.
async fn print_all(mut from: BufReader<ChildStdout>) -> io::Result<()> {
    let (mut to, mut buffer, mut printed) = (tokio::io::stdout(), [0; 8192], Ok(()));
    loop {
        let come = match from.read(&mut buffer).await? {
            0 => return printed,
            n => &buffer[..n],
        };
        if printed.is_ok() {
            printed = to.write_all(come).await;
        }
        if printed.is_ok() {
            printed = to.flush().await;
        }
    }
}

impl Shell {
    /// The remote shell's own words, without host and command.
    fn words(&self) -> Result<Vec<String>, Failure> {
        shlex::split(&self.command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Failure::usage(format!("-e: not a command: {:?}", self.command)))
    }

    /// A command that runs `script` with `sh` at `host`, whatever the login shell there is.
    fn remote(&self, host: &str, script: &str) -> Result<Command, Failure> {
        let words = self.words()?;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(host)
            .arg(format!("sh -c {}", quoted(script)))
            .kill_on_drop(true);
        Ok(command)
    }

    /// A script that finds `dfcp` and runs it with these arguments, or else does the other thing. It waits for
    /// it: of a program that a signal ends ssh says no more than of its own failures, and `sh` makes it a code.
    fn search(&self, arguments: &str, otherwise: &str) -> String {
        let places = match &self.remote_path {
            Some(path) => match path.strip_prefix("~/") {
                Some(beneath) => format!("\"$HOME\"/{}", quoted(beneath)),
                None => quoted(path),
            },
            None => format!("dfcp {SEARCHED}"),
        };
        format!(
            "for p in {places}; do command -v \"$p\" >/dev/null 2>&1 && {{ \"$p\" {arguments}; exit; }}; \
             done; {otherwise}"
        )
    }

    /// Runs `dfcp ARGUMENTS` at `host` to its end, and installs it there if that is wanted: how it ended.
    /// What it prints is printed here, its progress shown as `show` says. Its standard input ends with this
    /// program.
    pub async fn hand_over(
        &self,
        host: &str,
        arguments: &[String],
        (show, silence): (Show, Duration),
    ) -> Result<Handed, Failure> {
        let words: Vec<_> = arguments.iter().map(|word| quoted(word)).collect();
        let script = self.search(&words.join(" "), &format!("exit {NOT_FOUND}"));
        let script = format!("echo {HANDED}; {script}");
        let handed = self.try_hand_over(host, &script, (show, silence)).await?;
        if let Some(handed) = handed {
            return Ok(handed);
        }
        if let Err(machine) = self.try_agent(host, silence).await? {
            self.install_at(host, &machine).await?;
        }
        let handed = self.try_hand_over(host, &script, (show, silence)).await?;
        handed.ok_or_else(|| still_none(host))
    }

    /// How it ended, or nothing where `dfcp` is not there.
    async fn try_hand_over(
        &self,
        host: &str,
        script: &str,
        (show, silence): (Show, Duration),
    ) -> Result<Option<Handed>, Failure> {
        let mut command = self.remote(host, script)?;
        // ssh says nothing of what it cannot print.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let relay = Relay::wanted(show);
        if relay.is_some() {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|error| self.none(&error))?;
        // Waiting would close it.
        let open = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(no_pipe)?;
        let told = relay.zip(child.stderr.take());
        let mut told = told.map(|(relay, told)| tokio::spawn(relay.run(BufReader::new(told))));
        // What the login prints before is not ours.
        let mut stdout = BufReader::new(stdout);
        let begun = line_with(&mut stdout, |line| line.ends_with(HANDED).then_some(()));
        let begun = login::within(silence, begun).await;
        begun.ok_or_else(|| self.no_word(host))??;
        let printing = tokio::spawn(print_all(stdout));
        if let Some(told) = &mut told {
            // Until nobody there has it any more. ssh keeps it for a connection that others share, so its own
            // end counts as well.
            tokio::select! {
                biased;
                told = &mut *told => told.map_err(io::Error::other)??,
                _ = child.wait() => {
                    let _ = tokio::time::timeout(LEAVING, told).await;
                }
            }
        }
        let status = child.wait().await?;
        drop(open);
        let printed = printing.await.map_err(io::Error::other)?;
        match status.code() {
            Some(NOT_FOUND) => Ok(None),
            Some(NO_LOGIN) => Err(self.no_greeting(host, Some(NO_LOGIN))),
            // What could not say so itself, as after SIGKILL.
            Some(code @ 129..) if !Kind::INTERRUPTIONS.iter().any(|kind| *kind as i32 == code) => {
                Err(ended(host, Some(code)))
            }
            Some(code) => Ok(Some(Handed {
                code: u8::try_from(code).unwrap_or(Kind::Failure as u8),
                printed,
            })),
            None => Err(Failure::new(
                Kind::Failure,
                format!("{host}: {} was ended by a signal", self.command),
            )),
        }
    }

    /// The options that a machine needs to install `dfcp` at the next one as this one would.
    pub fn install_words(&self) -> impl Iterator<Item = String> {
        let flags = [("--install", self.install), ("--yes", self.yes)];
        let on = flags.into_iter().filter(|(_, on)| *on);
        on.map(|(flag, _)| flag.to_owned())
    }

    /// Starts an agent at `host` for a session that ends after so much silence, and installs it there if that is
    /// wanted.
    pub async fn agent(&self, host: &str, silence: Duration) -> Result<Agent, Failure> {
        match self.try_agent(host, silence).await? {
            Ok(agent) => Ok(agent),
            Err(machine) => {
                self.install_at(host, &machine).await?;
                let agent = self.try_agent(host, silence).await?;
                agent.map_err(|_| still_none(host))
            }
        }
    }

    /// The agent, or system and processor of a machine that has none.
    async fn try_agent(
        &self,
        host: &str,
        silence: Duration,
    ) -> Result<Result<Agent, String>, Failure> {
        let missing = format!("echo \"{MISSING} $(uname -s) $(uname -m)\"");
        let mut command = self.remote(host, &self.search("agent", &missing))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.none(&error))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(no_pipe());
        };
        let mut stdout = BufReader::new(stdout);
        let greeting = login::within(silence, greeting(&mut stdout)).await;
        match greeting.ok_or_else(|| self.no_word(host))?? {
            Greeting::Agent => Ok(Ok(Agent {
                child,
                stdin,
                stdout,
            })),
            Greeting::Missing(machine) => Ok(Err(machine)),
            Greeting::Other(version) => Err(Failure::new(
                Kind::Failure,
                format!(
                    "{host}: its dfcp speaks {version:?}, this one {GREETING:?}: install the same \
                     version on both sides"
                ),
            )),
            Greeting::None => {
                // Whatever else it wants to say, nobody listens.
                drop((stdin, stdout));
                let ended = tokio::time::timeout(LEAVING, child.wait()).await;
                let code = ended.ok().and_then(|status| status.ok()?.code());
                Err(self.no_greeting(host, code))
            }
        }
    }

    fn none(&self, error: &std::io::Error) -> Failure {
        Failure::new(
            Kind::Failure,
            format!("{}: {error} (-e names another shell)", self.command),
        )
    }

    /// The remote shell neither ends nor starts an agent.
    fn no_word(&self, host: &str) -> Failure {
        let message = format!(
            "{host}: {0} has not started dfcp there: see whether `{0} {host} true` ends, and what the login there \
             runs (--timeout waits longer)",
            self.command
        );
        Failure::new(Kind::Unreachable, message)
    }

    /// Why an agent said nothing: ssh's own failures have code 255, and it printed why.
    fn no_greeting(&self, host: &str, code: Option<i32>) -> Failure {
        match code {
            Some(NO_LOGIN) => Failure::new(
                Kind::Unreachable,
                format!(
                    "{host}: {0} could not log in; why stands above: make `{0} {host}` work first",
                    self.command
                ),
            ),
            code => Failure::new(
                Kind::Failure,
                format!(
                    "{host}: dfcp did not start there (exit code {}); its version may be older \
                     than `dfcp cp`",
                    code.map_or("unknown".into(), |code| code.to_string())
                ),
            ),
        }
    }

    /// Copies this program to the other machine.
    async fn install_at(&self, host: &str, machine: &str) -> Result<(), Failure> {
        let place = self.remote_path.as_deref();
        let place = place.map_or("there".to_owned(), |path| format!("at {path} there"));
        let missing = |what: &str| {
            Failure::new(
                Kind::Failure,
                format!("{host}: no dfcp {place} ({machine}); {what}"),
            )
        };
        if !self.install {
            return Err(missing(
                "--install copies this program to its ~/.local/bin, --remote-path names another",
            ));
        }
        let own = format!("{} {}", system(), std::env::consts::ARCH);
        if machine != own {
            return Err(missing(&format!(
                "this program is for {own} and would not run"
            )));
        }
        let agreed = self.yes
            || ask::is_possible()
                && ask::agrees_meanwhile(format!(
                    "{host} has no dfcp. Copy this program to its ~/.local/bin"
                ))
                .await;
        if !agreed {
            return Err(missing("not installed (--yes agrees without a question)"));
        }
        let program = std::env::current_exe()?;
        let file = std::fs::File::open(&program).map_err(|error| Failure::io(&program, error))?;
        let script = format!(
            "set -e; d=\"$HOME/.local/bin\"; mkdir -p \"$d\"; t=\"$d/.dfcp.$$\"; cat >\"$t\"; \
             chmod 755 \"$t\"; if \"$t\" --version >/dev/null 2>&1; then mv -f \"$t\" \"$d/dfcp\"; \
             echo {INSTALLED}; else rm -f \"$t\"; echo {UNFIT}; fi"
        );
        let output = self
            .remote(host, &script)?
            .stdin(file)
            .stderr(Stdio::inherit())
            .output()
            .await
            .map_err(|error| self.none(&error))?;
        match String::from_utf8_lossy(&output.stdout) {
            said if said.lines().any(|line| line.ends_with(INSTALLED)) => Ok(()),
            said if said.lines().any(|line| line.ends_with(UNFIT)) => Err(missing(
                "the copy does not run: it needs libraries of this machine; a static build has none",
            )),
            _ => Err(missing("the copy failed")),
        }
    }

    /// The name or address that ssh itself connects to, unless through another machine.
    pub async fn address_of(&self, host: &str) -> Option<String> {
        let words = self.words().ok()?;
        if Path::new(&words[0]).file_name()? != "ssh" {
            return None;
        }
        let output = Command::new(&words[0])
            .args(&words[1..])
            .args(["-G", host])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .await
            .ok()?;
        let settings = String::from_utf8(output.stdout).ok()?;
        let value = |name: &str| {
            settings.lines().find_map(|line| {
                let (key, value) = line.split_once(' ')?;
                (key == name && value != "none").then(|| value.to_owned())
            })
        };
        match value("proxyjump").or_else(|| value("proxycommand")) {
            Some(_) => None,
            None => value("hostname"),
        }
    }
}

impl Agent {
    /// Ends it: what there was to say is said.
    pub async fn leave(mut self) {
        drop(self.stdin);
        let _ = tokio::time::timeout(LEAVING, self.child.wait()).await;
    }

    /// The pipe, and the process behind it, which ends when it is dropped.
    pub fn split(self) -> (ChildStdin, BufReader<ChildStdout>, Child) {
        (self.stdin, self.stdout, self.child)
    }
}

/// An agent, or a copy elsewhere, that ended when nobody told it to. Of signals `sh` makes codes.
pub fn ended(host: &str, code: Option<i32>) -> Failure {
    let how = match code {
        Some(code @ 129..NO_LOGIN) => format!("by signal {}", code - 128),
        Some(code) => format!("with exit code {code}"),
        None => "without an exit code".to_owned(),
    };
    let message = format!("{host}: dfcp ended there {how}");
    Failure::new(Kind::Unreachable, message)
}

fn no_pipe() -> Failure {
    Failure::new(Kind::Failure, "no pipe to the remote shell")
}

fn still_none(host: &str) -> Failure {
    Failure::new(Kind::Failure, format!("{host}: dfcp is still not found"))
}

/// How the other side begins.
enum Greeting {
    Agent,
    Missing(String),
    Other(String),
    None,
}

/// Reads to the agent's greeting. What the login prints before is not ours, and need not end its line.
async fn greeting(stdout: &mut BufReader<ChildStdout>) -> Result<Greeting, Failure> {
    let found = line_with(stdout, |line| {
        if line.ends_with(GREETING) {
            return Some(Greeting::Agent);
        }
        if let Some((_, machine)) = line.split_once(MISSING) {
            return Some(Greeting::Missing(printable(machine.trim()).to_string()));
        }
        let version = line.find("DFCP-AGENT ")?;
        Some(Greeting::Other(printable(&line[version..]).to_string()))
    });
    Ok(found.await?.unwrap_or(Greeting::None))
}

/// What is found in the first line of what a login prints that has it; none where that ends before, or is too
/// much.
async fn line_with<T>(
    from: &mut BufReader<ChildStdout>,
    find: impl Fn(&str) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut rest = MAX_NOISE;
    loop {
        let mut line = Vec::new();
        let read = from.take(rest).read_until(b'\n', &mut line).await?;
        rest -= read as u64;
        if let Some(found) = find(String::from_utf8_lossy(&line).trim_end()) {
            return Ok(Some(found));
        }
        if read == 0 {
            return Ok(None);
        }
    }
}

/// A word of a command line as `sh` reads it, and the login shells of others: within `'`, csh still knows `!`, and
/// fish `\`.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' | '!' | '\\' => quoted.extend(["'\\", c.encode_utf8(&mut [0; 4]), "'"]),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

/// This system as `uname -s` says it.
fn system() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_were_to_every_login_shell() {
        let words = [
            "it's",
            "a b",
            "!x",
            "$HOME",
            "\"`\\",
            "*",
            "~",
            "",
            "plain-1.txt",
            "#",
            "caf\u{e9}",
        ];
        let mut tried = Vec::new();
        for shell in ["sh", "bash", "zsh", "fish", "csh", "tcsh"] {
            for word in words {
                // As it is sent: within a script that is a word itself.
                let script = format!("printf '<%s>' {}", quoted(word));
                let command = format!("sh -c {}", quoted(&script));
                let Ok(output) = std::process::Command::new(shell)
                    .args(["-c", &command])
                    .output()
                else {
                    break;
                };
                let said = String::from_utf8(output.stdout).unwrap();
                assert_eq!(said, format!("<{word}>"), "{shell}: {command}");
                tried.push(shell);
            }
        }
        assert!(tried.contains(&"sh"));
        // csh is not everywhere.
        assert_eq!(quoted("it's a!"), r"'it'\''s a'\!''");
    }
}
