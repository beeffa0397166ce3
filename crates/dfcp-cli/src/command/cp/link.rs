//! From the name of a machine to a connection with the agent there.

use std::net::SocketAddr;

use dfcp::Connection;
use dfcp_command::{Failure, Kind};
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::control::{self, FromAgent, Ready, ToAgent, Work};
use super::reach::{self, Side};
use super::shell::Agent;
use super::tunnel::Tunnel;
use super::{Args, Fallback};

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
    _shell: Child,
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
    pub async fn removed(&mut self) -> Result<Vec<String>, Failure> {
        let message = match &mut self.way {
            Way::Udp(stdout, _) => control::message(stdout).await?,
            Way::Pipe(tunnel) => tunnel.message().await,
        };
        match message {
            Some(FromAgent::Removed(removed)) => Ok(removed),
            Some(FromAgent::Failed(failure)) => Err(failure),
            _ => Err(Failure::new(
                Kind::Failure,
                "everything was sent; the other side did not say what it removed",
            )),
        }
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
        let (agent, name) = tokio::join!(args.shell.agent(host), args.shell.address_of(host));
        let mut agent = agent?;
        // An agent that is gone already may have said why.
        let _ = control::say(&mut agent.stdin, &ToAgent::Job(job)).await;
        let ready = match control::message(&mut agent.stdout).await? {
            Some(FromAgent::Ready(ready)) => ready,
            Some(FromAgent::Failed(failure)) => {
                agent.leave().await;
                let message = format!("{host}: {}", failure.message);
                return Err(Failure::new(failure.kind, message));
            }
            Some(FromAgent::Removed(_)) | None => {
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
                _shell: shell,
            });
        }
        let blocked = format!(
            "{}: UDP does not get through to port {} there, nor from there to here",
            self.host, ready.port
        );
        if args.fallback == Fallback::Fail {
            return Err(Failure::new(Kind::Unreachable, blocked));
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
            _shell: shell,
        })
    }
}
