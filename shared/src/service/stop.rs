use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The wish to stop. Everybody holds a copy; once said it stays said.
#[derive(Debug, Clone)]
pub struct Stop {
    said: watch::Sender<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        Stop { said: watch::Sender::new(false) }
    }
}

impl Stop {
    pub fn say(&self) {
        self.said.send_replace(true);
    }

    pub fn is_said(&self) -> bool {
        *self.said.borrow()
    }

    /// Resolves once the wish was said.
    pub async fn wait(&self) {
        // The sender lives as long as `self`, so this ends only by the value.
        let _ = self.said.subscribe().wait_for(|said| *said).await;
    }

    /// Says it when the process is told to end: SIGTERM, or Ctrl-C.
    pub async fn on_signal(self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => log::info!("stopping: SIGTERM"),
            _ = interrupt.recv() => log::info!("stopping: SIGINT"),
        }
        self.say();
        Ok(())
    }
}
