//! The accept path: one statement commits inbox, raw event, outbox and count of a whole batch.

use std::collections::{BTreeMap, HashMap, HashSet};

use diesel::connection::Connection as _;
use diesel::sql_types::{Binary, Nullable, Text, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::{Environment, EventId, Lane, Time};
use crate::intake::Admission;
use crate::providers::SearchKeys;
use crate::sealing::{Column, SealError, Sealer};

/// A verified event, its body already sealed, ready to be committed.
#[derive(Debug, Clone)]
pub struct AcceptEvent {
    pub id: EventId,
    pub endpoint_id: Uuid,
    pub provider: &'static str,
    pub account_key: String,
    pub environment: Environment,
    pub event_id: String,
    pub event_type: String,
    pub api_version: Option<String>,
    pub occurred_at: Option<Time>,
    pub received_at: Time,
    pub lane: Lane,
    pub keys: SearchKeys,
    pub signature: String,
    pub auth_method: &'static str,
    pub key_version: i32,
    pub raw_sha256: [u8; 32],
    pub semantic_hash: [u8; 32],
    pub body_bytes: i32,
    pub sealed_body: Vec<u8>,
}

/// What became of one event of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Stored now.
    New,
    /// Stored before, with the same content.
    Replayed,
    /// Stored before, with other content: this delivery is kept in quarantine.
    Mismatch,
}

type DedupKey<'a> = (&'a str, &'a str, &'a str);

impl AcceptEvent {
    /// Gives an admitted event its id, and seals its body under it.
    pub fn seal(admission: Admission<'_>, sealer: &Sealer) -> Result<Self, SealError> {
        let id = EventId::at(admission.received_at);
        Ok(AcceptEvent {
            id,
            endpoint_id: admission.endpoint.id,
            provider: admission.endpoint.provider.as_str(),
            account_key: admission.account_key,
            environment: admission.environment,
            event_id: admission.envelope.event_id,
            event_type: admission.envelope.event_type,
            api_version: admission.envelope.api_version,
            occurred_at: admission.envelope.occurred_at,
            received_at: id.received_at(),
            lane: admission.envelope.lane,
            keys: admission.envelope.keys,
            signature: admission.signature_header,
            auth_method: admission.auth_method,
            key_version: admission.key_version,
            raw_sha256: admission.raw_sha256,
            semantic_hash: admission.envelope.semantic_hash,
            body_bytes: i32::try_from(admission.body.len()).map_err(|_| SealError)?,
            sealed_body: sealer.seal(Column::RawBody, id.uuid(), admission.body)?,
        })
    }

    fn dedup_key(&self) -> DedupKey<'_> {
        (self.provider, &self.account_key, &self.event_id)
    }
}

/// Commits a batch of verified events and says what became of each, in the order given. An error of the whole batch means
/// that none of it is stored, or that it is unknown; accepting the same batch again is safe.
///
/// `writer` names the rows of `intake_counts` that belong to the caller alone. The new outbox rows are claimed for
/// `claim_seconds`: the caller publishes them itself, and if it dies first, any sweep may.
pub fn accept(
    connection: &mut PgConnection,
    writer: Uuid,
    claim_seconds: i32,
    events: &[AcceptEvent],
) -> Result<Vec<Result<Accepted, StoreError>>, StoreError> {
    // Sorted, because two writers that insert overlapping keys in different order deadlock.
    let mut first_of_key: BTreeMap<DedupKey<'_>, &AcceptEvent> = BTreeMap::new();
    for event in events {
        first_of_key.entry(event.dedup_key()).or_insert(event);
    }
    let candidates: Vec<&AcceptEvent> = first_of_key.into_values().collect();
    let new = match insert_new(connection, writer, claim_seconds, &candidates) {
        Err(StoreError::NoPartition) => {
            ensure_partitions_of(connection, &candidates)?;
            insert_new(connection, writer, claim_seconds, &candidates)?
        }
        other => other?,
    };
    let repeats: Vec<&AcceptEvent> = events.iter().filter(|event| !new.contains(&event.id.uuid())).collect();
    if repeats.is_empty() {
        return Ok(vec![Ok(Accepted::New); events.len()]);
    }
    // What is new is committed by now: whatever becomes of the repeats is theirs alone.
    let outcomes = settle_repeats(connection, writer, &repeats);
    let outcome_of = |event: &AcceptEvent| {
        if new.contains(&event.id.uuid()) {
            return Ok(Accepted::New);
        }
        let outcomes = outcomes.as_ref().map_err(Clone::clone)?;
        outcomes.get(&event.id.uuid()).copied().ok_or(StoreError::Refused)
    };
    Ok(events.iter().map(outcome_of).collect())
}

