use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::{Server, ServerHandle};
use actix_web::{App, HttpResponse, HttpServer, web};

use super::Metrics;
use crate::store::{self, Pool};

/// Whether the process can do its work: the database answers, and has the schema that this version needs. The broker is
/// left out on purpose: without it the ingress still accepts, and a worker has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    DatabaseUnavailable,
    SchemaBehind(usize),
}

impl Readiness {
    /// Asks the database.
    pub fn check(pool: &Pool) -> Self {
        let Ok(mut connection) = store::get(pool) else { return Readiness::DatabaseUnavailable };
        match store::pending_migrations(&mut connection) {
            Ok(0) => Readiness::Ready,
            Ok(pending) => Readiness::SchemaBehind(pending),
            Err(_) => Readiness::DatabaseUnavailable,
        }
    }
}

/// The private listener: `/live`, `/ready`, `/metrics`.
pub struct AdminListener {
    pub address: SocketAddr,
    pub handle: ServerHandle,
    pub server: Server,
}

impl AdminListener {
    /// Binds `address`; port 0 takes a free one.
    pub fn bind(address: &str, metrics: Metrics, pool: Pool) -> std::io::Result<Self> {
        let state = web::Data::from(Arc::new(State { metrics, pool }));
        let http = HttpServer::new(move || {
            App::new()
                .app_data(state.clone())
                .route("/live", web::get().to(live))
                .route("/ready", web::get().to(ready))
                .route("/metrics", web::get().to(metrics_text))
        });
        let http = http.workers(1).disable_signals().shutdown_timeout(1).bind(address)?;
        let address = http.addrs().first().copied().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        let server = http.run();
        Ok(AdminListener { address, handle: server.handle(), server })
    }
}

struct State {
    metrics: Metrics,
    pool: Pool,
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().body("live\n")
}

async fn ready(state: web::Data<State>) -> HttpResponse {
    let pool = state.pool.clone();
    match web::block(move || Readiness::check(&pool)).await {
        Ok(Readiness::Ready) => HttpResponse::Ok().body("ready\n"),
        Ok(Readiness::SchemaBehind(pending)) => HttpResponse::ServiceUnavailable()
            .body(format!("not ready: {pending} migrations are pending; run webhookctl migrate\n")),
        Ok(Readiness::DatabaseUnavailable) | Err(_) => {
            HttpResponse::ServiceUnavailable().body("not ready: the database does not answer\n")
        }
    }
}

async fn metrics_text(state: web::Data<State>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(state.metrics.text())
}
