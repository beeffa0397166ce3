//! Copies between two other machines: the first of them runs the same command.

use std::io::ErrorKind;

use dfcp_command::{Failure, Kind, fail, unwritten};

use super::place::Place;
use crate::progress::Relay;

use super::attempt::unless_interrupted;
use super::{Args, Choice, Fallback};

impl Args {
    /// Has the machine of the sources copy to the other one itself, as its own ssh reaches that.
    pub(super) async fn across(&self, host: &str) -> Result<u8, Failure> {
        let mut words = vec![if self.choice.sync { "sync" } else { "cp" }.to_owned()];
        self.choice.words(&mut words);
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name}={value}")));
        };
        option(
            "bwlimit",
            self.bwlimit.map(|rate| format!("{}bit/s", rate.as_bps())),
        );
        let ports = self
            .port_range
            .map(|(first, last)| format!("{first}-{last}"));
        option("port-range", ports);
        let seconds = self.output.timeout().as_secs_f64();
        option("timeout", Some(format!("{seconds}s")));
        let retry = self.retry.map(|time| format!("{}s", time.as_secs_f64()));
        option("retry", retry);
        let show = self.output.progress();
        let flags = [
            ("--fallback=fail", self.fallback == Fallback::Fail),
            ("--background", self.background),
            ("--delete", self.delete),
            ("--json", self.output.is_json() && !self.output.events()),
            ("--json=stream", self.output.events()),
            ("--quiet", self.output.quiet),
            ("--progress=relayed", Relay::wanted(show).is_some()),
        ];
        words.extend(switched_on(&flags));
        words.extend(self.shell.install_words());
        words.extend(["--expand".to_owned(), "--".to_owned()]);
        for place in &self.places {
            words.push(match place {
                Place::Here(_) => String::new(), // not among these
                // Its own sources are local there, from its home; one like a host stays a path.
                Place::There { host: other, path } if other == host => format!("./{path}"),
                Place::There { host, path } => format!("{host}:{path}"),
            });
        }
        let how = (show, self.output.timeout());
        let handed = unless_interrupted(self.shell.hand_over(host, &words, how)).await?;
        if handed.code == Kind::Unreachable as u8
            && let Some(Place::There { host: other, .. }) = self.places.last()
        {
            // Who reads that ssh could not log in thinks of the one here.
            self.output.say(format!(
                "that was at {host}, whose own ssh is to reach {other}; through this machine it takes two copies"
            ));
        }
        match handed.printed {
            Err(error) if self.output.is_json() || error.kind() != ErrorKind::BrokenPipe => {
                let failure = unwritten(&error);
                fail(&failure);
                Ok(match handed.code {
                    0 => failure.kind as u8,
                    code => code,
                })
            }
            _ => Ok(handed.code),
        }
    }
}

/// Ends this program as a signal would when standard input ends: who started it from another machine is gone.
pub(super) fn end_with_input() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::SIGTERM);
    });
}

impl Choice {
    /// As options on a command line.
    fn words(&self, words: &mut Vec<String>) {
        let flags = [
            ("-r", self.recursive && !self.sync),
            ("-a", self.archive),
            ("-l", self.links && !self.sync),
            ("-L", self.copy_links),
            ("-n", self.dry_run),
            ("-c", self.checksum),
            ("--no-resume", self.no_resume),
            ("--whole-file", self.whole_file),
            ("-X", self.kept.xattrs),
            ("-A", self.kept.acls),
            ("--owner", self.kept.owner),
            ("--numeric-owner", self.kept.numeric_owner),
            ("--allow-home", self.allow_home),
            ("--allow-empty", self.removal.allow_empty),
        ];
        words.extend(switched_on(&flags));
        let most = self.removal.max_delete;
        words.extend(most.map(|most| format!("--max-delete={most}")));
        if let Some(value) = clap::ValueEnum::to_possible_value(&self.on_conflict) {
            words.push(format!("--on-conflict={}", value.get_name()));
        }
        self.filter.words(words);
    }
}

/// Of `flags` those that are on.
fn switched_on(flags: &[(&str, bool)]) -> impl Iterator<Item = String> {
    let on = flags.iter().filter(|(_, on)| *on);
    on.map(|(flag, _)| (*flag).to_owned())
}
