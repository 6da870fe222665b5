//! The proof that the ledger is what the raw events say, and the way back when it is not.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use shared::providers::Provider;
use shared::providers::sample::SampleOptions;
use shared::store;

use crate::harness::{Arrival, Loader, Sender, World, stripe};

/// Events as they would come in, each a second after the one before.
pub struct Mix {
    clock: DateTime<Utc>,
    pub arrivals: Vec<Arrival>,
}

impl Mix {
    pub fn new() -> Mix {
        Mix { clock: Utc::now() - TimeDelta::days(20), arrivals: Vec::new() }
    }

    pub fn tell(
        &mut self,
        provider: Provider,
        event_type: &str,
        suffix: &str,
        change: impl FnOnce(&mut SampleOptions),
    ) {
        self.clock += TimeDelta::seconds(1);
        let mut options = SampleOptions::new(suffix, self.clock);
        change(&mut options);
        self.arrivals.push(Arrival::sample(provider, event_type, &options));
    }

    /// Nine events of a Stripe payment, two refunds, a dispute, and a subscription with its invoice; two of a payment and a
    /// refund that names none at another provider; four of a purchase whose owner changes.
    pub fn story(&mut self, name: &str) {
        let about = |amount: i64| {
            let payment = format!("pi_{name}");
            move |o: &mut SampleOptions| {
                o.payment = Some(payment);
                o.amount_minor = amount;
                o.payment_amount_minor = Some(10_000);
            }
        };
        self.tell(Provider::Stripe, "payment_intent.succeeded", name, about(10_000));
        self.tell(Provider::Stripe, "charge.succeeded", name, about(10_000));
        self.tell(Provider::Stripe, "refund.created", &format!("{name}r1"), about(2_000));
        self.tell(Provider::Stripe, "refund.created", &format!("{name}r2"), about(3_000));
        self.tell(Provider::Stripe, "charge.dispute.created", &format!("{name}d"), about(4_000));
        self.tell(Provider::Stripe, "customer.created", name, |_| {});
        self.tell(Provider::Stripe, "customer.subscription.created", name, |_| {});
        self.tell(Provider::Stripe, "invoice.paid", name, |_| {});
        self.tell(Provider::Stripe, "customer.subscription.updated", name, |_| {});
        self.tell(Provider::StandardWebhooks, "payment.succeeded", name, |_| {});
        self.tell(Provider::StandardWebhooks, "refund.succeeded", name, |_| {});
        self.tell(Provider::RevenueCat, "INITIAL_PURCHASE", name, |_| {});
        self.tell(Provider::RevenueCat, "RENEWAL", name, |_| {});
        self.tell(Provider::RevenueCat, "TRANSFER", name, |_| {});
        self.tell(Provider::RevenueCat, "TEST", name, |_| {});
    }
}

fn stories(world: &World, names: &[&str]) -> Loader {
    let mut mix = Mix::new();
    names.iter().for_each(|name| mix.story(name));
    let loader = Loader::of(world);
    loader.load(&mix.arrivals);
    loader
}

/// Every row, fact and status, as text.
pub fn everything(world: &World) -> Vec<String> {
    let tables = ["payments", "refunds", "disputes", "subscription_states", "ledger_facts"];
    let mut arms: Vec<String> =
        tables.iter().map(|table| format!("SELECT '{table} ' || to_jsonb(t)::text AS row FROM {table} t")).collect();
    arms.push("SELECT event_id || ' is ' || status FROM webhook.inbox".to_owned());
    let rows = world.rows(&format!("{} ORDER BY 1", arms.join(" UNION ALL ")));
    rows.iter().map(|row| row["row"].as_str().unwrap().to_owned()).collect()
}

fn assert_laws(world: &World) {
    let findings = store::inspect_laws(&mut world.database.connection()).unwrap();
    let broken: Vec<_> = findings.into_iter().filter(|finding| finding.offenders > 0).collect();
    assert_eq!(broken, []);
}

