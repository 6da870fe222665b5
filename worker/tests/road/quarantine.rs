//! What people decide about events in quarantine, and what becomes of it.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use shared::sealing::{Column, Sealer};
use shared::store;
use uuid::Uuid;

use crate::harness::{Event, Process, SEALING_KEYS, Sender, World, stripe};
use crate::rebuild;

const REASON: &str = "asked the provider, ticket 77";

fn open(world: &World) -> (Process, Process, Sender) {
    let (ingress, worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    (ingress, worker, sender)
}

/// An event of the payment `pi_a` that happened `seconds` after `start`.
fn told(event_type: &str, own: &str, start: DateTime<Utc>, seconds: i64, minor: i64) -> Event {
    stripe(event_type, own, |o| {
        o.payment = Some("pi_a".into());
        o.created = start + TimeDelta::seconds(seconds);
        o.amount_minor = minor;
        o.payment_amount_minor = event_type.starts_with("refund").then_some(1000);
    })
}

/// Runs `webhookctl quarantine` as kim, and returns its exit code and everything it said.
fn quarantine(world: &World, arguments: &[&str]) -> (i32, String) {
    let (code, out, err) = world.webhookctl(&[&["--actor", "kim", "quarantine"], arguments].concat());
    (code, out + &err)
}

fn release(world: &World, id: &str, verb: &str) -> (i32, String) {
    quarantine(world, &["release", id, "--as", verb, "--reason", REASON])
}

/// What people would ask about an entry: reason, state, who closed it, how often it came, and whether the ledger was told.
fn entries(world: &World) -> Value {
    let rows = world.rows(
        "SELECT reason, status, closed_by, seen_count AS seen, decision_event_id IS NOT NULL AS decided
           FROM webhook.quarantine ORDER BY reason, opened_at",
    );
    Value::from(rows)
}

fn entry_id(world: &World) -> String {
    let rows = world.rows("SELECT id FROM webhook.quarantine");
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]["id"].as_str().unwrap().to_owned()
}

fn payment(world: &World) -> Value {
    let columns = "status, captured_amount AS captured, refunded_amount AS refunded, review_reason AS review";
    world.rows(&format!("SELECT {columns} FROM payments WHERE payment_id = 'pi_a'"))[0].clone()
}

fn audited(world: &World, action: &str) -> i64 {
    let query = format!(
        "SELECT count(*) FROM webhook.audit_log WHERE action = '{action}' AND actor = 'kim' AND reason = '{REASON}'"
    );
    world.number(&query)
}

/// The facts and rows of the ledger, to the byte.
fn ledger(world: &World) -> Vec<Value> {
    let tables = ["ledger_facts", "payments", "refunds", "disputes", "subscription_states"];
    let rows = tables.map(|table| format!("SELECT to_jsonb(t)::text AS row FROM (SELECT * FROM {table}) AS t"));
    world.rows(&format!("SELECT row FROM ({}) AS rows ORDER BY row", rows.join(" UNION ALL ")))
}

/// Empties the ledger, and sends every event down the road again.
fn project_everything_again(world: &World) {
    world.database.execute("TRUNCATE ledger_facts, payments, refunds, disputes, subscription_states");
    world.database.execute(
        "UPDATE webhook.inbox SET status = 'accepted', processed_at = NULL, attempt_count = 0 WHERE status = 'processed'",
    );
    world.database.execute(
        "INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at)
         SELECT gen_random_uuid(), id, 'redrive', 'redrive', now() FROM webhook.inbox WHERE status = 'accepted'
          ORDER BY id DESC",
    );
    world.wait_until_settled();
}

/// Empties the ledger, and has it made again from the raw events.
fn rebuild_everything(world: &World) {
    let healthy = rebuild::rebuild(world, &[]);
    assert_eq!((healthy.code, healthy.differences().len()), (0, 0), "{}", healthy.err);
    let subjects = "SELECT count(*) FROM (SELECT DISTINCT subject_kind, subject_id FROM ledger_facts) AS subjects";
    let subjects = usize::try_from(world.number(subjects)).unwrap();
    world.database.execute("TRUNCATE ledger_facts, payments, refunds, disputes, subscription_states");
    let repaired = rebuild::apply(world, subjects, &[]);
    assert_eq!(repaired.code, 0, "{}", repaired.err);
}

