//! The progress bar: useful bytes and goodput, and apart from them what the path costs.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dfcp::Connection;
use dfcp::published::Monitor;
use dfcp_transfer::Meter;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::AbortHandle;

use crate::report::Report;

/// When to show a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Show {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);

/// Columns that the whole line needs; on fewer it is a short one.
const WIDE: usize = 80;

/// Columns of the terminal that the bar is on, if it is on one.
fn bar_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}

/// A bar; it goes away when dropped.
#[derive(Debug)]
pub struct Bar(Option<(AbortHandle, ProgressBar)>);

impl Bar {
    /// Shows how `meter` advances, if wanted.
    pub fn start(
        show: Show,
        connection: &Connection,
        remote: SocketAddr,
        meter: &Arc<Meter>,
    ) -> Self {
        let connection = connection.clone();
        Self::show(show, meter, move |bytes| cost(&connection, remote, bytes))
    }

    /// The same for a connection of DFCP as published.
    pub fn start_published(show: Show, monitor: &Monitor, meter: &Arc<Meter>) -> Self {
        let monitor = monitor.clone();
        Self::show(show, meter, move |_| {
            monitor.stats().map_or(String::new(), |stats| {
                let rtt = stats.srtt.unwrap_or_default().as_secs_f64() * 1e3;
                format!("rtt {rtt:.0} ms, loss {:.1} %", stats.loss * 100.0)
            })
        })
    }

    fn show(show: Show, meter: &Arc<Meter>, cost: impl Fn(u64) -> String + Send + 'static) -> Self {
        let wanted = match show {
            Show::Auto => std::io::stderr().is_terminal(),
            Show::Always => true,
            Show::Never => false,
        };
        if !wanted {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // Without a terminal a bar that is wanted all the same is taken to be on a usual one.
        let wide = bar_columns().is_none_or(|columns| columns >= WIDE);
        let template = match wide {
            true => "{bar:16} {bytes}/{total_bytes} {bytes_per_sec} eta {eta} {wide_msg}",
            false => "{percent:>3}% {bytes_per_sec} eta {eta} {wide_msg}",
        };
        // A wrong template would be a mistake of ours; the default one serves then.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let (meter, shown) = (meter.clone(), bar.clone());
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let bytes = meter.progress().bytes();
                shown.set_length(meter.total());
                shown.set_position(bytes);
                // What has arrived is not yet in its place.
                let is_there = bytes > 0 && bytes >= meter.total();
                shown.set_message(match is_there {
                    true => "verifying at the receiver".to_owned(),
                    false => cost(bytes),
                });
            }
        });
        Self(Some((task.abort_handle(), bar)))
    }
}

fn cost(connection: &Connection, remote: SocketAddr, bytes: u64) -> String {
    let mut report = Report::new("");
    report.add_connection(connection, remote);
    let wire = report.wire_bytes.max(report.wire_bytes_received) as f64;
    let overhead = (wire / bytes.max(1) as f64 - 1.0).max(0.0);
    format!(
        "rtt {:.0} ms, loss {:.1} %, overhead {:.1} %",
        report.rtt_ms,
        connection.stats().loss * 100.0,
        overhead * 100.0
    )
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some((task, bar)) = self.0.take() {
            task.abort();
            bar.finish_and_clear();
        }
    }
}