fn ensure_partitions_of(connection: &mut PgConnection, events: &[&AcceptEvent]) -> Result<(), StoreError> {
    let times: Vec<Time> = events.iter().map(|event| event.received_at).collect();
    const ENSURE: &str = "SELECT webhook.ensure_raw_partition(week)
                            FROM (SELECT DISTINCT date_trunc('week', at) AS week FROM unnest($1) AS at) AS weeks";
    Sql::new(ENSURE, &[Bind::Times(&times)]).run(connection)?;
    Ok(())
}

#[derive(QueryableByName)]
struct NewId {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

const INSERT_NEW: &str = "
    WITH input AS (
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                             $22, $23)
            AS t (id, endpoint_id, provider, account, environment, event_id, event_type, api_version, occurred_at,
                  received_at, lane, app_user_id, transaction_id, original_transaction_id, product_id, store, signature,
                  auth_method, key_version, body_sha256, payload_hash, body_bytes, body)
    ), gate AS (
        INSERT INTO webhook.inbox (id, endpoint_id, provider, provider_account_id, environment, event_id, event_type,
                                   api_version, lane, occurred_at, received_at, payload_hash)
        SELECT id, endpoint_id, provider, account, environment, event_id, event_type, api_version, lane, occurred_at,
               received_at, payload_hash
          FROM input
        ON CONFLICT ON CONSTRAINT inbox_dedup DO NOTHING
        RETURNING id
    ), raw AS (
        INSERT INTO webhook.raw_events (id, received_at, endpoint_id, provider, provider_account_id, environment, event_id,
                                        event_type, api_version, origin, occurred_at, app_user_id, transaction_id,
                                        original_transaction_id, product_id, store, signature, auth_method, auth_state,
                                        key_version, body_sha256, payload_hash, body_bytes, body)
        SELECT id, received_at, endpoint_id, provider, account, environment, event_id, event_type, api_version, 'provider',
               occurred_at, app_user_id, transaction_id, original_transaction_id, product_id, store, signature,
               auth_method, 'verified', key_version, body_sha256, payload_hash, body_bytes, body
          FROM input JOIN gate USING (id)
    ), queued AS (
        INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at, claimed_until)
        SELECT id, id, lane, 'first', received_at, now() + $24 * interval '1 second' FROM input JOIN gate USING (id)
    ), counted AS (
        INSERT INTO webhook.intake_counts (minute, endpoint_id, writer, outcome, requests)
        SELECT date_trunc('minute', received_at), endpoint_id, $25, 'accepted', count(*)
          FROM input JOIN gate USING (id) GROUP BY 1, 2
        ON CONFLICT (minute, endpoint_id, writer, outcome, reason)
        DO UPDATE SET requests = intake_counts.requests + excluded.requests
    )
    SELECT id FROM gate";

/// Inserts those events whose key is not taken, with everything that belongs to them, and returns their ids.
fn insert_new(
    connection: &mut PgConnection,
    writer: Uuid,
    claim_seconds: i32,
    events: &[&AcceptEvent],
) -> Result<HashSet<Uuid>, StoreError> {
    let columns = Columns::of(events);
    let mut binds = columns.binds();
    binds.push(Bind::Int(claim_seconds));
    binds.push(Bind::Uuid(writer));
    let new: Vec<NewId> = Sql::new(INSERT_NEW, &binds).load(connection)?;
    Ok(new.into_iter().map(|row| row.id).collect())
}