pub struct Run {
    pub code: i32,
    pub report: Value,
    pub err: String,
}

impl Run {
    /// Each difference as `subject table what`.
    pub fn differences(&self) -> BTreeSet<String> {
        let text = |difference: &Value, key: &str| difference[key].as_str().unwrap().to_owned();
        assert!(self.report["differences"].is_array(), "{} {}", self.code, self.err);
        let told = self.report["differences"].as_array().unwrap().iter().map(|difference| {
            let subject = format!("{}:{}", text(difference, "subject_kind"), text(difference, "subject_id"));
            format!("{subject} {} {}", text(difference, "table"), text(difference, "what"))
        });
        let told: Vec<String> = told.collect();
        assert_eq!(self.report["differing_rows"], told.len(), "all are told, and each is counted once: {told:#?}");
        told.into_iter().collect()
    }
}

pub fn rebuild(world: &World, arguments: &[&str]) -> Run {
    let (code, out, err) = world.webhookctl(&[&["-o", "json", "ledger", "rebuild"], arguments].concat());
    let report = serde_json::from_str::<Value>(&out).map_or(Value::Null, |envelope| {
        assert_eq!(envelope["schema"], "webhookctl.ledger.rebuild/1");
        envelope["items"][0].clone()
    });
    Run { code, report, err }
}

fn set(differences: &[&str]) -> BTreeSet<String> {
    differences.iter().map(|difference| (*difference).to_owned()).collect()
}

pub fn apply(world: &World, subjects: usize, narrowed: &[&str]) -> Run {
    let count = subjects.to_string();
    let arguments = ["--actor", "mina", "--apply", "--confirm-count", &count, "--reason", "rows were changed by hand"];
    rebuild(world, &[narrowed, &arguments].concat())
}

