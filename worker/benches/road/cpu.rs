//! Processor time from `/proc`, in seconds. Where there is none (macOS), every share reads as zero.

use std::fs;

/// Linux reports processor time in hundredths of a second, whatever its own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Whose processor time is told apart.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shares {
    pub ingress: f64,
    pub workers: f64,
    pub postgres: f64,
    pub broker: f64,
    pub driver: f64,
    /// Everything else on this machine: the bench's own reader, the kernel, and whoever works here besides.
    pub others: f64,
}

/// The processes to watch.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    pub ingress: u32,
    pub workers: Vec<u32>,
    /// The postmaster; its children count with it.
    pub postgres: u32,
    pub broker: Option<u32>,
}

impl Watched {
    /// Seconds used so far.
    pub fn used(&self) -> Shares {
        Shares {
            ingress: of_process(self.ingress),
            workers: self.workers.iter().map(|pid| of_process(*pid)).sum(),
            postgres: of_family(self.postgres),
            broker: self.broker.map_or(0.0, of_process),
            driver: 0.0,
            others: of_machine(),
        }
    }
}

impl Shares {
    /// All that belongs to the road, and the driver.
    pub fn sum(&self) -> f64 {
        self.ingress + self.workers + self.postgres + self.broker + self.driver
    }

    /// Seconds used since `earlier`; `driver` is what the driver counted itself.
    pub fn since(&self, earlier: &Shares, driver: f64) -> Shares {
        let used = Shares {
            ingress: self.ingress - earlier.ingress,
            workers: self.workers - earlier.workers,
            postgres: self.postgres - earlier.postgres,
            broker: self.broker - earlier.broker,
            driver,
            others: 0.0,
        };
        Shares { others: (self.others - earlier.others - used.sum()).max(0.0), ..used }
    }

    /// Seconds become cores, or seconds an event.
    pub fn per(&self, count: f64) -> Shares {
        Shares {
            ingress: self.ingress / count,
            workers: self.workers / count,
            postgres: self.postgres / count,
            broker: self.broker / count,
            driver: self.driver / count,
            others: self.others / count,
        }
    }
}

/// Fields of a `stat` file after the command name: state, parent, … (proc(5) counts state as field 3).
fn fields(path: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(path).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

fn ticks(fields: &[String], range: std::ops::RangeInclusive<usize>) -> f64 {
    fields.get(range).into_iter().flatten().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
        / TICKS_PER_SECOND
}

/// User and system time: fields 14 and 15.
fn of_process(pid: u32) -> f64 {
    fields(&format!("/proc/{pid}/stat")).map_or(0.0, |fields| ticks(&fields, 11..=12))
}

/// User, nice and system time of all cores together: the first line of `/proc/stat`.
fn of_machine() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<String> =
        text.lines().next().unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect();
    ticks(&fields, 1..=3)
}

pub fn of_this_thread() -> f64 {
    // Nanoseconds: a thread that ran for a second deserves better than hundredths.
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The process, its children, and those of its children that have ended (fields 16 and 17).
fn of_family(parent: u32) -> f64 {
    let own = fields(&format!("/proc/{parent}/stat")).map_or(0.0, |fields| ticks(&fields, 11..=14));
    let name = parent.to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = processes.filter_map(|entry| {
        let fields = fields(&format!("{}/stat", entry.path().display()))?;
        (fields.get(1) == Some(&name)).then(|| ticks(&fields, 11..=12))
    });
    own + children.sum::<f64>()
}

/// The parent of a process.
pub fn parent_of(pid: i32) -> Option<u32> {
    fields(&format!("/proc/{pid}/stat"))?.get(1)?.parse().ok()
}
