use std::time::{Duration, Instant};

use super::load::{Load, Report};
use super::servers::Servers;
use crate::harness::{Sender, World, post, signed, stripe, wait_for};

fn assert_all_projected(world: &World, report: &Report) {
    world.wait_until_settled();
    let accepted = i64::try_from(report.accepted.len()).unwrap();
    for table in ["webhook.inbox", "webhook.raw_events", "payments"] {
        assert_eq!(world.number(&format!("SELECT count(*) FROM {table}")), accepted, "{table}");
    }
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    assert_eq!(world.number("SELECT count(*) FROM webhook.attempts"), 0, "an outage is nobody's attempt");
    world.assert_books_balance();
}

/// How long the outage lasts is what the test is about.
fn let_pass(time: Duration) {
    let until = Instant::now() + time;
    wait_for("the outage to pass", || Instant::now() >= until);
}

#[test]
fn a_broker_outage_is_not_noticed_by_any_sender() {
    let servers = Servers::start("broker");
    let world = World::on(&std::env::var("DATABASE_URL").unwrap(), servers.address("AMQP_URL"));
    let (ingress, _workers) = (world.ingress(), [world.worker(), world.worker()]);
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let load = Load::start(&sender, 4);
    load.wait_for_more(100);
    servers.command("broker-stop");
    load.wait_for_more(100);
    let_pass(Duration::from_secs(10));
    assert!(world.number("SELECT count(*) FROM webhook.outbox") > 0, "what cannot be published waits");
    servers.command("broker-start");
    load.wait_for_more(100);
    let report = load.finish();
    assert_eq!(report.answers.keys().collect::<Vec<_>>(), [&200], "{:?}", report.answers);
    assert_all_projected(&world, &report);
    world.wait_for_number(0, "SELECT count(*) FROM webhook.outbox");
}

#[test]
fn a_database_outage_is_answered_503_and_survived_by_every_process() {
    let servers = Servers::start("db");
    let world = World::on(servers.address("DATABASE_URL"), &std::env::var("AMQP_URL").unwrap());
    let (mut ingress, mut worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let load = Load::start(&sender, 4);
    load.wait_for_more(100);
    servers.command("db-kill");
    let event = stripe("charge.succeeded", "meanwhile", |_| {});
    let answer = post(sender.agent(), sender.url(), &signed(&event.body), &event.body).unwrap();
    assert_eq!(answer.status, 503);
    let_pass(Duration::from_secs(5));
    servers.command("db-start");
    load.wait_for_more(100);
    let report = load.finish();
    assert!(report.answers.keys().all(|status| [200, 503].contains(status)), "{:?}", report.answers);
    assert!(!ingress.has_ended() && !worker.has_ended());
    assert_all_projected(&world, &report);
}

#[test]
fn a_database_that_turned_read_only_is_left_and_found_again() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let load = Load::start(&sender, 4);
    load.wait_for_more(100);
    let name = world.rows("SELECT current_database() AS name")[0]["name"].as_str().unwrap().to_owned();
    let switch = |value: &str| {
        world.database.execute_writable(&format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}"));
    };
    switch("on");
    world.database.execute_writable(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    let event = stripe("charge.succeeded", "meanwhile", |_| {});
    wait_for("a refusal", || sender.try_send(&event).is_some_and(|answer| answer.status == 503));
    switch("off");
    load.wait_for_more(100);
    let mut report = load.finish();
    assert!(report.answers.keys().all(|status| [200, 503].contains(status)), "{:?}", report.answers);
    sender.deliver(&event);
    report.accepted.insert("pi_meanwhile".into());
    assert_all_projected(&world, &report);
}

#[test]
fn messages_that_no_queue_takes_stay_in_the_outbox_until_one_does() {
    let servers = Servers::start("broker");
    let world = World::on(&std::env::var("DATABASE_URL").unwrap(), servers.address("AMQP_URL"));
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "first", |_| {}));
    world.wait_for_number(0, "SELECT count(*) FROM webhook.outbox");
    servers.broker_ctl(&["delete_queue", &format!("{}.payments", world.prefix)]);
    for index in 0..20 {
        sender.deliver(&stripe("charge.succeeded", &format!("p{index}"), |_| {}));
        sender.deliver(&stripe("customer.subscription.created", &format!("s{index}"), |_| {}));
    }
    // The payments cannot be routed; what can be is not held up by them.
    world.wait_for_number(0, "SELECT count(*) FROM webhook.outbox WHERE lane = 'subscriptions'");
    world.wait_for_number(20, "SELECT count(*) FROM webhook.outbox WHERE lane = 'payments' AND publish_failures > 0");
    // A worker declares what is missing. The first message was lost with its queue, as a broker may lose messages; its
    // event is still accepted, and found by the rescue.
    let _worker = world.worker();
    world.wait_for_number(20, "SELECT count(*) FROM payments");
    assert_eq!(world.number("SELECT count(*) FROM subscription_states"), 20);
    let rescued = shared::store::rescue_stranded(&mut world.database.connection(), chrono::Utc::now(), 100).unwrap();
    assert_eq!(rescued, 1);
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM payments"), 21);
}
