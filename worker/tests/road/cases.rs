//! Public bug reports that need the whole road to be judged. Their numbers are those of `shared/src/providers/cases.rs`.

use std::io::Write;
use std::net::TcpStream;

use chrono::{TimeDelta, Utc};

use crate::harness::{Event, Sender, World, signed, stripe};

/// adeira/universe#4993: the row was stored, the caller saw an error, and every retry died on the unique key.
#[test]
fn b18_commit_done_answer_lost() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let event = stripe("charge.succeeded", "a", |_| {});
    let mut request =
        format!("POST /webhooks/stripe/main HTTP/1.1\r\nHost: ingress\r\nContent-Length: {}\r\n", event.body.len());
    for (name, value) in signed(&event.body) {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    {
        let mut socket = TcpStream::connect(ingress.public().trim_start_matches("http://")).unwrap();
        socket.write_all(&[request.as_bytes(), &event.body].concat()).unwrap();
        // Dropped here: nobody is left to hear the answer.
    }
    // Whether the first one was committed or cut off, the second one is answered, and nothing is doubled.
    let answer = sender.send(&event);
    assert_eq!(answer.status, 200, "{}", answer.body);
    sender.deliver(&event);
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox"), 1);
    assert_eq!(world.number("SELECT count(*) FROM payments"), 1);
    assert_eq!(world.number("SELECT count(*) FROM webhook.quarantine"), 0);
    world.assert_books_balance();
}

/// cloudcreativity/laravel-stripe#2: every test event of the console has the same id. The second one differs from the
/// first, which is a mismatch like any other: both are kept, and nothing of either is live.
#[test]
fn b24_console_test_events_share_one_id() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let console = |event_type: &str| {
        let event = stripe(event_type, "console", |o| o.livemode = false);
        let id = "evt_00000000000000".to_owned();
        let body = String::from_utf8(event.body).unwrap().replace(&event.id, &id).into_bytes();
        Event { id, body }
    };
    sender.deliver(&console("charge.succeeded"));
    assert_eq!(sender.send(&console("customer.subscription.created")).status, 409);
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM payments WHERE environment = 'production'"), 0);
    assert_eq!(world.number("SELECT count(*) FROM subscription_states WHERE environment = 'production'"), 0);
    assert_eq!(world.number("SELECT count(*) FROM webhook.raw_events"), 2);
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
}

/// laravel/cashier-stripe#1678: both handlers saw no row, both inserted, and one died on the unique key.
#[test]
fn b26_created_and_updated_of_one_subscription_at_once() {
    const ROUNDS: usize = 200;
    let mut world = World::new();
    // One event a batch: the two of each subscription meet in different workers.
    world.set("WORKER_BATCH", "1");
    let (ingress, _workers) = (world.ingress(), [world.worker(), world.worker()]);
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let created = Utc::now();
    std::thread::scope(|scope| {
        for (event_type, later) in [("customer.subscription.created", 0), ("customer.subscription.updated", 1)] {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let at = created + TimeDelta::seconds(later);
                    let mut event = stripe(event_type, &format!("r{round}"), |o| o.created = at);
                    if later == 0 {
                        let mut body: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
                        body["data"]["object"]["status"] = "incomplete".into();
                        event.body = body.to_string().into_bytes();
                    }
                    sender.deliver(&event);
                }
            });
        }
    });
    world.wait_until_settled();
    let last_told = "SELECT count(*) FROM subscription_states s JOIN webhook.inbox i ON i.id = s.webhook_event_id
                      WHERE s.status = 'active' AND i.event_type = 'customer.subscription.updated'";
    let rounds = i64::try_from(ROUNDS).unwrap();
    assert_eq!(world.number("SELECT count(*) FROM subscription_states"), rounds);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'processed'"), 2 * rounds);
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    assert_eq!(world.number(last_told), rounds);
    world.assert_books_balance();
}

/// letsrevel/revel-backend#491: the memory of known ids is pruned in the belief that nothing comes again.
#[test]
fn b28_id_forgotten_before_the_sender_is() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "a", |o| o.amount_minor = 1000));
    let refund = stripe("refund.created", "a", |o| o.amount_minor = 300);
    sender.deliver(&refund);
    world.wait_until_settled();
    // The partition is archived and dropped, as it will be after its time.
    let partition = world.rows("SELECT DISTINCT tableoid::regclass::text AS name FROM webhook.raw_events");
    world.database.execute(&format!("DROP TABLE {}", partition[0]["name"].as_str().unwrap()));
    assert_eq!(world.number("SELECT count(*) FROM webhook.raw_events"), 0);

    let again = sender.send(&refund);
    assert_eq!((again.status, again.body.contains("replayed")), (200, true));
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM refunds WHERE amount = 3"), 1);
    assert_eq!(world.number("SELECT count(*) FROM payments WHERE refunded_amount = 3"), 1);
}

/// killbill/killbill-adyen-plugin#36: refunds of payments made elsewhere filled the dead jobs. They are money out of an
/// account of ours: after a bounded wait a person is asked once, and nothing else is held up.
#[test]
fn b46_money_object_that_is_not_ours() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let orphan = |suffix: &str| stripe("refund.created", suffix, |o| o.payment = Some("pi_elsewhere".into()));
    sender.deliver(&orphan("a"));
    sender.deliver(&stripe("charge.succeeded", "good", |_| {}));
    world.wait_until_settled();
    let look = |since: chrono::DateTime<Utc>| {
        shared::store::quarantine_orphans(&mut world.database.connection(), Utc::now(), since).unwrap()
    };
    assert_eq!(look(Utc::now() - TimeDelta::hours(1)), 0, "it may still come");
    assert_eq!(look(Utc::now() + TimeDelta::seconds(1)), 1);
    assert_eq!(look(Utc::now() + TimeDelta::seconds(1)), 0, "once");
    let entries = world.rows("SELECT reason, subject_id, status FROM webhook.quarantine");
    assert_eq!(
        entries,
        [serde_json::json!({
        "reason": "unknown_payment", "subject_id": "pi_elsewhere", "status": "open"})]
    );
    assert_eq!(
        world.number("SELECT count(*) FROM refunds WHERE payment_id = 'pi_elsewhere' AND status = 'succeeded'"),
        1
    );
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    assert_eq!(world.number("SELECT count(*) FROM payments"), 1);
    world.assert_books_balance();
}
