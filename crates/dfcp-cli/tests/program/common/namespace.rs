//! Hosts of a test, each a network namespace. As root, or where user namespaces are allowed.

use std::process::{Child, Command, Stdio};

use super::eventually;
use super::meeting::Place;

/// Marks the run of a test in a user namespace.
const INSIDE: &str = "DFCP_TEST_IN_NAMESPACE";

/// Runs a test where it may make networks, and the command `able` works in one. Where only a user
/// namespace may, this test alone is run again in one.
pub fn privileged(able: &str, test: impl FnOnce()) {
    let works = |command: &mut Command| {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    for tool in ["ip", "nsenter", "unshare"] {
        if !works(Command::new(tool).arg("--version")) && !works(Command::new(tool).arg("-V")) {
            eprintln!("SKIPPED: {tool} is not installed");
            return;
        }
    }
    let is_root = nix::unistd::geteuid().is_root();
    if is_root && works(Command::new("unshare").args(["--net", "true"])) {
        let mut try_it = Command::new("unshare");
        match works(try_it.args(["--net", "sh", "-c", able])) {
            true => test(),
            false => eprintln!("SKIPPED: this does not work here: {able}"),
        }
        return;
    }
    let user = ["--user", "--map-root-user", "--net"];
    if std::env::var_os(INSIDE).is_some() || !works(Command::new("unshare").args(user).arg("true"))
    {
        eprintln!("SKIPPED: this user may not make network namespaces; root may");
        return;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("tests run in threads of their name");
    let again = Command::new("unshare")
        .args(user)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{test}: {text}");
}

/// A network namespace, as long as this is there.
pub struct Namespace(Child);

impl Namespace {
    pub fn new() -> Self {
        // Should this process be killed, it does not stay for ever.
        let child = Command::new("unshare")
            .args(["--net", "sleep", "600"])
            .spawn();
        let namespace = Self(child.unwrap());
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", namespace.0.id());
        eventually("a namespace", || {
            std::fs::read_link(&path).is_ok_and(|theirs| theirs != own)
        });
        namespace.run("ip link set lo up");
        namespace
    }

    pub fn place(&self) -> Place {
        Some(self.0.id())
    }

    /// Runs commands in it, one a line.
    pub fn run(&self, commands: &str) {
        let status = Command::new("nsenter")
            .args([
                "-t",
                &self.0.id().to_string(),
                "-n",
                "sh",
                "-e",
                "-c",
                commands,
            ])
            .status();
        assert!(status.unwrap().success(), "{commands}");
    }

    /// Does something in it: sockets that are opened stay in it.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.0.id());
        let enter = || {
            let namespace = std::fs::File::open(path).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            what()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    /// A cable to another one: this end has this name and address, the other those.
    pub fn cable(&self, (name, address): (&str, &str), to: &Self, (far, there): (&str, &str)) {
        self.run(&format!(
            "ip link add {name} type veth peer name {far} netns {}\n\
             ip link set {name} up",
            to.0.id()
        ));
        to.run(&format!("ip link set {far} up"));
        if !address.is_empty() {
            self.run(&format!("ip addr add {address} dev {name}"));
        }
        to.run(&format!("ip addr add {there} dev {far}"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