/// The events of a batch, column by column, as `unnest` wants them.
struct Columns<'a> {
    ids: Vec<Uuid>,
    endpoint_ids: Vec<Uuid>,
    occurred_at: Vec<Option<Time>>,
    received_at: Vec<Time>,
    key_versions: Vec<i32>,
    body_bytes: Vec<i32>,
    /// provider, account, environment, event_id, event_type, lane, signature, auth_method
    texts: [Vec<&'a str>; 8],
    /// api_version, app_user_id, transaction_id, original_transaction_id, product_id, store
    optional_texts: [Vec<Option<&'a str>>; 6],
    /// body_sha256, payload_hash, body
    byte_strings: [Vec<&'a [u8]>; 3],
}

impl<'a> Columns<'a> {
    fn of(events: &[&'a AcceptEvent]) -> Self {
        fn column<'a, T>(events: &[&'a AcceptEvent], value: impl Fn(&'a AcceptEvent) -> T) -> Vec<T> {
            events.iter().map(|event| value(event)).collect()
        }
        Columns {
            ids: column(events, |e| e.id.uuid()),
            endpoint_ids: column(events, |e| e.endpoint_id),
            occurred_at: column(events, |e| e.occurred_at),
            received_at: column(events, |e| e.received_at),
            key_versions: column(events, |e| e.key_version),
            body_bytes: column(events, |e| e.body_bytes),
            texts: [
                column(events, |e| e.provider),
                column(events, |e| e.account_key.as_str()),
                column(events, |e| e.environment.as_str()),
                column(events, |e| e.event_id.as_str()),
                column(events, |e| e.event_type.as_str()),
                column(events, |e| e.lane.as_str()),
                column(events, |e| e.signature.as_str()),
                column(events, |e| e.auth_method),
            ],
            optional_texts: [
                column(events, |e| e.api_version.as_deref()),
                column(events, |e| e.keys.app_user_id.as_deref()),
                column(events, |e| e.keys.transaction_id.as_deref()),
                column(events, |e| e.keys.original_transaction_id.as_deref()),
                column(events, |e| e.keys.product_id.as_deref()),
                column(events, |e| e.keys.store.as_deref()),
            ],
            byte_strings: [
                column(events, |e| e.raw_sha256.as_slice()),
                column(events, |e| e.semantic_hash.as_slice()),
                column(events, |e| e.sealed_body.as_slice()),
            ],
        }
    }

    /// In the order of the `input` columns of the statements.
    fn binds(&self) -> Vec<Bind<'_>> {
        let [provider, account, environment, event_id, event_type, lane, signature, auth_method] = &self.texts;
        let [api_version, app_user, transaction, original_transaction, product, store] = &self.optional_texts;
        let [body_sha256, payload_hash, body] = &self.byte_strings;
        vec![
            Bind::Uuids(&self.ids),
            Bind::Uuids(&self.endpoint_ids),
            Bind::Texts(provider),
            Bind::Texts(account),
            Bind::Texts(environment),
            Bind::Texts(event_id),
            Bind::Texts(event_type),
            Bind::OptionalTexts(api_version),
            Bind::OptionalTimes(&self.occurred_at),
            Bind::Times(&self.received_at),
            Bind::Texts(lane),
            Bind::OptionalTexts(app_user),
            Bind::OptionalTexts(transaction),
            Bind::OptionalTexts(original_transaction),
            Bind::OptionalTexts(product),
            Bind::OptionalTexts(store),
            Bind::Texts(signature),
            Bind::Texts(auth_method),
            Bind::Ints(&self.key_versions),
            Bind::ByteStrings(body_sha256),
            Bind::ByteStrings(payload_hash),
            Bind::Ints(&self.body_bytes),
            Bind::ByteStrings(body),
        ]
    }
}

#[derive(QueryableByName)]
struct Known {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    provider: String,
    #[diesel(sql_type = Text)]
    provider_account_id: String,
    #[diesel(sql_type = Text)]
    event_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    api_version: Option<String>,
    #[diesel(sql_type = Binary)]
    payload_hash: Vec<u8>,
}

impl Known {
    /// Another endpoint of ours may be served in another API version; then the same event is rendered differently, and
    /// its content cannot be compared.
    fn has_the_content_of(&self, event: &AcceptEvent) -> bool {
        self.payload_hash == event.semantic_hash || self.api_version != event.api_version
    }
}

/// Records deliveries whose key was taken: the same content is a replay, other content goes to quarantine.
fn settle_repeats(
    connection: &mut PgConnection,
    writer: Uuid,
    repeats: &[&AcceptEvent],
) -> Result<HashMap<Uuid, Accepted>, StoreError> {
    connection.transaction(|connection| {
        // A worker may hold the row for the length of its batch. A delivery that we already have is not worth a wait.
        Sql::new("SET LOCAL lock_timeout = '1s'", &[]).run(connection)?;
        let known = lock_known(connection, repeats)?;
        let known: HashMap<DedupKey<'_>, &Known> = known
            .iter()
            .map(|k| ((k.provider.as_str(), k.provider_account_id.as_str(), k.event_id.as_str()), k))
            .collect();
        let (mut same, mut different, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for event in repeats {
            // The row cannot be gone: the inbox is never pruned.
            let known = known.get(&event.dedup_key()).ok_or(StoreError::Refused)?;
            if known.id == event.id.uuid() {
                // The batch was committed, the answer was lost with the connection, and this is the second try.
                ours.push((*event, known.id));
                continue;
            }
            let list = if known.has_the_content_of(event) { &mut same } else { &mut different };
            list.push((*event, known.id));
        }
        if !same.is_empty() {
            record_replays(connection, writer, &same)?;
        }
        if !different.is_empty() {
            record_mismatches(connection, writer, &different)?;
        }
        let outcome = |list: &[(&AcceptEvent, Uuid)], accepted| -> Vec<_> {
            list.iter().map(|(event, _)| (event.id.uuid(), accepted)).collect()
        };
        let outcomes = [
            outcome(&same, Accepted::Replayed),
            outcome(&different, Accepted::Mismatch),
            outcome(&ours, Accepted::New),
        ];
        Ok(outcomes.into_iter().flatten().collect())
    })
}

fn lock_known(connection: &mut PgConnection, repeats: &[&AcceptEvent]) -> Result<Vec<Known>, StoreError> {
    // OFFSET 0 keeps the subquery one: each key is looked up in the index, however small the planner thinks the inbox is.
    const LOCK: &str = "
        SELECT id, provider, provider_account_id, event_id, api_version, payload_hash
          FROM webhook.inbox
         WHERE id = ANY (ARRAY (SELECT known.id
                                  FROM unnest($1, $2, $3) AS wanted (provider, account, event_id)
                                 CROSS JOIN LATERAL (SELECT id FROM webhook.inbox AS i
                                                      WHERE i.provider = wanted.provider AND i.event_id = wanted.event_id
                                                        AND i.provider_account_id = wanted.account
                                                     OFFSET 0) AS known))
         ORDER BY id
           FOR UPDATE";
    let providers: Vec<&str> = repeats.iter().map(|e| e.provider).collect();
    let accounts: Vec<&str> = repeats.iter().map(|e| e.account_key.as_str()).collect();
    let event_ids: Vec<&str> = repeats.iter().map(|e| e.event_id.as_str()).collect();
    Ok(Sql::new(LOCK, &[Bind::Texts(&providers), Bind::Texts(&accounts), Bind::Texts(&event_ids)]).load(connection)?)
}

fn record_replays(
    connection: &mut PgConnection,
    writer: Uuid,
    replays: &[(&AcceptEvent, Uuid)],
) -> Result<(), StoreError> {
    const INSERT: &str = "
        WITH input AS (
            SELECT * FROM unnest($1, $2, $3, $4, $5, $6) AS t (id, event_id, received_at, endpoint_id, key_version, body_sha256)
        ), stored AS (
            INSERT INTO webhook.replays (id, event_id, received_at, endpoint_id, key_version, body_sha256) SELECT * FROM input
        ), tallied AS (
            UPDATE webhook.inbox SET replay_count = replay_count + repeated.times
              FROM (SELECT event_id, count(*) AS times FROM input GROUP BY 1) AS repeated
             WHERE inbox.id = repeated.event_id
        )
        INSERT INTO webhook.intake_counts (minute, endpoint_id, writer, outcome, requests)
        SELECT date_trunc('minute', received_at), endpoint_id, $7, 'replayed', count(*) FROM input GROUP BY 1, 2
        ON CONFLICT (minute, endpoint_id, writer, outcome, reason)
        DO UPDATE SET requests = intake_counts.requests + excluded.requests";
    let ids: Vec<Uuid> = replays.iter().map(|(e, _)| e.id.uuid()).collect();
    let event_ids: Vec<Uuid> = replays.iter().map(|(_, known)| *known).collect();
    let received_at: Vec<Time> = replays.iter().map(|(e, _)| e.received_at).collect();
    let endpoints: Vec<Uuid> = replays.iter().map(|(e, _)| e.endpoint_id).collect();
    let key_versions: Vec<i32> = replays.iter().map(|(e, _)| e.key_version).collect();
    let hashes: Vec<&[u8]> = replays.iter().map(|(e, _)| e.raw_sha256.as_slice()).collect();
    let binds = [
        Bind::Uuids(&ids),
        Bind::Uuids(&event_ids),
        Bind::Times(&received_at),
        Bind::Uuids(&endpoints),
        Bind::Ints(&key_versions),
        Bind::ByteStrings(&hashes),
        Bind::Uuid(writer),
    ];
    Sql::new(INSERT, &binds).run(connection)?;
    Ok(())
}

/// Keeps the bytes of each differing delivery once, and counts how often it came.
fn record_mismatches(
    connection: &mut PgConnection,
    writer: Uuid,
    mismatches: &[(&AcceptEvent, Uuid)],
) -> Result<(), StoreError> {
    const INSERT: &str = "
        WITH input AS (
            SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                                 $21, $22, $23, $24)
                AS t (id, endpoint_id, provider, account, environment, event_id, event_type, api_version, occurred_at,
                      received_at, lane, app_user_id, transaction_id, original_transaction_id, product_id, store,
                      signature, auth_method, key_version, body_sha256, payload_hash, body_bytes, body, known_id)
        ), entry AS (
            INSERT INTO webhook.quarantine (id, reason, provider, provider_account_id, event_id, raw_event_id, payload_hash,
                                            seen_count)
            SELECT (array_agg(id ORDER BY id))[1], 'payload_mismatch', provider, account, known_id,
                   (array_agg(id ORDER BY id))[1], payload_hash, count(*)
              FROM input GROUP BY provider, account, known_id, payload_hash
            ON CONFLICT (event_id, payload_hash) WHERE reason = 'payload_mismatch'
            DO UPDATE SET seen_count = quarantine.seen_count + excluded.seen_count
            RETURNING raw_event_id
        ), raw AS (
            INSERT INTO webhook.raw_events (id, received_at, endpoint_id, provider, provider_account_id, environment,
                                            event_id, event_type, api_version, origin, occurred_at, app_user_id,
                                            transaction_id, original_transaction_id, product_id, store, signature,
                                            auth_method, auth_state, key_version, body_sha256, payload_hash, body_bytes,
                                            body)
            SELECT id, received_at, endpoint_id, provider, account, environment, event_id, event_type, api_version,
                   'provider', occurred_at, app_user_id, transaction_id, original_transaction_id, product_id, store,
                   signature, auth_method, 'verified', key_version, body_sha256, payload_hash, body_bytes, body
              FROM input WHERE id IN (SELECT raw_event_id FROM entry)
        )
        INSERT INTO webhook.intake_counts (minute, endpoint_id, writer, outcome, reason, requests)
        SELECT date_trunc('minute', received_at), endpoint_id, $25, 'quarantined', 'payload_mismatch', count(*)
          FROM input GROUP BY 1, 2
        ON CONFLICT (minute, endpoint_id, writer, outcome, reason)
        DO UPDATE SET requests = intake_counts.requests + excluded.requests";
    let events: Vec<&AcceptEvent> = mismatches.iter().map(|(event, _)| *event).collect();
    let known: Vec<Uuid> = mismatches.iter().map(|(_, known)| *known).collect();
    let columns = Columns::of(&events);
    let mut binds = columns.binds();
    binds.push(Bind::Uuids(&known));
    binds.push(Bind::Uuid(writer));
    Sql::new(INSERT, &binds).run(connection)?;
    Ok(())
}
