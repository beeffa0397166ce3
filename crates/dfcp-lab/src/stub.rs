//! stub
#![allow(missing_docs)]
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::*;
use std::time::*;
#[derive(Debug)]
pub struct Host;
pub struct HostCommand(Command);
#[derive(Debug)]
pub struct HostProcess { child: Child, out: std::sync::mpsc::Receiver<String>, err: Option<std::thread::JoinHandle<String>> }
#[derive(Debug)]
pub struct Finished { pub status: Option<ExitStatus>, pub cpu: Duration, pub stdout: String, pub stderr: String, pub timed_out: bool }
impl Host {
    pub fn ipv4(&self) -> Ipv4Addr { Ipv4Addr::LOCALHOST }
    pub fn command(&self, p: impl AsRef<OsStr>) -> HostCommand { HostCommand(Command::new(p)) }
}
impl HostCommand {
    pub fn args(mut self, a: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self { self.0.args(a); self }
    pub fn env(mut self, k: &str, v: impl AsRef<OsStr>) -> Self { self.0.env(k, v); self }
    pub fn current_dir(mut self, v: impl AsRef<std::path::Path>) -> Self { self.0.current_dir(v); self }
    pub fn spawn(mut self) -> io::Result<HostProcess> {
        let mut child = self.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (s, out) = std::sync::mpsc::channel();
        let o = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || for l in o.lines().map_while(Result::ok) { let _ = s.send(l); });
        let mut e = child.stderr.take().unwrap();
        let err = std::thread::spawn(move || { let mut s = String::new(); let _ = e.read_to_string(&mut s); s });
        Ok(HostProcess { child, out, err: Some(err) })
    }
}
impl HostProcess {
    pub fn id(&self) -> u32 { self.child.id() }
    pub fn wait_line(&mut self, d: Instant) -> io::Result<String> {
        self.out.recv_timeout(d.saturating_duration_since(Instant::now())).map_err(io::Error::other)
    }
    pub fn wait(mut self, d: Instant) -> Finished {
        let mut timed_out = false;
        let ticks = |pid: u32| { let s = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default(); let f: Vec<u64> = s.rsplit(')').next().unwrap().split_whitespace().map(|w| w.parse().unwrap_or(0)).collect(); if f.len() > 14 { f[11] + f[12] } else { 0 } };
        let mut cpu;
        loop {
            cpu = ticks(self.child.id());
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
            if stat.contains(") Z") { break; }
            if Instant::now() >= d && !timed_out { timed_out = true; let _ = self.child.kill(); }
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = self.child.wait().ok();
        let stderr = self.err.take().unwrap().join().unwrap();
        Finished { status, cpu: Duration::from_millis(cpu * 10), stdout: self.out.iter().collect::<Vec<_>>().join("\n"), stderr, timed_out }
    }
}
