//! A server that does nothing but answer: what the driver and the sockets cost by themselves.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::driver::{self, Pace};
use crate::requests::Requests;
use crate::{Failed, failed};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const PREPARED: usize = 20_000;

/// What the driver manages against nothing.
#[derive(Debug, Clone, Copy)]
pub struct NullPoint {
    pub connections: u16,
    pub per_second: f64,
    /// Processor time that the driver takes for one request, in microseconds.
    pub driver_micros: f64,
}

/// Sends the same bytes over as many connections as a real point does.
pub fn measure(connections: u16, seconds: f64) -> Result<NullPoint, Failed> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (bound, address) = std::sync::mpsc::channel();
    let requests = Arc::new(Requests::prepare("null", PREPARED)?);
    let request_bytes = requests.get(0).map_or(0, <[u8]>::len);
    let server = std::thread::Builder::new().name("null server".to_owned()).spawn(move || -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(bound, stopped, request_bytes))
    })?;
    let address: SocketAddr = address.recv()?;
    let driven = driver::drive(address, &requests, connections, Pace::Full, seconds)?;
    // The server may be gone already; then joining it says why.
    let _ = stop.send(());
    server.join().unwrap_or_else(|_| failed("the null server panicked"))?;
    let count = driven.sent.len() as f64;
    Ok(NullPoint {
        connections,
        per_second: count / driven.took.as_secs_f64(),
        driver_micros: driven.cpu / count * 1e6,
    })
}

async fn serve(
    bound: std::sync::mpsc::Sender<SocketAddr>,
    mut stopped: oneshot::Receiver<()>,
    request_bytes: usize,
) -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    bound.send(listener.local_addr()?)?;
    loop {
        tokio::select! {
            _ = &mut stopped => return Ok(()),
            accepted = listener.accept() => { tokio::spawn(answer(accepted?.0, request_bytes)); }
        }
    }
}

/// All requests are equally long: counting bytes is enough to know where one ends.
async fn answer(mut stream: TcpStream, request_bytes: usize) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(2 * request_bytes);
    loop {
        buffer.clear();
        while buffer.len() < request_bytes {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        stream.write_all(ANSWER).await?;
    }
}