#[test]
fn a_mismatch_is_compared_without_showing_people_and_the_second_delivery_can_have_the_last_word() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now();
    let first = told("charge.succeeded", "a", start, 0, 1000);
    let mut changed: Value = serde_json::from_slice(&told("charge.succeeded", "a", start, 0, 9000).body).unwrap();
    changed["data"]["object"]["billing_details"]["email"] = json!("other.person@example.com");
    changed["data"]["object"]["extra"] = json!(true);
    sender.deliver(&first);
    let second = Event { id: first.id.clone(), body: serde_json::to_vec(&changed).unwrap() };
    assert_eq!(sender.send(&second).status, 409);
    world.wait_until_settled();
    let id = entry_id(&world);

    let (code, said) = quarantine(&world, &["list", "--exit-code"]);
    assert!(code == 8 && said.contains("payload_mismatch") && said.contains(&first.id), "{code} {said}");
    let (code, said) = quarantine(&world, &["show", &first.id]);
    assert!(code == 0 && said.contains("sent this event twice") && said.contains("DELIVERIES"), "{code} {said}");

    let (code, _) = quarantine(&world, &["diff", &id]);
    assert_eq!((code, audited(&world, "quarantine.diff")), (2, 0), "nobody reads payloads without a reason");
    let (code, said) = quarantine(&world, &["diff", &id, "--reason", REASON]);
    assert_eq!((code, audited(&world, "quarantine.diff")), (8, 1), "{said}");
    let line = |path: &str| said.lines().find(|line| line.starts_with(path)).unwrap_or_default();
    let words = |path: &str| line(path).split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words("/data/object/amount "), "/data/object/amount 1000 9000 number changed");
    assert_eq!(words("/data/object/extra"), "/data/object/extra - true added");
    assert_eq!(
        words("/data/object/billing_details/email"),
        "/data/object/billing_details/email ██ ██ text changed (masked)"
    );
    assert!(
        !said.contains("person@") && !said.contains("rosen") && !line("/data/object/status").contains('='),
        "{said}"
    );

    for arguments in [
        ["release", &id, "--as", "accept", "--reason", REASON].as_slice(),
        &["release", &id, "--as", "retry", "--reason", REASON],
        &["reject", &id, "--reason", REASON],
    ] {
        let (code, said) = quarantine(&world, arguments);
        assert!(code == 5 && said.contains("--as keep-first or --as apply-second"), "{code} {said}");
    }
    let (code, said) = quarantine(&world, &["release", &id, "--as", "apply-second", "--reason", REASON, "--dry-run"]);
    assert!(code == 0 && said.contains("nothing was changed") && said.contains("captured_amount"), "{code} {said}");
    assert_eq!(payment(&world), json!({"status": "paid", "captured": 10, "refunded": 0, "review": null}));
    assert_eq!(audited(&world, "quarantine.release"), 0);

    let (code, said) = release(&world, &id, "apply-second");
    assert!(code == 0 && said.contains("captured_amount"), "{code} {said}");
    world.wait_until_settled();
    assert_eq!(payment(&world), json!({"status": "paid", "captured": 90, "refunded": 0, "review": null}));
    let closed =
        json!([{"reason": "payload_mismatch", "status": "released", "closed_by": "kim", "seen": 1, "decided": true}]);
    assert_eq!(entries(&world), closed);
    assert_eq!((audited(&world, "quarantine.release"), audited(&world, "quarantine.read")), (1, 2));
    let decision = "SELECT count(*) FROM webhook.raw_events r JOIN webhook.inbox i USING (id)
                     WHERE r.origin = 'operator' AND i.origin = 'operator' AND r.event_type = 'operator.decision'
                       AND i.event_id = 'decision_' || i.id AND i.status = 'processed'";
    assert_eq!(world.number(decision), 1);
    let (code, said) = release(&world, &id, "keep-first");
    assert!(code == 5 && said.contains("released, not open"), "{code} {said}");
    // It is known by now, and asked about once.
    assert_eq!(sender.send(&second).status, 409);
    assert_eq!(entries(&world)[0]["status"], "released");
    world.assert_books_balance();

    // The decision carries what it needs: the second delivery's own bytes may be archived by then.
    let before = ledger(&world);
    world.database.execute(
        "DO $$ BEGIN
             SET LOCAL session_replication_role = replica;
             DELETE FROM webhook.raw_events WHERE id IN (SELECT raw_event_id FROM webhook.quarantine);
         END $$",
    );
    project_everything_again(&world);
    assert_eq!(ledger(&world), before);
    rebuild_everything(&world);
    assert_eq!(ledger(&world), before);
}

