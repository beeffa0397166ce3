//! `--controller`: a network controller says how fast (`docs/spec/orders.md`).

use std::net::SocketAddr;
use std::path::Path;

use dfcp::Rate;
use dfcp::published::{Config, Monitor, OrderConfig, OrderKey, Orders as Following, Standing};
use dfcp_command::Failure;

use crate::command::Output;
use crate::net::{Family, Host};

/// Where controllers listen, unless told otherwise: a port of its own beside `dfcp rendezvous` (4435).
const PORT: u16 = 4436;

/// Longest key file that is read: the key, and white space around it.
const KEY_FILE: u64 = 4096;

/// A controller, at [`PORT`] unless it says another.
pub fn host(text: &str) -> Result<Host, String> {
    Host::parse(text, PORT)
}

/// Whose orders are followed, and how far.
#[derive(Clone, Debug)]
pub struct Orders<'a> {
    /// The controller.
    pub controller: &'a Host,
    /// The key that it has too.
    pub key: OrderKey,
    /// Most that is sent once orders have expired.
    pub fallback: Rate,
    /// Most that is ever sent.
    pub limit: Rate,
}

impl Orders<'_> {
    /// Follows them for the connection between two ends, and says when the controller falls silent.
    pub async fn follow(
        self,
        monitor: Monitor,
        config: &Config,
        ends: [SocketAddr; 2],
        output: &Output,
    ) -> Result<Following, Failure> {
        let addresses = self.controller.resolve(Family::Any).await?;
        let Some(controller) = addresses.first() else {
            return Err(Failure::usage(format!(
                "--controller {}: it has no address",
                self.controller
            )));
        };
        let config = OrderConfig::new(*controller, self.key, config, ends)
            .fallback(self.fallback)
            .limit(self.limit);
        let following = Following::follow(monitor, config).await;
        let following = following.map_err(|error| {
            Failure::usage(format!("--controller {}: {error}", self.controller))
        })?;
        tokio::spawn(tell(
            following.standing(),
            output.clone(),
            self.controller.clone(),
        ));
        Ok(following)
    }
}

/// Says when the controller falls silent, and when it speaks again.
async fn tell(
    mut standing: tokio::sync::watch::Receiver<Standing>,
    output: Output,
    controller: Host,
) {
    let mut was_silent = false;
    while standing.changed().await.is_ok() {
        let is = *standing.borrow_and_update();
        match is {
            Standing::Silent(rate) if !was_silent => output.say(format_args!(
                "the controller {controller} is silent: sending at {} Mbit/s until it speaks again",
                rate.as_bps() as f64 / 1e6
            )),
            Standing::Ordered(_) if was_silent => {
                output.say(format_args!("the controller {controller} speaks again"));
            }
            _ => {}
        }
        was_silent = matches!(is, Standing::Silent(_));
    }
}

/// Reads a key file.
pub fn read_key(path: &Path) -> Result<OrderKey, Failure> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(KEY_FILE).read_to_string(&mut text));
    if let Err(error) = read {
        return Err(Failure::usage(format!(
            "--controller-key {}: {error}",
            path.display()
        )));
    }
    OrderKey::from_hex(&text).ok_or_else(|| {
        Failure::usage(format!(
            "--controller-key {}: not a key: write 64 hexadecimal digits, as `openssl rand -hex 32` makes \
             them, the same as at the controller",
            path.display()
        ))
    })
}
