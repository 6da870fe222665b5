use std::collections::BTreeMap;

use diesel::PgConnection;
use diesel::connection::Connection as _;
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

/// A refused request that is kept as a sample.
#[derive(Debug, Clone)]
pub struct NewRefusal {
    pub id: Uuid,
    pub received_at: Time,
    pub provider: &'static str,
    pub endpoint_id: Option<Uuid>,
    pub reason: &'static str,
    pub status: i16,
    pub claimed_event_id: Option<String>,
    pub body_sha256: [u8; 32],
    pub body_bytes: i32,
    pub sealed_prefix: Vec<u8>,
}

/// What refused requests are counted by. Requests to no known endpoint count under the nil id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    pub minute: Time,
    pub endpoint_id: Uuid,
    pub reason: &'static str,
}

/// Adds the exact counts and the kept samples, together.
pub fn record_refusals(
    connection: &mut PgConnection,
    writer: Uuid,
    counts: &BTreeMap<CountKey, i64>,
    refusals: &[NewRefusal],
) -> Result<(), StoreError> {
    connection.transaction(|connection| {
        add_counts(connection, writer, counts)?;
        insert_samples(connection, refusals)
    })
}

fn add_counts(connection: &mut PgConnection, writer: Uuid, counts: &BTreeMap<CountKey, i64>) -> Result<(), StoreError> {
    const ADD: &str = "
        WITH input AS (SELECT * FROM unnest($1, $2, $3, $4) AS t (minute, endpoint_id, reason, requests))
        INSERT INTO webhook.intake_counts (minute, endpoint_id, writer, outcome, reason, requests)
        SELECT minute, endpoint_id, $5, 'rejected', reason, requests FROM input
        ON CONFLICT (minute, endpoint_id, writer, outcome, reason)
        DO UPDATE SET requests = intake_counts.requests + excluded.requests";
    let minutes: Vec<Time> = counts.keys().map(|key| key.minute).collect();
    let endpoints: Vec<Uuid> = counts.keys().map(|key| key.endpoint_id).collect();
    let reasons: Vec<&str> = counts.keys().map(|key| key.reason).collect();
    let requests: Vec<i64> = counts.values().copied().collect();
    let binds = [
        Bind::Times(&minutes),
        Bind::Uuids(&endpoints),
        Bind::Texts(&reasons),
        Bind::BigInts(&requests),
        Bind::Uuid(writer),
    ];
    Sql::new(ADD, &binds).run(connection)?;
    Ok(())
}

fn insert_samples(connection: &mut PgConnection, refusals: &[NewRefusal]) -> Result<(), StoreError> {
    const INSERT: &str = "
        INSERT INTO webhook.refusals (id, received_at, provider, endpoint_id, reason, http_status, claimed_event_id,
                                      body_sha256, body_bytes, body_prefix)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let ids: Vec<Uuid> = refusals.iter().map(|r| r.id).collect();
    let received_at: Vec<Time> = refusals.iter().map(|r| r.received_at).collect();
    let providers: Vec<&str> = refusals.iter().map(|r| r.provider).collect();
    let endpoints: Vec<Option<Uuid>> = refusals.iter().map(|r| r.endpoint_id).collect();
    let reasons: Vec<&str> = refusals.iter().map(|r| r.reason).collect();
    let statuses: Vec<i16> = refusals.iter().map(|r| r.status).collect();
    let claimed: Vec<Option<&str>> = refusals.iter().map(|r| r.claimed_event_id.as_deref()).collect();
    let hashes: Vec<&[u8]> = refusals.iter().map(|r| r.body_sha256.as_slice()).collect();
    let sizes: Vec<i32> = refusals.iter().map(|r| r.body_bytes).collect();
    let prefixes: Vec<&[u8]> = refusals.iter().map(|r| r.sealed_prefix.as_slice()).collect();
    let binds = [
        Bind::Uuids(&ids),
        Bind::Times(&received_at),
        Bind::Texts(&providers),
        Bind::OptionalUuids(&endpoints),
        Bind::Texts(&reasons),
        Bind::SmallInts(&statuses),
        Bind::OptionalTexts(&claimed),
        Bind::ByteStrings(&hashes),
        Bind::Ints(&sizes),
        Bind::ByteStrings(&prefixes),
    ];
    Sql::new(INSERT, &binds).run(connection)?;
    Ok(())
}
