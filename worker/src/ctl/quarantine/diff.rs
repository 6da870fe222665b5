use clap::Args;
use serde::Serialize;
use shared::sealing::{Column, Sealer};
use shared::service::SealingSettings;
use shared::store::{self, Audit, Delivery, PgConnection, QuarantineKind, QuarantineRow};
use zeroize::Zeroizing;

use super::super::Context;
use super::super::error::{CtlError, Exit};
use super::super::output::{table, time};
use super::super::reason::Reason;
use super::compare::{Field, MASK, compare};
use super::find;

#[derive(Debug, Args)]
pub(in super::super) struct Diff {
    /// The entry's id, or its event's: ours or the provider's
    id: String,
    /// Why the payloads are read, for whoever reads the audit log
    #[arg(long)]
    reason: Reason,
    /// Fields that are equal too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    sealing: SealingSettings,
}

/// Two deliveries, and how they differ.
#[derive(Serialize)]
struct Report {
    quarantine_id: uuid::Uuid,
    first: Delivery,
    second: Delivery,
    fields: Vec<Field>,
    differing: usize,
    equal: usize,
}

impl Diff {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let sealer = self.sealing.sealer()?;
        let mut connection = context.connection()?;
        let entry = find(&mut connection, &self.id)?;
        let (first, second) = both_deliveries(&mut connection, &entry)?;
        let actor = context.actor()?;
        let audit = Audit { actor: &actor, reason: self.reason.as_str() };
        // Committed before anything is opened: what was read cannot be unread.
        store::record_audit(&mut connection, audit, "quarantine.diff", &entry.id.to_string())?;
        let fields = compare(&open(&sealer, &first)?, &open(&sealer, &second)?)
            .map_err(|_| CtlError::NotJson(entry.id.to_string()))?;
        let differing = fields.iter().filter(|field| field.differs()).count();
        let equal = fields.len() - differing;
        let fields = fields.into_iter().filter(|field| self.all || field.differs()).collect();
        let report = Report { quarantine_id: entry.id, first, second, fields, differing, equal };
        context.print("quarantine.diff", &[report], |reports| reports.iter().map(Report::text).collect())?;
        Ok(if differing > 0 { Exit::Finding } else { Exit::Done })
    }
}

impl Report {
    fn text(&self) -> String {
        let fields = table(&["PATH", "FIRST", "SECOND", "NOTE"], &self.fields, |field| {
            let side = |value: &Option<String>, is_there: bool| match value {
                Some(value) => value.clone(),
                None if field.masked && is_there => MASK.to_owned(),
                None => "-".to_owned(),
            };
            let first = side(&field.first, field.note != "added");
            let second = side(&field.second, field.note != "removed");
            let note = if field.masked { format!("{} (masked)", field.note) } else { field.note.to_owned() };
            vec![field.path.clone(), first, second, note]
        });
        let alike = if self.differing == 0 { "; the payloads are only written differently" } else { "" };
        format!(
            "{}\n{}\n\n{fields}\n\n{} fields differ, {} are equal{alike}",
            header("first ", &self.first),
            header("second", &self.second),
            self.differing,
            self.equal
        )
    }
}

/// A delivery in a line.
fn header(name: &str, delivery: &Delivery) -> String {
    let hash = delivery.body_sha256.get(..12).unwrap_or_default();
    let received = time(delivery.received_at);
    let key = delivery.key_version.map_or_else(|| "-".to_owned(), |version| version.to_string());
    format!("{name}  received {received}  {} bytes  sha256 {hash}…  key version {key}", delivery.body_bytes)
}

/// What came first, and what came later under the same id.
pub(super) fn both_deliveries(
    connection: &mut PgConnection,
    entry: &QuarantineRow,
) -> Result<(Delivery, Delivery), CtlError> {
    let second = match (entry.kind(), entry.raw_event_id) {
        (QuarantineKind::Mismatch, Some(second)) => second,
        _ => return Err(CtlError::NotAMismatch(entry.id.to_string())),
    };
    let mut delivery = |id: uuid::Uuid| {
        store::find_delivery(connection, id)?.ok_or_else(|| CtlError::DeliveryArchived(id.to_string()))
    };
    Ok((delivery(entry.event_id)?, delivery(second)?))
}

/// The bytes of a delivery as they came.
pub(super) fn open(sealer: &Sealer, delivery: &Delivery) -> Result<Zeroizing<Vec<u8>>, CtlError> {
    let opened = sealer.open(Column::RawBody, delivery.id, &delivery.body);
    opened.map_err(|error| CtlError::BodyUnreadable { id: delivery.id.to_string(), error })
}
