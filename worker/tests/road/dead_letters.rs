//! What becomes of events that cannot be projected.

use shared::broker::{BrokerUrl, Deliveries, Dispatch, Publisher, Topology};
use shared::domain::Lane;
use uuid::Uuid;

use crate::harness::{Process, Sender, World, stripe};

/// Projecting this payment fails with `sqlstate`, as a schema that is behind, or a busy server, would make it fail.
fn break_payment(world: &World, payment: &str, sqlstate: &str) {
    world.database.execute(&format!(
        "CREATE FUNCTION break_payment() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.payment_id = '{payment}' THEN
                 RAISE EXCEPTION 'broken by a test: 4111111111111111' USING ERRCODE = '{sqlstate}';
             END IF;
             RETURN NEW;
         END $$"
    ));
    world.database.execute(
        "CREATE TRIGGER break_payment BEFORE INSERT OR UPDATE ON payments
                            FOR EACH ROW EXECUTE FUNCTION break_payment()",
    );
}

fn deliver_neighbours(sender: &Sender, numbers: std::ops::Range<usize>) {
    for index in numbers {
        sender.deliver(&stripe("charge.succeeded", &format!("good{index}"), |_| {}));
    }
}

#[test]
fn a_hopeless_event_is_buried_at_once_and_redriven_after_the_fix() {
    let world = World::new();
    world.database.execute("ALTER TABLE payments ADD CONSTRAINT refused CHECK (payment_id <> 'pi_bad') NOT VALID");
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let bad = stripe("charge.succeeded", "bad", |_| {});
    sender.deliver(&bad);
    deliver_neighbours(&sender, 0..20);
    world.wait_until_settled();

    // The neighbours are not harmed, and no attempt was wasted.
    assert_eq!(world.number("SELECT count(*) FROM payments"), 20);
    let letters =
        world.rows("SELECT external_event_id, error_code, error_message, source, status FROM webhook.dead_letters");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0]["external_event_id"], bad.id);
    assert_eq!(letters[0]["error_code"], "constraint_violation");
    assert_eq!(letters[0]["error_message"], "the constraint refused of table payments refuses the row");
    assert_eq!(world.number("SELECT count(*) FROM webhook.attempts"), 1);
    world.assert_books_balance();

    let (code, _, err) = world.webhookctl(&["dlq", "replay", &bad.id, "--reason", "short"]);
    assert_ne!(code, 0, "a reason of five letters: {err}");
    world.database.execute("ALTER TABLE payments DROP CONSTRAINT refused");
    let (code, out, err) = world.webhookctl(&["dlq", "replay", &bad.id, "--reason", "the constraint is gone"]);
    assert_eq!(code, 0, "{out}{err}");
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM payments WHERE payment_id = 'pi_bad'"), 1);
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters WHERE status = 'resolved' AND redrives = 1"), 1);
    assert_eq!(world.number("SELECT count(*) FROM webhook.audit_log WHERE action = 'dlq.replay'"), 1);
    let (code, ..) = world.webhookctl(&["dlq", "replay", &bad.id, "--reason", "once more for luck"]);
    assert_eq!(code, 5, "a resolved letter is not replayed");
    world.assert_books_balance();
}

#[test]
fn a_transient_failure_is_tried_again_and_becomes_a_dead_letter_in_the_end() {
    let mut world = World::new();
    world.set("WORKER_ATTEMPTS", "3");
    break_payment(&world, "pi_bad", "40001");
    let (ingress, worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "bad", |_| {}));
    deliver_neighbours(&sender, 0..20);
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM payments"), 20);
    let attempts = world.rows("SELECT attempt, class, error_code, fate FROM webhook.attempts ORDER BY attempt");
    let fates: Vec<&str> = attempts.iter().map(|a| a["fate"].as_str().unwrap()).collect();
    assert_eq!(fates, ["retry", "retry", "dead"], "{attempts:?}");
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'dead' AND attempt_count = 3"), 1);
    assert!(!worker.logged().contains("4111"), "the server's words stay out of the log");
    let leaks = "SELECT count(*) FROM webhook.attempts WHERE error_message LIKE '%4111%'";
    assert_eq!(world.number(leaks), 0, "and out of the tables");
    world.assert_books_balance();
}

