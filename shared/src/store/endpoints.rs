use std::time::Duration;

use diesel::connection::Connection as _;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Audit, Bind, Sql, StoreError, record_audit};
use crate::domain::{Environment, Time};
use crate::intake::{Endpoint, KeyRing};
use crate::providers::{Provider, SigningKey};
use crate::sealing::{Column, OpenError, SealError, Sealer};

/// Why endpoints or keys could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum EndpointStoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("endpoint {0} exists already")]
    Exists(String),
    #[error("no endpoint {0}; webhookctl endpoints list shows those there are")]
    NotFound(String),
}

#[derive(QueryableByName)]
struct Revision {
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

impl From<diesel::result::Error> for EndpointStoreError {
    fn from(error: diesel::result::Error) -> Self {
        EndpointStoreError::Store(error.into())
    }
}

/// A number that changes with every change of an endpoint or key.
pub fn revision(connection: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(Sql::new("SELECT revision FROM webhook.endpoints_revision", &[]).get_result::<Revision>(connection)?.revision)
}

/// An endpoint as people look at it.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct EndpointRow {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Text)]
    pub provider: String,
    #[diesel(sql_type = Text)]
    pub slug: String,
    #[diesel(sql_type = Text)]
    pub account: String,
    #[diesel(sql_type = Array<Text>)]
    pub other_accounts: Vec<String>,
    #[diesel(sql_type = Text)]
    pub environment: String,
    #[diesel(sql_type = Bool)]
    pub active: bool,
    #[diesel(sql_type = Nullable<Integer>)]
    pub tolerance_seconds: Option<i32>,
    #[diesel(sql_type = SmallInt)]
    pub mismatch_status: i16,
    #[diesel(sql_type = BigInt)]
    pub active_keys: i64,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: Time,
}

/// Every endpoint, by provider and slug.
pub fn list_endpoints(connection: &mut PgConnection) -> Result<Vec<EndpointRow>, StoreError> {
    const LIST: &str = "
        SELECT e.id, e.provider, e.slug, e.account, e.other_accounts, e.environment, e.active, e.tolerance_seconds,
               e.mismatch_status, e.created_at,
               (SELECT count(*) FROM webhook.endpoint_keys k
                 WHERE k.endpoint_id = e.id AND k.active_from <= now() AND coalesce(k.active_until > now(), true)) AS active_keys
          FROM webhook.endpoints e
         ORDER BY e.provider, e.slug";
    Ok(Sql::new(LIST, &[]).load(connection)?)
}

/// A key as people look at it. The secret stays sealed; the fingerprint tells keys apart.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct KeyRow {
    #[diesel(sql_type = Text)]
    pub provider: String,
    #[diesel(sql_type = Text)]
    pub slug: String,
    #[diesel(sql_type = Integer)]
    pub version: i32,
    #[diesel(sql_type = Text)]
    pub fingerprint: String,
    #[diesel(sql_type = Timestamptz)]
    pub active_from: Time,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub active_until: Option<Time>,
}

/// Every key, by endpoint and version.
pub fn list_keys(connection: &mut PgConnection) -> Result<Vec<KeyRow>, StoreError> {
    const LIST: &str = "
        SELECT e.provider, e.slug, k.version, k.fingerprint, k.active_from, k.active_until
          FROM webhook.endpoint_keys k JOIN webhook.endpoints e ON e.id = k.endpoint_id
         ORDER BY e.provider, e.slug, k.version";
    Ok(Sql::new(LIST, &[]).load(connection)?)
}

/// What an operator says about a new endpoint.
#[derive(Debug, Clone)]
pub struct NewEndpoint<'a> {
    pub provider: Provider,
    pub slug: &'a str,
    pub account: &'a str,
    pub other_accounts: &'a [&'a str],
    pub environment: Environment,
    pub tolerance_seconds: Option<i32>,
    pub mismatch_status: i16,
}

/// Adds an endpoint together with its first key. `secret` was checked by [`crate::providers::check_secret`].
pub fn add_endpoint(
    connection: &mut PgConnection,
    sealer: &Sealer,
    audit: Audit<'_>,
    new: &NewEndpoint<'_>,
    secret: &[u8],
) -> Result<Uuid, EndpointStoreError> {
    const INSERT: &str = "
        INSERT INTO webhook.endpoints (id, provider, slug, account, other_accounts, environment, tolerance_seconds,
                                       mismatch_status)
        VALUES ($1, $2, $3, $4, $5, $6, nullif($7, 0), $8)
        ON CONFLICT (provider, slug) DO NOTHING";
    let name = format!("{}/{}", new.provider.as_str(), new.slug);
    connection.transaction(|connection| {
        let id = Uuid::now_v7();
        let binds = [
            Bind::Uuid(id),
            Bind::Text(new.provider.as_str()),
            Bind::Text(new.slug),
            Bind::Text(new.account),
            Bind::Texts(new.other_accounts),
            Bind::Text(new.environment.as_str()),
            Bind::Int(new.tolerance_seconds.unwrap_or(0)),
            Bind::Int(i32::from(new.mismatch_status)),
        ];
        if Sql::new(INSERT, &binds).run(connection)? == 0 {
            return Err(EndpointStoreError::Exists(name));
        }
        insert_key(connection, sealer, id, secret)?;
        record_audit(connection, audit, "endpoints.add", &name)?;
        Ok(id)
    })
}

