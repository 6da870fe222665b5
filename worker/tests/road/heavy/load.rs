use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::{Sender, stripe};

/// Threads that send events as a provider does: each event again and again until it is answered 200.
pub struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Report>>,
}

/// What a load came to.
#[derive(Debug, Default)]
pub struct Report {
    /// The payments whose event was answered 200.
    pub accepted: BTreeSet<String>,
    /// How many answers of each status; 0 stands for no answer.
    pub answers: BTreeMap<u16, usize>,
}

impl Load {
    /// Sends from `threads` threads, each event under a payment of its own.
    pub fn start(sender: &Sender, threads: usize) -> Load {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let start = |thread| {
            let (sender, stop, sent) = (sender.clone(), Arc::clone(&stop), Arc::clone(&sent));
            std::thread::spawn(move || run(&sender, thread, &stop, &sent))
        };
        let threads = (0..threads).map(start).collect();
        Load { stop, sent, threads }
    }

    /// How many events were answered 200 so far.
    pub fn accepted(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until that many more events were answered 200.
    pub fn wait_for_more(&self, events: usize) {
        let goal = self.accepted() + events;
        crate::harness::wait_for(&format!("{goal} accepted events"), || self.accepted() >= goal);
    }

    /// Ends the load. Every event that was begun is sent until it is answered 200.
    pub fn finish(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().fold(Report::default(), |mut all, thread| {
            let report = thread.join().unwrap();
            all.accepted.extend(report.accepted);
            for (status, count) in report.answers {
                *all.answers.entry(status).or_default() += count;
            }
            all
        })
    }
}

fn run(sender: &Sender, thread: usize, stop: &AtomicBool, sent: &AtomicUsize) -> Report {
    let mut report = Report::default();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let suffix = format!("load{thread}x{number}");
        let event = stripe("charge.succeeded", &suffix, |_| {});
        loop {
            let status = sender.try_send(&event).map_or(0, |answer| answer.status);
            *report.answers.entry(status).or_default() += 1;
            if status == 200 {
                break;
            }
            // A provider waits before it comes again; so that the retries do not become the load.
            std::thread::sleep(Duration::from_millis(20));
        }
        sent.fetch_add(1, Ordering::Relaxed);
        report.accepted.insert(format!("pi_{suffix}"));
    }
    report
}
