//! The ledger is a function of the set of facts: order, duplication, batching and the number of workers change nothing.

use std::collections::BTreeMap;

use crate::harness::{Event, Sender, World, stripe};

/// One payment with two partial refunds and a dispute that is lost. Ids differ between stories, nothing else.
fn story(suffix: &str, created: chrono::DateTime<chrono::Utc>) -> Vec<Event> {
    let event = |event_type: &str, own: &str, amount: i64, second: i64| {
        stripe(event_type, &format!("{suffix}{own}"), |o| {
            o.payment = Some(format!("pi_{suffix}"));
            o.amount_minor = amount;
            o.payment_amount_minor = Some(10_000);
            o.created = created + chrono::TimeDelta::seconds(second);
        })
    };
    vec![
        event("charge.succeeded", "p", 10_000, 0),
        event("refund.created", "r1", 2_000, 10),
        event("refund.created", "r2", 3_000, 20),
        event("charge.refunded", "p", 5_000, 20),
        event("charge.dispute.created", "d", 4_000, 30),
        event("charge.dispute.closed", "d", 4_000, 40),
    ]
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let shorter = permutations(n - 1);
    shorter
        .iter()
        .flat_map(|p| {
            (0..n).map(move |at| {
                let mut longer = p.clone();
                longer.insert(at, n - 1);
                longer
            })
        })
        .collect()
}

/// The ledger rows of every story, by its suffix, with its ids taken out.
fn rows_by_story(world: &World) -> BTreeMap<String, Vec<String>> {
    let mut stories: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, key) in [("payments", "payment_id"), ("refunds", "refund_id"), ("disputes", "dispute_id")] {
        let query = format!(
            "SELECT t.payment_id, (to_jsonb(t) - 'webhook_event_id')::text AS row, i.event_id AS last_change
               FROM {table} t JOIN webhook.inbox i ON i.id = t.webhook_event_id
              ORDER BY t.{key}"
        );
        for row in world.rows(&query) {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            let suffix = text("payment_id").strip_prefix("pi_").unwrap().to_owned();
            let content = format!("{} last changed by {}", text("row"), text("last_change")).replace(&suffix, "#");
            stories.entry(suffix).or_default().push(content);
        }
    }
    stories
}

#[test]
fn every_permutation_of_a_payment_with_refunds_and_a_dispute_gives_the_same_rows() {
    let mut world = World::new();
    // Small batches, so that the events of one payment are spread over many of them.
    world.set("WORKER_BATCH", "7");
    let (ingress, _workers) = (world.ingress(), [world.worker(), world.worker()]);
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let created = chrono::Utc::now();
    let orders = permutations(6);
    let suffix = |index: usize| format!("x{index:03}x");
    let stories: Vec<Vec<Event>> = (0..orders.len()).map(|index| story(&suffix(index), created)).collect();

    // Round by round, each story's next event, so that every prefix of every permutation is folded on its own.
    for round in 0..6 {
        std::thread::scope(|scope| {
            for half in 0..4 {
                let (sender, stories, orders) = (sender.clone(), &stories, &orders);
                scope.spawn(move || {
                    for (story, order) in stories.iter().zip(orders).skip(half).step_by(4) {
                        sender.deliver(&story[order[round]]);
                        // Every other event comes twice.
                        if (order[round] + round) % 2 == 0 {
                            sender.deliver(&story[order[round]]);
                        }
                    }
                });
            }
        });
        world.wait_until_settled();
    }

    let stories = rows_by_story(&world);
    let expected = &stories[&suffix(0)];
    assert_eq!(expected.len(), 4, "{expected:#?}");
    let payment = &expected[0];
    for part in [
        "\"refunded_amount\": 50,",
        "\"disputed_amount\": 40,",
        "\"dispute_status\": \"lost\"",
        "\"captured_amount\": 100,",
    ] {
        assert!(payment.contains(part), "{part} in {payment}");
    }
    for (index, order) in orders.iter().enumerate() {
        assert_eq!(&stories[&suffix(index)], expected, "{order:?}");
    }
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    world.assert_books_balance();
}

#[test]
fn a_refund_before_its_payment_is_a_row_at_once_and_joins_the_payment_when_it_comes() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let story = story("early", chrono::Utc::now());
    sender.deliver(&story[1]);
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM refunds WHERE payment_id = 'pi_early'"), 1);
    assert_eq!(world.number("SELECT count(*) FROM payments"), 0);
    sender.deliver(&story[0]);
    world.wait_until_settled();
    let partial = "SELECT count(*) FROM payments WHERE status = 'partially_refunded' AND refunded_amount = 20";
    assert_eq!(world.number(partial), 1);
}

#[test]
fn a_refund_that_names_its_payment_only_sometimes_stays_with_it_in_any_order() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let created = chrono::Utc::now();
    let event = |event_type: &str, story: &str, linked: bool| {
        let event = stripe(event_type, story, |o| o.created = created);
        let mut body: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
        if !linked {
            for reference in ["payment_intent", "charge"] {
                body["data"]["object"][reference] = serde_json::Value::Null;
            }
        }
        Event { id: event.id, body: body.to_string().into_bytes() }
    };
    // The same two events of two refunds, the other way round, one after the other and in one batch.
    let (first, second) = (event("refund.created", "a", true), event("refund.updated", "a", false));
    sender.deliver(&first);
    world.wait_until_settled();
    sender.deliver(&second);
    let (first, second) = (event("refund.created", "b", true), event("refund.updated", "b", false));
    sender.deliver(&second);
    world.wait_until_settled();
    sender.deliver(&first);
    world.wait_until_settled();
    let rows = world.rows(
        "SELECT replace(replace((to_jsonb(r) - 'webhook_event_id')::text, '_a\"', '_#\"'), '_b\"', '_#\"') AS row FROM refunds r",
    );
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], rows[1]);
    assert_eq!(world.number("SELECT count(*) FROM refunds WHERE payment_id IS NOT NULL"), 2);
}