#[test]
fn a_healthy_ledger_is_what_the_events_say() {
    let world = World::new();
    stories(&world, &["a", "b", "c"]);
    assert!(world.number("SELECT count(*) FROM subscription_states WHERE app_user_id LIKE 'heir_%'") > 0);
    let run = rebuild(&world, &[]);
    assert_eq!((run.code, run.differences()), (0, set(&[])), "{}", run.err);
    assert_eq!(run.report["events"], 45);
    assert_eq!(run.report["facts"], world.number("SELECT count(*) FROM ledger_facts"));
    assert!(run.report["events_per_second"].as_f64().unwrap() > 0.0);
    let (code, out, err) = world.webhookctl(&["ledger", "rebuild"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("no differences"), "{out}");
    assert_eq!(err, "", "no progress in a pipe");
}

/// Damages the ledger by hand in every way, each story in one, and says what a rebuild has to find.
pub fn damage(world: &World) -> BTreeSet<String> {
    for statement in [
        "DELETE FROM payments WHERE payment_id = 'pi_a'",
        "UPDATE payments SET captured_amount = captured_amount + 0.01 WHERE payment_id = 'pi_b'",
        "DELETE FROM refunds WHERE refund_id = 're_cr1'",
        "UPDATE disputes SET status = 'won', closed_at = now() WHERE dispute_id = 'dp_dd'",
        "UPDATE subscription_states SET status = 'paused' WHERE subscription_id = 'sub_e' AND provider = 'stripe'",
        "INSERT INTO refunds SELECT (json_populate_record(r, '{\"refund_id\": \"re_forged\", \"payment_id\": \"pi_ghost\"}')).*
           FROM refunds r WHERE refund_id = 're_fr1'",
        // The rows still show what the facts no longer say.
        "DELETE FROM ledger_facts WHERE external_event_id = 'evt_gr1_refund_created'",
        "UPDATE ledger_facts SET occurred_at = occurred_at + interval '1 hour'
          WHERE external_event_id = 'evt_h_charge_succeeded'",
        "INSERT INTO ledger_facts
         SELECT provider, provider_account_id, subject_kind, subject_id, gen_random_uuid(), ordinal, 'evt_forged', occurred_at, fact
           FROM ledger_facts WHERE external_event_id = 'evt_ir1_refund_created'",
        // Nothing is left of a subscription.
        "DELETE FROM ledger_facts WHERE subject_id = 'sub_j' AND provider = 'stripe'",
        "DELETE FROM subscription_states WHERE subscription_id = 'sub_j' AND provider = 'stripe'",
        // Of a change of owner only the row tells, and in another story nothing at all.
        "DELETE FROM ledger_facts WHERE subject_kind = 'user' AND external_event_id IN ('rc_k_TRANSFER', 'rc_l_TRANSFER')",
        "UPDATE subscription_states SET app_user_id = 'cus_l' WHERE app_user_id = 'heir_l'",
    ] {
        world.database.execute(statement);
    }
    set(&[
        "payment:pi_a payments missing",
        "payment:pi_b payments changed",
        "payment:pi_c refunds missing",
        "payment:pi_d disputes changed",
        "subscription:sub_e subscription_states changed",
        "payment:pi_ghost refunds extra",
        "payment:pi_g ledger_facts missing",
        "payment:pi_h ledger_facts changed",
        "payment:pi_i ledger_facts extra",
        "subscription:sub_j ledger_facts missing",
        "subscription:sub_j subscription_states missing",
        "user:cus_k ledger_facts missing",
        "user:cus_l ledger_facts missing",
        "subscription:txn_l subscription_states missing",
        "subscription:txn_l subscription_states extra",
    ])
}

pub const DAMAGED: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[test]
fn what_was_changed_by_hand_is_found_exactly_and_repaired() {
    let world = World::new();
    stories(&world, &DAMAGED);
    let before = everything(&world);
    let expected = damage(&world);
    let run = rebuild(&world, &[]);
    let found = run.differences();
    assert_eq!(found.symmetric_difference(&expected).collect::<Vec<_>>(), Vec::<&String>::new(), "{}", run.err);
    assert_eq!((run.code, &run.report["differing_subjects"]), (8, &Value::from(13)));
    let differences = run.report["differences"].as_array().unwrap();
    let columns = &differences.iter().find(|difference| difference["subject_id"] == "pi_b").unwrap()["columns"];
    assert_eq!(columns, &serde_json::json!([{ "name": "captured_amount", "live": "100.01", "rebuilt": "100" }]));

    let damaged = everything(&world);
    let refused = apply(&world, 12, &[]);
    assert_eq!(refused.code, 5);
    assert!(refused.err.contains("13 subjects differ, not 12"), "{}", refused.err);
    let (code, _, err) = world.webhookctl(&["ledger", "rebuild", "--apply", "--confirm-count", "13"]);
    assert_eq!(code, 2, "a reason is asked for: {err}");
    let short = ["ledger", "rebuild", "--apply", "--confirm-count", "13", "--reason", "short"];
    assert_eq!(world.webhookctl(&short).0, 2);
    assert_eq!(everything(&world), damaged, "nothing was changed");

    let applied = apply(&world, 13, &[]);
    assert_eq!((applied.code, &applied.report["repaired_subjects"]), (0, &Value::from(13)), "{}", applied.err);
    assert_eq!(everything(&world), before);
    assert_eq!(rebuild(&world, &[]).differences(), set(&[]));
    let audit = world.rows("SELECT actor, target, reason FROM webhook.audit_log WHERE action = 'ledger.rebuild'");
    assert!(audit.iter().all(|line| line["actor"] == "mina" && line["reason"] == "rows were changed by hand"));
    let targets: Vec<&str> = audit.iter().flat_map(|line| line["target"].as_str().unwrap().split(' ')).collect();
    assert_eq!(targets.len(), 13, "each subject is named once: {targets:?}");
    assert_laws(&world);
}

#[test]
fn a_provider_a_subject_and_a_time_narrow_it() {
    let world = World::new();
    let loader = stories(&world, &["a", "b"]);
    let before = everything(&world);
    world.database.execute("DELETE FROM payments WHERE payment_id IN ('pi_a', 'pay_a')");
    // An invoice speaks of a payment that no search key of it names.
    world
        .database
        .execute("DELETE FROM ledger_facts WHERE external_event_id = 'evt_b_invoice_paid' AND subject_id = 'pi_b'");

    let stripe = rebuild(&world, &["--provider", "stripe"]);
    let of_stripe =
        set(&["payment:pi_a payments missing", "payment:pi_b ledger_facts missing", "payment:pi_b payments changed"]);
    assert_eq!((stripe.code, stripe.report["events"].as_u64()), (8, Some(18)));
    assert!(
        stripe.differences().is_subset(&of_stripe) && stripe.report["differing_subjects"] == 2,
        "{:?}",
        stripe.differences()
    );
    let other = rebuild(&world, &["--provider", "standard"]);
    assert_eq!(other.differences(), set(&["payment:pay_a payments missing"]));

    let subject = rebuild(&world, &["--subject", "payment:pi_b"]);
    assert!(subject.differences().contains("payment:pi_b ledger_facts missing"), "{:?}", subject.differences());
    assert_eq!(subject.report["differing_subjects"], 1);
    let healthy = rebuild(&world, &["--subject", "subscription:sub_a"]);
    assert_eq!((healthy.code, healthy.differences()), (0, set(&[])));
    let unknown = rebuild(&world, &["--subject", "payment:pi_nobody"]);
    assert_eq!(unknown.code, 3, "{}", unknown.err);

    // Whoever asks for what was touched since then is not told of what was broken before.
    let since = Utc::now();
    assert_eq!(rebuild(&world, &["--since", &since.to_rfc3339()]).report["events"], 0);
    let mut late = Mix::new();
    late.tell(Provider::Stripe, "charge.refunded", "late", |o| o.payment = Some("pi_a".to_owned()));
    loader.load(&late.arrivals);
    world.database.execute("DELETE FROM payments WHERE payment_id = 'pi_a'");
    let run = rebuild(&world, &["--since", &since.to_rfc3339()]);
    assert_eq!((run.report["events"].as_u64(), run.differences()), (Some(1), set(&["payment:pi_a payments missing"])));

    assert_eq!(apply(&world, 1, &["--subject", "payment:pi_b"]).code, 0);
    assert_eq!(apply(&world, 1, &["--provider", "standard"]).code, 0);
    assert_eq!(apply(&world, 1, &["--since", &since.to_rfc3339()]).code, 0);
    assert_eq!(rebuild(&world, &[]).differences(), set(&[]));
    let now = everything(&world);
    let gone: Vec<&String> = before.iter().filter(|row| !now.contains(row) && !row.contains("\"pi_a\"")).collect();
    assert_eq!(gone, Vec::<&String>::new());
    assert_laws(&world);
}

#[test]
fn an_event_that_was_not_understood_at_the_time_enters_the_ledger() {
    let world = World::new();
    stories(&world, &["a"]);
    let before = everything(&world);
    // What an adapter that overlooked refunds would have left, and one that found facts where there are none.
    world.database.execute("UPDATE webhook.inbox SET status = 'ignored' WHERE event_id = 'evt_ar1_refund_created'");
    world.database.execute("DELETE FROM ledger_facts WHERE external_event_id = 'evt_ar1_refund_created'");
    world.database.execute("DELETE FROM refunds WHERE refund_id = 're_ar1'");
    world.database.execute("UPDATE payments SET refunded_amount = 30 WHERE payment_id = 'pi_a'");
    world.database.execute("UPDATE webhook.inbox SET status = 'processed' WHERE event_id = 'evt_a_customer_created'");
    world.database.execute(
        "INSERT INTO ledger_facts
         SELECT f.provider, f.provider_account_id, subject_kind, 'pi_none', i.id, 0, i.event_id, f.occurred_at, fact
           FROM ledger_facts f, webhook.inbox i
          WHERE f.external_event_id = 'evt_a_charge_succeeded' AND i.event_id = 'evt_a_customer_created'",
    );
    let run = rebuild(&world, &[]);
    let expected = [
        "payment:pi_a ledger_facts missing",
        "payment:pi_a refunds missing",
        "payment:pi_a payments changed",
        "payment:pi_none ledger_facts extra",
    ];
    assert_eq!(run.differences(), set(&expected));
    assert_eq!(apply(&world, 2, &[]).code, 0);
    assert_eq!(everything(&world), before);
    assert_laws(&world);
}

#[test]
fn what_cannot_be_derived_again_is_kept_and_still_founds_its_rows() {
    let mut world = World::new();
    stories(&world, &["a", "b"]);
    let before = everything(&world);
    // The oldest partition was archived, and one body of the rest was changed.
    world.database.execute(
        "DO $$ BEGIN
             SET LOCAL session_replication_role = replica;
             DELETE FROM webhook.raw_events WHERE event_id ~ '^[a-z]+_a';
             UPDATE webhook.raw_events SET body = set_byte(body, 60, get_byte(body, 60) # 1)
              WHERE event_id = 'evt_b_charge_succeeded';
         END $$",
    );
    let kept = |run: &Run| run.report["kept"].clone();
    let run = rebuild(&world, &[]);
    let unreadable = serde_json::json!({ "code": "body_unreadable", "events": 1 });
    let archived = serde_json::json!({ "code": "body_archived", "events": 15 });
    assert_eq!((run.code, run.differences()), (8, set(&[])), "somebody has to look at the changed body");
    assert_eq!(kept(&run), serde_json::json!([archived, unreadable]));

    world.database.execute("DELETE FROM subscription_states WHERE subscription_id IN ('txn_a', 'sub_a')");
    world.database.execute("UPDATE payments SET status = 'pending' WHERE payment_id IN ('pi_a', 'pi_b')");
    assert_eq!(rebuild(&world, &[]).report["differing_subjects"], 4);
    assert_eq!(apply(&world, 4, &[]).code, 0);
    assert_eq!(everything(&world), before);

    // A key that is not there is no reason to forget what it sealed.
    world.set("SEALING_KEYS", "other:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=");
    let run = rebuild(&world, &[]);
    assert_eq!((run.code, run.differences()), (8, set(&[])));
    assert!(kept(&run).to_string().contains("sealing_key_missing"), "{}", kept(&run));
}

#[test]
fn what_a_person_decided_is_rebuilt_too() {
    let world = World::new();
    let loader = Loader::of(&world);
    let mut mix = Mix::new();
    mix.tell(Provider::Stripe, "payment_intent.canceled", "a", |_| {});
    mix.tell(Provider::Stripe, "payment_intent.succeeded", "a", |_| {});
    mix.story("b");
    loader.load(&mix.arrivals);
    let quarantined = world.rows("SELECT id, reason FROM webhook.quarantine");
    assert_eq!(quarantined[0]["reason"], "paid_after_canceled");
    let id = quarantined[0]["id"].as_str().unwrap();
    let release = ["quarantine", "release", id, "--as", "accept", "--reason", "the money is there"];
    let (code, out, err) = world.webhookctl(&release);
    assert_eq!(code, 0, "{out}{err}");
    let decision = world.rows("SELECT id FROM webhook.inbox WHERE origin = 'operator'")[0]["id"].clone();
    loader.project(&[decision.as_str().unwrap().parse().unwrap()]);
    assert_eq!(world.number("SELECT count(*) FROM payments WHERE payment_id = 'pi_a' AND status = 'paid'"), 1);
    assert_eq!(rebuild(&world, &[]).differences(), set(&[]));

    let before = everything(&world);
    world.database.execute("DELETE FROM ledger_facts WHERE fact ->> 'kind' = 'decision'");
    world.database.execute("DELETE FROM payments WHERE payment_id = 'pi_a'");
    let expected = set(&["payment:pi_a ledger_facts missing", "payment:pi_a payments missing"]);
    for narrowed in [[].as_slice(), &["--subject", "payment:pi_a"]] {
        assert_eq!(rebuild(&world, narrowed).differences(), expected);
    }
    assert_eq!(apply(&world, 1, &["--subject", "payment:pi_a"]).code, 0);
    assert_eq!(everything(&world), before);
    assert_eq!(world.number("SELECT count(*) FROM webhook.quarantine WHERE status = 'released'"), 1);
    assert_laws(&world);
}

#[test]
fn a_refund_that_names_its_payment_only_sometimes_is_no_difference() {
    let world = World::new();
    let mut mix = Mix::new();
    mix.tell(Provider::Stripe, "refund.created", "a", |_| {});
    mix.tell(Provider::Stripe, "refund.updated", "a", |_| {});
    let mut body: Value = serde_json::from_slice(&mix.arrivals[1].body).unwrap();
    for reference in ["payment_intent", "charge"] {
        body["data"]["object"][reference] = Value::Null;
    }
    mix.arrivals[1].body = body.to_string().into_bytes();
    Loader::of(&world).load(&mix.arrivals);
    assert_eq!(world.number("SELECT count(DISTINCT subject_kind) FROM ledger_facts"), 2);
    let run = rebuild(&world, &[]);
    assert_eq!((run.code, run.differences()), (0, set(&[])));
    world.database.execute("UPDATE refunds SET amount = 1");
    assert_eq!(rebuild(&world, &[]).differences(), set(&["payment:pi_a refunds changed"]));
    assert_eq!(apply(&world, 1, &[]).code, 0);
    assert_eq!(world.number("SELECT count(*) FROM refunds WHERE payment_id = 'pi_a' AND amount = 10.99"), 1);
}

/// Sends refunds of a few payments until told to stop, so that whoever rebuilds and whoever projects meet.
fn refund_until(sender: &Sender, stop: &AtomicBool) -> i64 {
    let created = Utc::now() - TimeDelta::days(1);
    for payment in 0..3 {
        sender.deliver(&stripe("charge.succeeded", &format!("live{payment}"), |o| {
            o.amount_minor = 1_000_000;
            o.created = created;
        }));
    }
    let rounds = (1..).take_while(|_| !stop.load(Ordering::Relaxed)).inspect(|round| {
        for payment in 0..3 {
            sender.deliver(&stripe("refund.created", &format!("live{payment}x{round}"), |o| {
                o.payment = Some(format!("pi_live{payment}"));
                o.amount_minor = 1;
                o.created = created + TimeDelta::seconds(*round);
            }));
        }
    });
    rounds.last().unwrap_or(0)
}

#[test]
fn live_traffic_is_no_difference_and_a_repair_beside_it_loses_nothing() {
    let world = World::new();
    let (ingress, _workers) = (world.ingress(), [world.worker(), world.worker()]);
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| refund_until(&sender, &stop));
        let watched = catch_unwind(AssertUnwindSafe(|| {
            for round in 1..=4 {
                let refund = format!("re_live0x{round}");
                world.wait_for_number(1, &format!("SELECT count(*) FROM refunds WHERE refund_id = '{refund}'"));
                let run = rebuild(&world, &[]);
                assert_eq!((run.code, run.differences()), (0, set(&[])), "{}", run.err);
                // Projecting the next refund does not bring back the fact of an earlier one.
                world.database.execute(&format!(
                    "DELETE FROM ledger_facts WHERE external_event_id = 'evt_live0x{round}_refund_created'"
                ));
                let run = apply(&world, 1, &[]);
                assert_eq!((run.code, &run.report["repaired_subjects"]), (0, &Value::from(1)), "{}", run.err);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        watched.unwrap();
        traffic.join().unwrap()
    });
    world.wait_until_settled();
    let run = rebuild(&world, &[]);
    assert_eq!((run.code, run.differences()), (0, set(&[])), "{}", run.err);
    assert_eq!(world.number("SELECT count(*) FROM refunds"), rounds * 3);
    assert_laws(&world);
}
