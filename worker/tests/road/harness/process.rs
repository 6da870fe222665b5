use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::wait_for;

/// One of our binaries, running. It is killed with the value.
pub struct Process {
    child: Child,
    pub log: PathBuf,
    addresses: HashMap<String, String>,
}

#[derive(Clone, Copy)]
pub enum Signal {
    Terminate,
    Stop,
    Continue,
}

/// The binaries lie beside each other; `deploy/test` builds them all.
fn binary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_worker")).with_file_name(name)
}

pub fn run(name: &str, arguments: &[&str], environment: Vec<(String, String)>) -> (i32, String, String) {
    let output = Command::new(binary(name)).args(arguments).envs(environment).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

impl Process {
    /// Starts it and waits until it has bound its addresses.
    pub fn start(
        name: &str,
        arguments: &[&str],
        address_variable: &str,
        dir: &Path,
        environment: Vec<(String, String)>,
    ) -> Process {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let address_file = dir.join(format!("{name}-{number}.address"));
        let log = dir.join(format!("{name}-{number}.log"));
        let child = Command::new(binary(name))
            .args(arguments)
            .envs(environment)
            .env(address_variable, &address_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut process = Process { child, log, addresses: HashMap::new() };
        wait_for(&format!("{name} to bind its addresses"), || address_file.exists() || process.has_ended());
        assert!(!process.has_ended(), "{name} ended at once:\n{}", process.logged());
        let text = std::fs::read_to_string(&address_file).unwrap();
        process.addresses =
            text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        process
    }

    /// `http://host:port` of the public listener.
    pub fn public(&self) -> String {
        format!("http://{}", self.addresses["public"])
    }

    /// `http://host:port` of the private listener.
    pub fn admin(&self) -> String {
        format!("http://{}", self.addresses["admin"])
    }

    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Terminate => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Tells it to stop and waits for it.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::Terminate);
        self.child.wait().unwrap()
    }

    /// Kills it at this very instant.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
