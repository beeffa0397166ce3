//! From the name of a machine to a connection with the agent there.

use std::net::SocketAddr;
use std::time::Duration;

use dfcp::Connection;
use dfcp_command::{Failure, Kind};
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::attempt::SAME_SIGNAL;
use super::control::{self, FromAgent, Ready, ToAgent, Work};
use super::heard::{Heard, SILENCE};
use super::reach::{self, Side};
use super::shell::{self, Agent};
use super::tunnel::Tunnel;
use super::{Args, Fallback};
use crate::command::Output;

/// What ssh exits with when its own connection fails.
const SSH_FAILED: i32 = 255;
/// How long after the end of an agent its last packets may come.
const GRACE: Duration = Duration::from_secs(2);

/// An agent that is ready, and the way to it.
pub struct Link {
    host: String,
    agent: Agent,
    addresses: Vec<SocketAddr>,
}

/// A connection, and what it stands on.
pub struct Joined {
    /// To the agent.
    pub connection: Connection,
    way: Way,
    host: String,
    shell: Child,
}

/// Where a connection's packets go, and the pipe to the agent.
enum Way {
    /// The end of the pipe tells the agent that this side is gone.
    Udp(
        BufReader<ChildStdout>,
        #[expect(dead_code, reason = "ends when dropped")] ChildStdin,
    ),
    Pipe(Tunnel),
}

impl Joined {
    /// `udp` or `ssh`.
    pub fn via(&self) -> &'static str {
        match self.way {
            Way::Pipe(_) => "ssh",
            Way::Udp(..) => "udp",
        }
    }

    /// What the agent removed.
    pub async fn removed(&mut self, limit: Duration) -> Result<Vec<String>, Failure> {
        let way = &mut self.way;
        let mut next = async || match way {
            Way::Udp(stdout, _) => control::message(stdout).await,
            Way::Pipe(tunnel) => Ok(tunnel.message().await),
        };
        let mut removed = Vec::new();
        loop {
            match control::answer(&self.host, limit, &mut next).await? {
                Some(FromAgent::Removed { paths, more }) => {
                    removed.extend(paths);
                    if !more {
                        return Ok(removed);
                    }
                }
                Some(FromAgent::Failed(failure)) => return Err(failure),
                _ => {
                    return Err(Failure::new(
                        Kind::Failure,
                        "everything was sent; the other side did not say what it removed",
                    ));
                }
            }
        }
    }

    /// Waits for an agent that ends early. When ssh itself breaks over UDP, the agent may go on.
    pub async fn agent_ended(&mut self, output: &Output) -> Failure {
        let mut heard = Heard::of(&self.connection);
        let code = loop {
            tokio::select! {
                status = self.shell.wait() => break status.ok().and_then(|status| status.code()),
                () = heard.look() => {}
            }
        };
        if matches!(self.way, Way::Udp(..)) && code.is_none_or(|code| code == SSH_FAILED) {
            return self.agent_fell_silent(heard, output).await;
        }
        // What it said before it ended may still be on its way.
        tokio::time::sleep(GRACE).await;
        shell::ended(&self.host, code)
    }

    /// Waits, without an ssh that would say so, for the end of an agent that goes on over UDP.
    async fn agent_fell_silent(&self, mut heard: Heard, output: &Output) -> Failure {
        let host = &self.host;
        // What ended ssh may end this program, too.
        tokio::time::sleep(SAME_SIGNAL).await;
        output.say(format_args!("{host}: ssh has ended; going on over UDP"));
        // The path that broke ssh may come back within the transport's own limit.
        if heard.silence() >= SILENCE {
            return std::future::pending().await;
        }
        heard.end().await;
        let message = format!("{host}: ssh has ended, and dfcp there has been silent since");
        Failure::new(Kind::Unreachable, message)
    }
}

impl Link {
    /// Starts an agent and gives it `work`.
    pub async fn open(
        args: &Args,
        side: &Side,
        host: &str,
        work: Work,
    ) -> Result<(Self, Ready), Failure> {
        let job = args.job(side, work);
        let agent = args.shell.agent(host, args.output.timeout());
        let (agent, name) = tokio::join!(agent, args.shell.address_of(host));
        let mut agent = agent?;
        // An agent that is gone already may have said why.
        let _ = control::say(&mut agent.stdin, &ToAgent::Job(job)).await;
        let next = async || control::message(&mut agent.stdout).await;
        let ready = match control::answer(host, args.output.timeout(), next).await? {
            Some(FromAgent::Ready(ready)) => ready,
            Some(FromAgent::Failed(failure)) => {
                agent.leave().await;
                let message = format!("{host}: {}", failure.message);
                return Err(Failure::new(failure.kind, message));
            }
            Some(FromAgent::Removed { .. } | FromAgent::Busy) | None => {
                let message = format!("{host}: dfcp ended there without a word");
                return Err(Failure::new(Kind::Failure, message));
            }
        };
        side.expect(control::key(&ready.key)?);
        let named = match name {
            Some(name) => tokio::net::lookup_host((name, ready.port))
                .await
                .map(|found| found.map(|address| address.ip()).collect())
                .unwrap_or_default(),
            None => Vec::new(),
        };
        let candidates = named.into_iter().chain(ready.addresses.iter().copied());
        let link = Self {
            host: host.to_owned(),
            agent,
            addresses: reach::with_port(candidates, ready.port),
        };
        Ok((link, ready))
    }

    /// A connection over UDP, or over ssh's pipe.
    pub async fn connect(
        mut self,
        args: &Args,
        side: &Side,
        ready: &Ready,
    ) -> Result<Joined, Failure> {
        if let Some(connection) = side.meet(&self.addresses).await
            && let Some(name) = reach::name(&connection)
        {
            let choice = ToAgent::Use { connection: name };
            control::say(&mut self.agent.stdin, &choice).await?;
            let (stdin, stdout, shell) = self.agent.split();
            return Ok(Joined {
                connection,
                way: Way::Udp(stdout, stdin),
                host: self.host,
                shell,
            });
        }
        let blocked = format!(
            "{}: UDP does not get through to port {} there, nor from there to here",
            self.host, ready.port
        );
        if args.fallback == Fallback::Fail {
            let message = format!(
                "{blocked}; open that port in a firewall (--port-range names ports), or leave out \
                 --fallback fail"
            );
            return Err(Failure::new(Kind::Unreachable, message));
        }
        args.output
            .say(format!("{blocked}: going on over ssh, as slow as that is"));
        control::say(&mut self.agent.stdin, &ToAgent::Tunnel).await?;
        let (stdin, stdout, shell) = self.agent.split();
        let tunnel = Tunnel::start(side.port(), stdout, stdin).await?;
        let connection = side.connect(&[tunnel.address]).await.ok_or_else(|| {
            let message = format!("{}: nothing comes through ssh", self.host);
            Failure::new(Kind::Unreachable, message)
        })?;
        Ok(Joined {
            connection,
            way: Way::Pipe(tunnel),
            host: self.host,
            shell,
        })
    }
}
