use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server of the test's own, which it may stop and start. Removed with the value.
pub struct Servers {
    dir: PathBuf,
    addresses: HashMap<String, String>,
}

impl Servers {
    /// `only` is `db` or `broker`.
    pub fn start(only: &str) -> Servers {
        let dir = std::env::temp_dir().join(format!("hookledger-{only}-{}", std::process::id()));
        let mut servers = Servers { dir, addresses: HashMap::new() };
        servers.run(&["start", "DIR", "--only", only]);
        let text = std::fs::read_to_string(servers.dir.join("env")).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        servers.addresses = pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned())).collect();
        servers
    }

    pub fn address(&self, name: &str) -> &str {
        &self.addresses[name]
    }

    /// `deploy/servers COMMAND` on this server.
    pub fn command(&self, command: &str) {
        self.run(&[command, "DIR"]);
    }

    /// `rabbitmqctl ARGUMENT…` on this server.
    pub fn broker_ctl(&self, arguments: &[&str]) {
        self.run(&[&["broker-ctl", "DIR"], arguments].concat());
    }

    fn run(&self, arguments: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/servers");
        let dir = self.dir.to_str().unwrap();
        let arguments = arguments.iter().map(|argument| if *argument == "DIR" { dir } else { argument });
        let output = Command::new(script).args(arguments).output().unwrap();
        assert!(output.status.success(), "deploy/servers: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/servers");
        let _ = Command::new(script).arg("remove").arg(&self.dir).output();
    }
}
