//! Questions at the terminal. One at a time, and each takes an answer of its own: what was typed
//! before it was asked does not count, nor does an answer to one whose asker has left.

use std::io::{self, BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use dfcp::PublicKey;
use dfcp_command::units;
use dfcp_transfer::Offered;
use nix::sys::termios::{FlushArg, tcflush};
use tokio::sync::oneshot;

use crate::phrase::phrase;

/// Questions that wait for their turn.
const MAX_WAITING: usize = 4;

/// Whether there is somebody to ask.
pub fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Somebody whose key is not known wants to send.
#[derive(Clone, Copy, Debug)]
pub struct Stranger {
    /// Who.
    pub key: PublicKey,
    /// From where.
    pub remote: SocketAddr,
    /// How much.
    pub offered: Offered,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Refuse the files.
    No,
    /// Take them.
    Yes,
    /// Take them, and what comes later.
    Always,
}

/// Asks about strangers, on a thread of its own, which ends with the process.
#[derive(Clone, Debug)]
pub struct Asker(SyncSender<(Stranger, oneshot::Sender<Answer>)>);

impl Asker {
    /// Asks at the terminal, if there is one.
    pub fn start() -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let (ask, asked) = sync_channel(MAX_WAITING);
        std::thread::spawn(move || answer_all(&asked));
        Some(Self(ask))
    }

    /// Asks; `None` if too many others wait for an answer already.
    pub async fn ask(&self, stranger: Stranger) -> Option<Answer> {
        let (tell, told) = oneshot::channel();
        self.0.try_send((stranger, tell)).ok()?;
        told.await.ok()
    }
}

fn answer_all(asked: &Receiver<(Stranger, oneshot::Sender<Answer>)>) {
    while let Ok((stranger, tell)) = asked.recv() {
        if tell.is_closed() {
            continue; // it left while others were asked about
        }
        // If that fails, what was typed before is taken for the answer.
        let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
        let answer = about(stranger, &mut io::stdin().lock(), &mut io::stderr());
        if tell.send(answer.unwrap_or(Answer::No)).is_err() {
            dfcp_command::tell!("dfcp: {} has left meanwhile", stranger.remote);
        }
    }
}

/// Asks about a stranger. The end of the input is a no.
fn about(
    stranger: Stranger,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<Answer> {
    let Stranger {
        key,
        remote,
        offered,
    } = stranger;
    write!(
        output,
        "dfcp: {remote} wants to send {}, {}. Its key is not known here:\n  {key}\n  {}\n\
         Take them (y, N, always)? ",
        units::files(offered.files),
        units::bytes(offered.bytes),
        phrase(&key)
    )?;
    loop {
        output.flush()?;
        let mut line = String::new();
        input.read_line(&mut line)?;
        match line.trim() {
            "y" | "Y" | "yes" => return Ok(Answer::Yes),
            "always" => return Ok(Answer::Always),
            "" | "n" | "N" | "no" => return Ok(Answer::No),
            _ => write!(output, "Please type y, n or always: ")?,
        }
    }
}

/// Asks a question whose answer is no unless it is yes.
pub fn agrees(question: &str) -> bool {
    let ask = || {
        tcflush(io::stdin(), FlushArg::TCIFLUSH)?;
        eprint!("dfcp: {question} (y, N)? ");
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok::<_, io::Error>(matches!(line.trim(), "y" | "Y" | "yes"))
    };
    ask().unwrap_or(false)
}

/// The same within a runtime, which goes on listening, to Ctrl-C first of all.
pub async fn agrees_meanwhile(question: String) -> bool {
    let answer = tokio::task::spawn_blocking(move || agrees(&question));
    answer.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(typed: &str) -> (Answer, String) {
        let stranger = Stranger {
            key: PublicKey([7; 32]),
            remote: "192.0.2.1:5".parse().unwrap(),
            offered: Offered {
                files: 3,
                bytes: 1_250_000,
            },
        };
        let mut output = Vec::new();
        let answer = about(stranger, &mut typed.as_bytes(), &mut output).unwrap();
        (answer, String::from_utf8(output).unwrap())
    }

    #[test]
    fn nothing_but_a_yes_is_one() {
        for (typed, expected) in [
            ("y\n", Answer::Yes),
            ("yes\n", Answer::Yes),
            ("always\n", Answer::Always),
            ("\n", Answer::No),
            ("", Answer::No),
            ("n\n", Answer::No),
            ("alway\n", Answer::No),
            ("what?\ny\n", Answer::Yes),
            ("what?\n\n", Answer::No),
        ] {
            assert_eq!(answer(typed).0, expected, "{typed:?}");
        }
    }

    #[test]
    fn the_question_says_who_and_how_much() {
        let (_, said) = answer("n\n");
        let key = PublicKey([7; 32]);
        for part in [
            "192.0.2.1:5",
            "3 files",
            "1.25 MB",
            &key.to_string(),
            &phrase(&key),
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
