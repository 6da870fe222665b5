use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{App, HttpServer, web};
use shared::sealing::Sealer;
use shared::service::{AdminListener, Metrics, Stop};
use shared::store::{self, Pool};
use tokio::sync::mpsc;

use crate::endpoints::Endpoints;
use crate::metrics::IngressMetrics;
use crate::refusals::RefusalLog;
use crate::relay::Relay;
use crate::settings::{Settings, StartError};
use crate::webhook::{self, Intake};
use crate::writer::Writers;

/// New events that may wait for the relay in memory. The outbox holds them anyway.
const FAST_PATH: usize = 16_384;
/// How long requests that were begun may take to be answered after the signal to stop.
const DRAIN_SECONDS: u64 = 15;
/// Connections beside the writers': endpoints, refusals, the relay's sweep and its bookkeeping, readiness.
const OTHER_CONNECTIONS: u32 = 5;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(75);
const PARTITIONS_AHEAD: i32 = 8;
const PARTITION_CHECK: Duration = Duration::from_secs(3600);

/// Runs the ingress until it is told to stop.
pub fn run(settings: Settings) -> Result<(), StartError> {
    settings.logs.start();
    actix_web::rt::System::new().block_on(serve(settings))
}

async fn serve(settings: Settings) -> Result<(), StartError> {
    let pool = settings.database.pool("ingress", u32::from(settings.ingress_writers) + OTHER_CONNECTIONS)?;
    let sealer = Arc::new(settings.sealing.sealer()?);
    let (url, topology) = (settings.broker.url()?, settings.broker.topology()?);
    warn_about_plaintext(&sealer);
    let mut registry = Metrics::of("ingress");
    let metrics = IngressMetrics::register(registry.registry());
    let (stop, relay_stop) = (Stop::default(), Stop::default());

    let (fast_sender, fast_path) = mpsc::channel(FAST_PATH);
    let (queue, writers) = Writers::start(settings.ingress_writers, settings.queue_length(), &pool, &fast_sender)
        .map_err(|error| StartError::System(error.kind()))?;
    drop(fast_sender);
    let (refusals, recorder) = RefusalLog::new(pool.clone(), sealer.clone());
    let endpoints = Endpoints::default();
    let intake = web::Data::new(Intake {
        endpoints: endpoints.clone(),
        sealer: sealer.clone(),
        queue,
        refusals,
        metrics: metrics.clone(),
        body_limit: settings.body_limit(),
        body_timeout: settings.body_timeout(),
    });
    let admin = AdminListener::bind(&settings.ingress_admin_listen, registry, pool.clone())
        .map_err(|error| StartError::Bind("INGRESS_ADMIN_LISTEN", error.kind()))?;
    let public = HttpServer::new(move || App::new().app_data(intake.clone()).configure(routes))
        .disable_signals()
        .shutdown_timeout(DRAIN_SECONDS)
        .client_request_timeout(HEAD_TIMEOUT)
        .keep_alive(KEEP_ALIVE)
        .bind(&settings.ingress_listen)
        .map_err(|error| StartError::Bind("INGRESS_LISTEN", error.kind()))?;
    let address = public.addrs().first().copied().ok_or(StartError::System(std::io::ErrorKind::AddrNotAvailable))?;
    announce(&settings, address, admin.address)?;

    tokio::spawn(endpoints.keep_fresh(pool.clone(), sealer, stop.clone()));
    tokio::spawn(keep_partitions(pool.clone(), stop.clone()));
    let recorder = tokio::spawn(recorder.run(relay_stop.clone()));
    let relay = Relay { pool, url, topology, metrics, fast_path, stop: relay_stop.clone() };
    let mut relay = tokio::spawn(relay.run());
    tokio::spawn(admin.server);
    tokio::spawn(stop.clone().on_signal());

    // The order of stopping: no new requests, answer those that were begun, commit what is queued, publish what was
    // committed. Dropping the server drops the last sender of the writers' queue.
    let public = public.run();
    let handle = public.handle();
    let drained = tokio::spawn(public);
    tokio::select! {
        () = stop.wait() => {}
        _ = &mut relay => {
            // Without its relay the ingress would accept what nobody publishes: better that its supervisor starts it anew.
            log::error!("the relay ended by itself; stopping");
            stop.say();
        }
    }
    handle.stop(true).await;
    let _ = drained.await;
    let _ = tokio::task::spawn_blocking(move || writers.join()).await;
    relay_stop.say();
    if !relay.is_finished() {
        let _ = relay.await;
    }
    let _ = recorder.await;
    admin.handle.stop(false).await;
    log::info!("stopped");
    Ok(())
}

fn routes(config: &mut web::ServiceConfig) {
    let resource = web::resource(["/webhooks/{provider}/{endpoint}", "/webhooks/{provider}/{endpoint}/"])
        .route(web::post().to(webhook::receive))
        .default_service(web::route().to(webhook::wrong_method));
    config.service(resource);
}

fn warn_about_plaintext(sealer: &Sealer) {
    if sealer.is_plaintext() {
        log::warn!("ALLOW_PLAINTEXT_PAYLOADS=1: payloads and secrets are stored unencrypted. Development only");
    }
}

fn announce(settings: &Settings, public: SocketAddr, admin: SocketAddr) -> Result<(), StartError> {
    log::info!("listening on http://{public}, privately on http://{admin}");
    let Some(path) = &settings.ingress_address_file else { return Ok(()) };
    // Written beside and moved into place, so that a reader sees all of it or nothing.
    let beside = path.with_extension("partial");
    let write = |path| -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        writeln!(file, "public={public}\nadmin={admin}")
    };
    write(&beside).and_then(|()| std::fs::rename(&beside, path)).map_err(|e| StartError::AddressFile(e.kind()))
}

/// Partitions are made weeks ahead. If this fails for weeks, the writer still makes the one it misses.
async fn keep_partitions(pool: Pool, stop: Stop) {
    let mut ticks = tokio::time::interval(PARTITION_CHECK);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.wait() => return,
        }
        let pool = pool.clone();
        let made =
            tokio::task::spawn_blocking(move || store::ensure_partitions(&mut *store::get(&pool)?, PARTITIONS_AHEAD));
        if let Ok(Err(error)) = made.await {
            log::warn!("partitions: not checked: {error}");
        }
    }
}