#[test]
fn a_discarded_letter_is_closed_with_a_name_and_a_reason() {
    let world = World::new();
    world.database.execute("ALTER TABLE payments ADD CONSTRAINT refused CHECK (payment_id <> 'pi_bad') NOT VALID");
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let bad = stripe("charge.succeeded", "bad", |_| {});
    sender.deliver(&bad);
    world.wait_until_settled();
    let arguments = ["--actor", "mina", "dlq", "discard", &bad.id, "--reason", "a test payment of the shop"];
    let (code, out, err) = world.webhookctl(&arguments);
    assert_eq!(code, 0, "{out}{err}");
    let closed = world.rows("SELECT status, closed_by, closed_reason FROM webhook.dead_letters");
    assert_eq!(
        closed,
        [serde_json::json!({
        "status": "discarded", "closed_by": "mina", "closed_reason": "a test payment of the shop"})]
    );
    assert_eq!(world.number("SELECT count(*) FROM payments"), 0);
    world.assert_books_balance();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Takes what is in the lane and dies with it, as often as the broker gives it out.
async fn die_with_the_lane(world: &World, lane: Lane) {
    let (url, topology) = (BrokerUrl::parse(&world.amqp_url).unwrap(), Topology::new(&world.prefix));
    for _ in 0..40 {
        let mut deliveries = Deliveries::of_lane(&url, &topology, lane, 10, 10).await.unwrap();
        let next = tokio::time::timeout(std::time::Duration::from_secs(2), deliveries.next()).await;
        // Dropped with everything unacknowledged, as a killed process drops it.
        drop(deliveries);
        if next.is_err() {
            return;
        }
    }
    panic!("the broker never gave the messages up");
}

#[test]
fn events_that_workers_died_with_go_alone_once_more_and_the_innocent_are_projected() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    deliver_neighbours(&sender, 0..5);
    world.wait_for_number(0, "SELECT count(*) FROM webhook.outbox");
    runtime().block_on(die_with_the_lane(&world, Lane::Payments));
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'accepted'"), 5);

    let _worker = world.worker();
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM payments"), 5);
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    assert_eq!(world.number("SELECT sum(suspect_count) FROM webhook.inbox"), 5);
}

#[test]
fn a_message_without_an_event_is_recorded_and_harms_nobody() {
    let world = World::new();
    let (ingress, _worker): (Process, Process) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    runtime().block_on(async {
        let (url, topology) = (BrokerUrl::parse(&world.amqp_url).unwrap(), Topology::new(&world.prefix));
        let publisher = Publisher::connect(&url, &topology).await.unwrap();
        let stranger = Dispatch { dispatch_id: Uuid::now_v7(), event_id: Uuid::now_v7(), lane: Lane::Payments };
        let published = publisher.publish(&[stranger]).await.unwrap();
        assert_eq!(published.confirmed, [stranger.dispatch_id]);
    });
    deliver_neighbours(&sender, 0..5);
    world.wait_until_settled();
    world.wait_for_number(1, "SELECT count(*) FROM webhook.dead_letters WHERE error_code = 'unknown_event'");
    assert_eq!(world.number("SELECT count(*) FROM payments"), 5);
}

#[test]
fn an_event_whose_body_was_changed_in_the_store_is_not_believed() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "a", |_| {}));
    world.database.execute(
        "DO $$ BEGIN
             SET LOCAL session_replication_role = replica;
             UPDATE webhook.raw_events SET body = set_byte(body, 60, get_byte(body, 60) # 1);
         END $$",
    );
    let _worker = world.worker();
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters WHERE error_code = 'body_unreadable'"), 1);
    assert_eq!(world.number("SELECT count(*) FROM payments"), 0);
}

#[test]
fn an_event_whose_failure_cannot_be_recorded_holds_nobody_up_and_is_recorded_when_it_can_be() {
    let world = World::new();
    world.database.execute("ALTER TABLE payments ADD CONSTRAINT refused CHECK (payment_id <> 'pi_bad') NOT VALID");
    world.database.execute("ALTER TABLE webhook.attempts ADD CONSTRAINT full_up CHECK (false) NOT VALID");
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "bad", |_| {}));
    deliver_neighbours(&sender, 0..20);
    world.wait_for_number(20, "SELECT count(*) FROM payments");
    deliver_neighbours(&sender, 20..25);
    world.wait_for_number(25, "SELECT count(*) FROM payments");
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'accepted'"), 1);
    world.database.execute("ALTER TABLE webhook.attempts DROP CONSTRAINT full_up");
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters WHERE status = 'open'"), 1);
    world.assert_books_balance();
}
