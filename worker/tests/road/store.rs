//! What the database itself guarantees, and what happens when it is not as we left it.

use shared::store;

use crate::harness::{Database, Sender, World, stripe};

#[test]
fn the_schema_goes_up_and_down_and_up_again() {
    let server = std::env::var("DATABASE_URL").unwrap();
    let database = Database::empty(&server, &format!("migrations_{}", std::process::id()));
    let mut connection = database.connection();
    let objects = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname IN ('webhook', 'public') AND c.relname NOT LIKE '%diesel%'";
    let applied = store::migrate_up(&mut connection).unwrap();
    let full = database.number(objects);
    assert!(applied > 0 && full > 20);
    assert_eq!(store::migrate_down(&mut connection).unwrap(), applied);
    assert_eq!(database.number(objects), 0);
    assert_eq!(store::migrate_up(&mut connection).unwrap(), applied);
    assert_eq!(database.number(objects), full);
    assert_eq!(store::migrate_up(&mut connection).unwrap(), 0);
    assert_eq!(store::pending_migrations(&mut connection).unwrap(), 0);
}

#[test]
fn processes_that_migrate_at_once_take_turns() {
    let server = std::env::var("DATABASE_URL").unwrap();
    let database = Database::empty(&server, &format!("migrations_at_once_{}", std::process::id()));
    let applied: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| store::migrate_up(&mut database.connection()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(applied.iter().filter(|count| **count > 0).count(), 1, "{applied:?}");
}

#[test]
fn the_raw_store_is_append_only_by_every_name() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "a", |_| {}));
    let partition = world.rows("SELECT tableoid::regclass::text AS name FROM webhook.raw_events")[0]["name"].clone();
    for table in ["webhook.raw_events", partition.as_str().unwrap()] {
        for statement in ["UPDATE # SET event_type = 'x'", "DELETE FROM #", "TRUNCATE #"] {
            let refusal = world.database.refusal(&statement.replace('#', table));
            assert!(refusal.is_some_and(|words| words.contains("append-only")), "{statement} {table}");
        }
    }
    for table in ["webhook.attempts", "webhook.audit_log"] {
        let refusal = world.database.refusal(&format!("TRUNCATE {table}"));
        assert!(refusal.is_some_and(|words| words.contains("append-only")), "{table}");
    }
    assert_eq!(world.number("SELECT count(*) FROM webhook.raw_events"), 1);
}

#[test]
fn a_missing_partition_is_made_when_an_event_needs_it() {
    let world = World::new();
    world.database.execute(
        "DO $$ DECLARE partition regclass; BEGIN
             FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'webhook.raw_events'::regclass
             LOOP EXECUTE 'DROP TABLE ' || partition; END LOOP;
         END $$",
    );
    let mut connection = world.database.connection();
    assert_eq!(store::weeks_ahead(&mut connection).unwrap(), -1);
    // Maintenance is prevented, so that only the writer can be the one who makes it.
    world.database.execute("ALTER FUNCTION webhook.ensure_raw_partitions(integer) RENAME TO maintenance_is_broken");
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "a", |_| {}));
    assert_eq!(world.number("SELECT count(*) FROM webhook.raw_events"), 1);
    assert_eq!(store::weeks_ahead(&mut connection).unwrap(), 0);
}

#[test]
fn partitions_begin_on_monday_in_utc_whatever_the_time_zone() {
    let world = World::new();
    for (at, name) in
        [("2031-01-05 23:59:59.999+00", "raw_events_2031w01"), ("2031-01-06 00:00:00.001+00", "raw_events_2031w02")]
    {
        let query = format!(
            "SELECT webhook.ensure_raw_partition('{at}') AS name
                               FROM set_config('TimeZone', 'Asia/Seoul', false)"
        );
        assert_eq!(world.rows(&query)[0]["name"], name);
    }
    let seam = "SELECT count(*) FROM pg_class WHERE relname IN ('raw_events_2031w01', 'raw_events_2031w02')
                   AND pg_get_expr(relpartbound, oid) LIKE '%2031-01-06 00:00:00+00%'";
    assert_eq!(world.number(seam), 2);
}

#[test]
fn impossible_states_are_refused_by_the_tables() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    sender.deliver(&stripe("charge.succeeded", "a", |_| {}));
    for (statement, constraint) in [
        ("UPDATE webhook.inbox SET status = 'processed'", "inbox_done_has_time"),
        ("UPDATE webhook.inbox SET status = 'retrying'", "inbox_retrying_has_time"),
        ("UPDATE webhook.inbox SET status = 'dead'", "inbox_stopped_has_reason"),
        ("UPDATE webhook.inbox SET environment = 'sandbox'", "inbox_environment"),
        ("UPDATE webhook.inbox SET status = 'done'", "inbox_status"),
        ("UPDATE webhook.endpoints SET slug = 'UPPER'", "endpoints_slug_check"),
    ] {
        let refusal = world.database.refusal(statement);
        assert!(refusal.as_ref().is_some_and(|words| words.contains(constraint)), "{statement}: {refusal:?}");
    }
}
