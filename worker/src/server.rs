use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use shared::service::{AdminListener, Metrics, Stop};

use crate::housekeeping;
use crate::lane::LaneConsumer;
use crate::projector::Projector;
use crate::recorder::Recorder;
use crate::settings::{Command, RunSettings, Settings, StartError};

/// Connections beside one per lane: recorder, gauges, rescue, readiness.
const OTHER_CONNECTIONS: u32 = 3;

/// Runs the worker until it is told to stop.
pub fn run(settings: Settings) -> Result<(), StartError> {
    let Command::Run(settings) = settings.command;
    settings.logs.start();
    actix_web::rt::System::new().block_on(work(settings))
}

async fn work(settings: RunSettings) -> Result<(), StartError> {
    let lanes = u32::try_from(settings.lanes.len()).unwrap_or(u32::MAX);
    let pool = settings.database.pool("worker", lanes.saturating_add(OTHER_CONNECTIONS))?;
    let sealer = Arc::new(settings.sealing.sealer()?);
    let (url, topology) = (settings.broker.url()?, settings.broker.topology()?);
    let mut registry = Metrics::of("worker");
    let projector = Projector::new(pool.clone(), sealer, settings.retry_policy(), worker_name(), &mut registry);
    let metrics = projector.metrics.clone();
    let projector = Arc::new(projector);
    let admin = AdminListener::bind(&settings.worker_admin_listen, registry, pool.clone())
        .map_err(|error| StartError::Bind(error.kind()))?;
    announce(&settings, admin.address)?;

    let stop = Stop::default();
    let mut tasks = Vec::new();
    for lane in &settings.lanes {
        let consumer = LaneConsumer {
            lane: *lane,
            url: url.clone(),
            topology: topology.clone(),
            projector: Arc::clone(&projector),
            batch: settings.worker_batch,
            stop: stop.clone(),
        };
        tasks.push(tokio::spawn(consumer.run()));
    }
    let recorder = Recorder { url: url.clone(), topology: topology.clone(), projector, stop: stop.clone() };
    tasks.push(tokio::spawn(recorder.run()));
    tokio::spawn(housekeeping::keep_gauges(pool.clone(), metrics, stop.clone()));
    tokio::spawn(housekeeping::watch_for_orphans(pool.clone(), stop.clone()));
    tokio::spawn(housekeeping::rescue(pool, url, topology, stop.clone()));
    tokio::spawn(admin.server);
    tokio::spawn(stop.clone().on_signal());

    stop.wait().await;
    for task in tasks {
        let _ = task.await;
    }
    admin.handle.stop(false).await;
    log::info!("stopped");
    Ok(())
}

/// Where a failed attempt ran: host and process.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "worker" } else { host.trim() };
    format!("{host}/{}", std::process::id())
}

fn announce(settings: &RunSettings, admin: SocketAddr) -> Result<(), StartError> {
    log::info!("working, privately listening on http://{admin}");
    let Some(path) = &settings.worker_address_file else { return Ok(()) };
    let beside = path.with_extension("partial");
    let write = |path| -> std::io::Result<()> { writeln!(std::fs::File::create(path)?, "admin={admin}") };
    write(&beside).and_then(|()| std::fs::rename(&beside, path)).map_err(|e| StartError::AddressFile(e.kind()))
}
