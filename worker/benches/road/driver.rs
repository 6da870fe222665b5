use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::requests::Requests;
use crate::{Failed, cpu, failed};

/// How requests come.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// Each connection sends its next request as soon as the last one is answered.
    Full,
    /// So many per second, whether or not earlier ones are answered.
    Steady(u32),
}

/// One request that was answered 200.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub number: usize,
    /// When, in microseconds of the system's clock.
    pub at: i64,
    pub answered_after: Duration,
}

/// What the driver saw.
#[derive(Debug, Default)]
pub struct Driven {
    pub sent: Vec<Sent>,
    /// Answers other than 200, by status; 0 for a connection that broke.
    pub refused: BTreeMap<u16, usize>,
    /// From the first request to the last answer.
    pub took: Duration,
    /// Processor seconds of the driver itself.
    pub cpu: f64,
}

/// Sends for `seconds`, or until the requests are used up. One thread: it never competes with itself.
pub fn drive(
    address: SocketAddr,
    requests: &Arc<Requests>,
    connections: u16,
    pace: Pace,
    seconds: f64,
) -> Result<Driven, Failed> {
    let requests = Arc::clone(requests);
    let thread = std::thread::Builder::new().name("driver".to_owned()).spawn(move || -> Result<Driven, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let cpu = cpu::of_this_thread();
        let mut driven =
            LocalSet::new().block_on(&runtime, drive_all(address, requests, connections, pace, seconds))?;
        driven.cpu = cpu::of_this_thread() - cpu;
        Ok(driven)
    })?;
    thread.join().unwrap_or_else(|_| failed("the driver panicked"))
}

async fn drive_all(
    address: SocketAddr,
    requests: Arc<Requests>,
    connections: u16,
    pace: Pace,
    seconds: f64,
) -> Result<Driven, Failed> {
    let mut streams = Vec::with_capacity(connections.into());
    for _ in 0..connections {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let started = Instant::now();
    let work = Rc::new(Work {
        requests,
        pace,
        started,
        deadline: started + Duration::from_secs_f64(seconds),
        next: Cell::new(0),
        driven: RefCell::new(Driven::default()),
    });
    let tasks: Vec<_> =
        streams.into_iter().map(|stream| tokio::task::spawn_local(Rc::clone(&work).send_on(stream))).collect();
    for task in tasks {
        task.await?;
    }
    let mut driven = work.driven.take();
    driven.took = started.elapsed();
    Ok(driven)
}

/// What the connections share.
struct Work {
    requests: Arc<Requests>,
    pace: Pace,
    started: Instant,
    deadline: Instant,
    next: Cell<usize>,
    driven: RefCell<Driven>,
}

impl Work {
    async fn send_on(self: Rc<Self>, mut stream: TcpStream) {
        let mut buffer = Vec::with_capacity(1024);
        while let Some((number, due)) = self.take() {
            if let Some(due) = due {
                tokio::time::sleep_until(due.into()).await;
            }
            // A request that had to wait for its connection counts from when it was due.
            let late = due.map_or(Duration::ZERO, |due| due.elapsed()).saturating_sub(TIMER);
            let (started, at) = (Instant::now(), now() - late.as_micros() as i64);
            let Some(bytes) = self.requests.get(number) else { return };
            let status = exchange(&mut stream, bytes, &mut buffer).await.unwrap_or(0);
            let mut driven = self.driven.borrow_mut();
            if status == 200 {
                driven.sent.push(Sent { number, at, answered_after: started.elapsed() + late });
            } else {
                *driven.refused.entry(status).or_default() += 1;
                if status == 0 {
                    return;
                }
            }
        }
    }

    /// The next request's number, and when it is due.
    fn take(&self) -> Option<(usize, Option<Instant>)> {
        let number = self.next.get();
        let due = match self.pace {
            Pace::Full => None,
            Pace::Steady(rate) => Some(self.started + Duration::from_secs(1) * number as u32 / rate),
        };
        if number >= self.requests.len() || due.unwrap_or_else(Instant::now) >= self.deadline {
            return None;
        }
        self.next.set(number + 1);
        Some((number, due))
    }
}

/// How late the timer itself may be.
const TIMER: Duration = Duration::from_millis(2);

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}

/// Sends one request and reads its answer. Returns the status.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> std::io::Result<u16> {
    stream.write_all(request).await?;
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(status) = complete_answer(buffer) {
            return Ok(status);
        }
    }
}

/// The status, once the answer is there to its last byte.
fn complete_answer(bytes: &[u8]) -> Option<u16> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(bytes.get(..head)?).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    let status = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    (bytes.len() >= head + 4 + length).then_some(status)
}