#[test]
fn of_a_mismatch_the_first_delivery_can_be_kept() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now();
    sender.deliver(&told("charge.succeeded", "a", start, 0, 1000));
    assert_eq!(sender.send(&told("charge.succeeded", "a", start, 0, 9000)).status, 409);
    world.wait_until_settled();
    let (code, said) = release(&world, &entry_id(&world), "keep-first");
    assert!(code == 0 && said.contains("nothing changes"), "{code} {said}");
    let closed =
        json!([{"reason": "payload_mismatch", "status": "released", "closed_by": "kim", "seen": 1, "decided": false}]);
    assert_eq!(entries(&world), closed);
    assert_eq!(payment(&world)["captured"], 10);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox"), 1);
    world.assert_books_balance();
}

/// A payment that was canceled, and then paid: two events say so.
fn paid_after_canceled(world: &World, sender: &Sender, start: DateTime<Utc>) {
    sender.deliver(&told("payment_intent.canceled", "a", start, 0, 1000));
    sender.deliver(&told("charge.succeeded", "a", start, 60, 1000));
    sender.deliver(&told("payment_intent.succeeded", "a", start, 61, 1000));
    world.wait_until_settled();
    assert_eq!(payment(world)["status"], "canceled");
    assert_eq!(payment(world)["review"], "paid_after_canceled");
}

#[test]
fn a_refused_fact_is_applied_when_a_person_accepts_it() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now() - TimeDelta::hours(1);
    paid_after_canceled(&world, &sender, start);
    let id = entry_id(&world);

    let (code, said) = quarantine(&world, &["show", &id]);
    let sentence = "the payment was canceled, and then the provider said that it was paid";
    assert!(code == 0 && said.contains(sentence) && said.contains("--as accept"), "{code} {said}");
    let refused: Vec<&str> = said.lines().filter(|line| line.contains("refused: the payment was canceled")).collect();
    assert_eq!(refused.len(), 2, "{said}");
    assert!(refused[0].contains("captured 10"), "{said}");
    for verb in ["keep-first", "apply-second", "retry"] {
        let (code, said) = release(&world, &id, verb);
        assert!(code == 5 && said.contains("release it --as accept, or reject it"), "{code} {said}");
    }
    let (code, said) = quarantine(&world, &["diff", &id, "--reason", REASON]);
    assert!(code == 5 && said.contains("not about two deliveries"), "{code} {said}");

    let (code, said) = release(&world, &id, "accept");
    assert!(code == 0 && said.contains("CHANGES") && !said.contains("IN QUESTION"), "{code} {said}");
    world.wait_until_settled();
    assert_eq!(payment(&world), json!({"status": "paid", "captured": 10, "refunded": 0, "review": null}));
    let closed = json!([{"reason": "paid_after_canceled", "status": "released", "closed_by": "kim", "seen": 1, "decided": true}]);
    assert_eq!(entries(&world), closed);
    assert_eq!(world.number("SELECT count(*) FROM ledger_facts WHERE fact ->> 'kind' = 'decision'"), 2);
    assert_eq!(audited(&world, "quarantine.release"), 1);
    let (code, said) = quarantine(&world, &["show", &id]);
    assert!(code == 0 && said.contains("by kim: asked the provider") && said.contains("HISTORY"), "{code} {said}");
    world.assert_books_balance();

    let before = ledger(&world);
    project_everything_again(&world);
    assert_eq!(ledger(&world), before);
    rebuild_everything(&world);
    assert_eq!(ledger(&world), before);
    assert_eq!(entries(&world), closed);
    world.assert_books_balance();
}

#[test]
fn a_refused_fact_stays_out_when_a_person_rejects_it_and_a_further_one_asks_again() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now() - TimeDelta::hours(1);
    paid_after_canceled(&world, &sender, start);
    let id = entry_id(&world);
    let (code, said) = quarantine(&world, &["reject", &id, "--reason", REASON]);
    assert_eq!(code, 0, "{said}");
    world.wait_until_settled();
    assert_eq!(payment(&world), json!({"status": "canceled", "captured": 0, "refunded": 0, "review": null}));
    let entry = |status: &str, by: Value, seen: i64, decided: bool| json!([{"reason": "paid_after_canceled", "status": status, "closed_by": by, "seen": seen, "decided": decided}]);
    assert_eq!(entries(&world), entry("rejected", json!("kim"), 1, true));
    assert_eq!(audited(&world, "quarantine.reject"), 1);
    world.assert_books_balance();

    sender.deliver(&told("charge.captured", "a", start, 90, 1000));
    world.wait_until_settled();
    assert_eq!(payment(&world)["review"], "paid_after_canceled");
    assert_eq!(entries(&world), entry("open", Value::Null, 2, false));
    world.assert_books_balance();
    let (code, said) = release(&world, &id, "accept");
    assert_eq!(code, 0, "{said}");
    world.wait_until_settled();
    assert_eq!(payment(&world)["status"], "paid");
    world.assert_books_balance();
}