/// Adds a further key to an endpoint and returns its version. The keys before it stay active.
pub fn add_key(
    connection: &mut PgConnection,
    sealer: &Sealer,
    audit: Audit<'_>,
    provider: Provider,
    slug: &str,
    secret: &[u8],
) -> Result<i32, EndpointStoreError> {
    let name = format!("{}/{slug}", provider.as_str());
    connection.transaction(|connection| {
        // Locked, so that two keys added at once do not get one version.
        const FIND: &str = "SELECT id FROM webhook.endpoints WHERE provider = $1 AND slug = $2 FOR UPDATE";
        let binds = [Bind::Text(provider.as_str()), Bind::Text(slug)];
        let found: Vec<EndpointId> = Sql::new(FIND, &binds).load(connection)?;
        let endpoint = found.first().ok_or_else(|| EndpointStoreError::NotFound(name.clone()))?;
        let version = insert_key(connection, sealer, endpoint.id, secret)?;
        record_audit(connection, audit, "keys.add", &format!("{name} v{version}"))?;
        Ok(version)
    })
}

#[derive(QueryableByName)]
struct EndpointId {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Integer)]
    version: i32,
}

fn insert_key(
    connection: &mut PgConnection,
    sealer: &Sealer,
    endpoint: Uuid,
    secret: &[u8],
) -> Result<i32, EndpointStoreError> {
    const INSERT: &str = "
        INSERT INTO webhook.endpoint_keys (id, secret, fingerprint, endpoint_id, version)
        SELECT $1, $2, $3, endpoint, (SELECT coalesce(max(version), 0) + 1 FROM webhook.endpoint_keys WHERE endpoint_id = endpoint)
          FROM (SELECT $4 AS endpoint) AS input
        RETURNING version";
    let id = Uuid::now_v7();
    let sealed = sealer.seal(Column::EndpointSecret, id, secret)?;
    let fingerprint = fingerprint(secret);
    let binds = [Bind::Uuid(id), Bind::Bytes(&sealed), Bind::Text(&fingerprint), Bind::Uuid(endpoint)];
    let row: Version = Sql::new(INSERT, &binds).get_result(connection)?;
    Ok(row.version)
}

/// Tells secrets apart without telling them: eight hex digits of a hash.
fn fingerprint(secret: &[u8]) -> String {
    let digest = Sha256::digest([b"hookledger endpoint secret\0", secret].concat());
    hex::encode(digest.get(..4).unwrap_or_default())
}

#[derive(QueryableByName)]
struct SealedKey {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    endpoint_id: Uuid,
    #[diesel(sql_type = Integer)]
    version: i32,
    #[diesel(sql_type = Binary)]
    secret: Vec<u8>,
    #[diesel(sql_type = Timestamptz)]
    active_from: Time,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    active_until: Option<Time>,
}

/// Reads every endpoint with its keys, opened. Keys that cannot be opened are logged and left out. Endpoints of providers that this version does not know are left out.
pub fn load_key_ring(connection: &mut PgConnection, sealer: &Sealer) -> Result<KeyRing, EndpointStoreError> {
    const KEYS: &str = "SELECT id, endpoint_id, version, secret, active_from, active_until
                          FROM webhook.endpoint_keys ORDER BY endpoint_id, version";
    let endpoints = list_endpoints(connection)?;
    let sealed: Vec<SealedKey> = Sql::new(KEYS, &[]).load(connection)?;
    let mut known = Vec::new();
    for row in endpoints {
        let Ok(provider) = row.provider.parse::<Provider>() else { continue };
        let own = sealed.iter().filter(|key| key.endpoint_id == row.id);
        let (keys, unreadable): (Vec<_>, Vec<_>) = own.map(|key| open_key(sealer, key)).partition(Result::is_ok);
        for (version, error) in unreadable.iter().filter_map(|key| key.as_ref().err()) {
            // The other endpoints shall not suffer.
            log::error!("endpoint {provider}/{}: key version {version} cannot be opened: {error}", row.slug);
        }
        let has_unreadable_keys = !unreadable.is_empty();
        known.push(endpoint(row, provider, keys.into_iter().flatten().collect(), has_unreadable_keys));
    }
    Ok(KeyRing::new(known))
}

fn open_key(sealer: &Sealer, key: &SealedKey) -> Result<SigningKey, (i32, OpenError)> {
    let secret = sealer.open(Column::EndpointSecret, key.id, &key.secret).map_err(|error| (key.version, error))?;
    Ok(SigningKey { version: key.version, secret, active_from: key.active_from, active_until: key.active_until })
}

fn endpoint(row: EndpointRow, provider: Provider, keys: Vec<SigningKey>, has_unreadable_keys: bool) -> Endpoint {
    Endpoint {
        id: row.id,
        slug: row.slug,
        provider,
        account: row.account,
        other_accounts: row.other_accounts,
        environment: Environment::stored(&row.environment),
        active: row.active,
        tolerance: row.tolerance_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs),
        mismatch_status: u16::try_from(row.mismatch_status).unwrap_or(409),
        keys,
        has_unreadable_keys,
    }
}
