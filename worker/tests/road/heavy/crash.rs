use std::time::Duration;

use super::load::Load;
use crate::harness::{Process, Sender, Signal, World};

const KILLS: usize = 24;

/// A port that is free now. The ingress comes back on the same one after every kill.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn processes_killed_at_random_instants_lose_and_double_nothing() {
    let mut world = World::new();
    world.set("INGRESS_LISTEN", &format!("127.0.0.1:{}", free_port()));
    let mut ingress = Some(world.ingress());
    let mut workers: Vec<Process> = vec![world.worker(), world.worker()];
    let sender = Sender::to(ingress.as_ref().unwrap());
    sender.wait_until_open();
    let load = Load::start(&sender, 8);

    for kill in 0..KILLS {
        // The instant is the point of the test: anywhere in the work of either process.
        load.wait_for_more(10);
        std::thread::sleep(Duration::from_millis(rand::random_range(0..150)));
        if kill % 2 == 0 {
            ingress.take().unwrap().kill();
            ingress = Some(world.ingress());
        } else {
            workers.remove(0).kill();
            workers.push(world.worker());
        }
    }
    load.wait_for_more(10);
    let report = load.finish();
    world.wait_until_settled();

    let accepted = i64::try_from(report.accepted.len()).unwrap();
    assert!(accepted > 200, "{:?}", report.answers);
    assert!(report.answers.keys().all(|status| [0, 200, 503].contains(status)), "{:?}", report.answers);
    for table in ["webhook.inbox", "webhook.raw_events", "ledger_facts", "payments"] {
        assert_eq!(world.number(&format!("SELECT count(*) FROM {table}")), accepted, "{table}");
    }
    assert_eq!(
        world.number("SELECT count(*) FROM payments WHERE status = 'paid' AND captured_amount = 10.99"),
        accepted
    );
    let stored: Vec<String> = world
        .rows("SELECT payment_id FROM payments")
        .iter()
        .map(|r| r["payment_id"].as_str().unwrap().to_owned())
        .collect();
    assert!(stored.iter().all(|payment| report.accepted.contains(payment)));
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    world.wait_for_number(0, "SELECT count(*) FROM webhook.outbox");
    world.assert_books_balance();
}

#[test]
fn a_graceful_stop_leaves_no_request_unanswered_and_no_event_behind() {
    let mut world = World::new();
    world.set("INGRESS_LISTEN", &format!("127.0.0.1:{}", free_port()));
    let (ingress, worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let load = Load::start(&sender, 8);
    load.wait_for_more(200);
    assert!(worker.stop().success());
    load.wait_for_more(200);
    assert!(ingress.stop().success());
    // What was committed is published before the process ends: nothing waits for a sweep.
    assert_eq!(world.number("SELECT count(*) FROM webhook.outbox"), 0);

    let (_ingress, _worker) = (world.ingress(), world.worker());
    let report = load.finish();
    world.wait_until_settled();
    // No answer: the connection was refused while nothing listened. Every other answer was a 200.
    assert!(report.answers.keys().all(|status| [0, 200, 503].contains(status)), "{:?}", report.answers);
    let accepted = i64::try_from(report.accepted.len()).unwrap();
    assert_eq!(world.number("SELECT count(*) FROM payments"), accepted);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE suspect_count > 0"), 0);
    world.assert_books_balance();
}

#[test]
fn a_frozen_worker_holds_nobody_up_and_wakes_without_harm() {
    let world = World::new();
    let (ingress, frozen) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let load = Load::start(&sender, 4);
    load.wait_for_more(100);
    frozen.signal(Signal::Stop);
    let _second = world.worker();
    load.wait_for_more(300);
    let report = load.finish();
    frozen.signal(Signal::Continue);
    world.wait_until_settled();
    assert_eq!(report.answers.keys().collect::<Vec<_>>(), [&200]);
    assert_eq!(world.number("SELECT count(*) FROM payments"), i64::try_from(report.accepted.len()).unwrap());
    world.assert_books_balance();
}