#[test]
fn what_later_events_resolve_is_closed_by_itself_and_opened_again_when_it_comes_back() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now() - TimeDelta::hours(1);
    sender.deliver(&told("charge.succeeded", "a", start, 0, 1000));
    sender.deliver(&told("refund.created", "r1", start, 10, 1500));
    world.wait_until_settled();
    assert_eq!(payment(&world)["review"], "more_out_than_in");
    sender.deliver(&told("charge.captured", "a", start, 5, 2000));
    world.wait_until_settled();
    assert_eq!(payment(&world)["review"], Value::Null);
    let entry = |status: &str, by: Value, seen: i64| json!([{"reason": "more_out_than_in", "status": status, "closed_by": by, "seen": seen, "decided": false}]);
    assert_eq!(entries(&world), entry("released", json!("system"), 1));
    let why = "SELECT count(*) FROM webhook.quarantine WHERE closed_reason = 'resolved by later events'";
    assert_eq!(world.number(why), 1);
    world.assert_books_balance();
    sender.deliver(&told("refund.created", "r2", start, 20, 1000));
    world.wait_until_settled();
    assert_eq!(entries(&world), entry("open", Value::Null, 2));
    let (code, said) = release(&world, &entry_id(&world), "accept");
    assert_eq!(code, 0, "{said}");
    world.wait_until_settled();
    assert_eq!(payment(&world)["review"], Value::Null);
    world.assert_books_balance();
}

#[test]
fn a_decision_on_its_way_is_not_undone_by_events_that_overtake_it() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now() - TimeDelta::hours(1);
    paid_after_canceled(&world, &sender, start);
    world.database.execute(
        "CREATE FUNCTION hold_back() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.kind = 'first' AND NEW.claimed_until IS NULL THEN
                 NEW.due_at := now() + interval '1 hour';
             END IF;
             RETURN NEW;
         END $$",
    );
    // What the ingress accepts is claimed by it; a decision is left for the next sweep.
    world
        .database
        .execute("CREATE TRIGGER hold_back BEFORE INSERT ON webhook.outbox FOR EACH ROW EXECUTE FUNCTION hold_back()");
    let id = entry_id(&world);
    let (code, said) = release(&world, &id, "accept");
    assert_eq!(code, 0, "{said}");
    let closed = json!([{"reason": "paid_after_canceled", "status": "released", "closed_by": "kim", "seen": 1, "decided": true}]);
    sender.deliver(&told("charge.captured", "a", start, 90, 1000));
    world.wait_for_number(1, "SELECT count(*) FROM webhook.inbox WHERE status = 'accepted'");
    assert_eq!(payment(&world)["review"], "paid_after_canceled");
    assert_eq!(entries(&world), closed, "the fold has not seen the decision yet");
    world.assert_books_balance();

    world.database.execute("UPDATE webhook.outbox SET due_at = now()");
    world.wait_until_settled();
    assert_eq!(payment(&world), json!({"status": "paid", "captured": 10, "refunded": 0, "review": null}));
    assert_eq!(entries(&world), closed);
    world.assert_books_balance();
}

#[test]
fn a_refund_of_an_unknown_payment_is_explained_or_explains_itself() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let start = Utc::now() - TimeDelta::hours(1);
    let ask = || store::quarantine_orphans(&mut world.database.connection(), Utc::now(), Utc::now()).unwrap();
    sender.deliver(&told("refund.created", "r1", start, 0, 400));
    world.wait_until_settled();
    assert_eq!(ask(), 1);
    let entry = |status: &str, by: Value| json!([{"reason": "unknown_payment", "status": status, "closed_by": by, "seen": 1, "decided": false}]);
    // More about the refund tells nothing of the payment.
    sender.deliver(&told("refund.updated", "r1", start, 10, 400));
    world.wait_until_settled();
    assert_eq!(entries(&world), entry("open", Value::Null));
    let id = entry_id(&world);
    let (code, said) = quarantine(&world, &["reject", &id, "--reason", REASON]);
    assert!(code == 5 && said.contains("--as accept once that is explained"), "{code} {said}");
    let (code, said) = release(&world, &id, "accept");
    assert!(code == 0 && said.contains("nothing changes"), "{code} {said}");
    assert_eq!(entries(&world), entry("released", json!("kim")));
    assert_eq!(ask(), 0, "nobody is asked twice");

    world.database.execute("UPDATE webhook.quarantine SET status = 'open', closed_at = NULL");
    sender.deliver(&told("charge.succeeded", "a", start, -60, 1000));
    world.wait_until_settled();
    assert_eq!(entries(&world), entry("released", json!("system")));
    world.assert_books_balance();
}

/// Puts other bytes in the place of those that came, as if a newer version understood them.
fn understand(world: &World, event_id: &str, body: &[u8]) {
    let rows = world.rows(&format!("SELECT id FROM webhook.inbox WHERE event_id = '{event_id}'"));
    let id: Uuid = rows[0]["id"].as_str().unwrap().parse().unwrap();
    let sealed = Sealer::from_keyring(SEALING_KEYS).unwrap().seal(Column::RawBody, id, body).unwrap();
    let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
    world.database.execute(&format!(
        "DO $$ BEGIN
             SET LOCAL session_replication_role = replica;
             UPDATE webhook.raw_events SET body = decode('{hex}', 'hex') WHERE id = '{id}';
         END $$"
    ));
}

fn without_amount(event: &Event) -> Event {
    let mut body: Value = serde_json::from_slice(&event.body).unwrap();
    body["data"]["object"]["amount"] = Value::Null;
    Event { id: event.id.clone(), body: serde_json::to_vec(&body).unwrap() }
}

#[test]
fn a_held_event_is_tried_again_and_opens_its_entry_again_until_it_is_understood() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let good = told("charge.succeeded", "a", Utc::now(), 0, 1000);
    sender.deliver(&without_amount(&good));
    world.wait_until_settled();
    let id = entry_id(&world);
    let (code, said) = quarantine(&world, &["list"]);
    assert!(code == 0 && said.contains("bad_amount at /data/object/amount"), "{code} {said}");
    for verb in ["keep-first", "apply-second", "accept"] {
        let (code, said) = release(&world, &id, verb);
        assert!(code == 5 && said.contains("--as retry, or reject it"), "{code} {said}");
    }
    let entry = |status: &str, by: Value, seen: i64| json!([{"reason": "bad_amount", "status": status, "closed_by": by, "seen": seen, "decided": false}]);
    let (code, said) = release(&world, &id, "retry");
    assert_eq!(code, 0, "{said}");
    world.wait_until_settled();
    assert_eq!(entries(&world), entry("open", Value::Null, 2));
    assert_eq!(world.number("SELECT count(*) FROM webhook.attempts WHERE fate = 'quarantined'"), 2);
    world.assert_books_balance();

    understand(&world, &good.id, &good.body);
    let (code, said) = release(&world, &id, "retry");
    assert_eq!(code, 0, "{said}");
    world.wait_until_settled();
    assert_eq!(payment(&world)["captured"], 10);
    assert_eq!(entries(&world), entry("released", json!("kim"), 2));
    assert_eq!(audited(&world, "quarantine.release"), 2);
    world.assert_books_balance();
}

#[test]
fn a_held_event_that_is_rejected_stays_out_for_good() {
    let world = World::new();
    let (_ingress, _worker, sender) = open(&world);
    let bad = without_amount(&told("charge.succeeded", "a", Utc::now(), 0, 1000));
    sender.deliver(&bad);
    world.wait_until_settled();
    let (code, said) = quarantine(&world, &["reject", &bad.id, "--reason", "short"]);
    assert_eq!(code, 2, "{said}");
    let (code, said) = quarantine(&world, &["reject", &bad.id, "--reason", REASON]);
    assert_eq!((code, audited(&world, "quarantine.reject")), (0, 1), "{said}");
    let (code, said) = release(&world, &bad.id, "retry");
    assert!(code == 5 && said.contains("rejected, not open"), "{code} {said}");
    let (code, said) = quarantine(&world, &["show", "nothing"]);
    assert!(code == 3 && said.contains("webhookctl quarantine list"), "{code} {said}");
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'quarantined'"), 1);
    assert_eq!(world.number("SELECT count(*) FROM payments"), 0);
    world.assert_books_balance();
}
