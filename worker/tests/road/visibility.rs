//! What the processes show of themselves, and what they never show.

use std::process::Command;

use crate::harness::{Process, SEALING_KEYS, SECRET, Sender, World, signed, stripe, wait_for};

fn get(url: &str) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let mut response = ureq::Agent::from(config).get(url).call().unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

/// The value of one series.
fn metric(process: &Process, series: &str) -> Option<f64> {
    let (_, text) = get(&format!("{}/metrics", process.admin()));
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn metrics_count_what_happened_and_health_tells_the_truth() {
    let world = World::new();
    let (ingress, worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let event = stripe("charge.succeeded", "a", |_| {});
    sender.deliver(&event);
    sender.deliver(&event);
    assert_eq!(sender.send(&stripe("charge.succeeded", "a", |o| o.amount_minor = 7)).status, 409);
    world.wait_until_settled();

    for (process, series, value) in [
        (&ingress, "webhook_events_accepted_total{provider=\"stripe\",event_class=\"payments\"}", 1.0),
        (&ingress, "webhook_events_replayed_total{provider=\"stripe\"}", 1.0),
        (&ingress, "webhook_events_quarantined_total{provider=\"stripe\",reason=\"payload_mismatch\"}", 1.0),
        (&ingress, "webhook_events_rejected_total{provider=\"stripe\",reason=\"missing_header\"}", 1.0),
        (&ingress, "webhook_events_rejected_total{provider=\"stripe\",reason=\"signature\"}", 0.0),
        (&ingress, "webhook_http_requests_total{provider=\"stripe\",code=\"200\"}", 2.0),
        (
            &worker,
            "webhook_events_processed_total{provider=\"stripe\",event_class=\"payments\",outcome=\"applied\"}",
            1.0,
        ),
        (
            &worker,
            "webhook_processing_lag_seconds_count{provider=\"stripe\",event_class=\"payments\",lane=\"payments\"}",
            1.0,
        ),
    ] {
        wait_for(&format!("{series} to be {value}"), || metric(process, series) == Some(value));
    }
    wait_for("the outbox gauge", || metric(&ingress, "webhook_outbox_pending_rows{lane=\"payments\"}") == Some(0.0));
    for process in [&ingress, &worker] {
        assert_eq!(get(&format!("{}/live", process.admin())).0, 200);
        assert_eq!(get(&format!("{}/ready", process.admin())).0, 200);
    }
    // A schema that this version does not know the way to is not ready.
    world.database.execute("DELETE FROM __diesel_schema_migrations");
    let (status, words) = get(&format!("{}/ready", ingress.admin()));
    assert_eq!((status, words.contains("webhookctl migrate")), (503, true), "{words}");
}

#[test]
fn a_broken_setting_stops_the_start_with_its_name() {
    let world = World::new();
    let binary = |name: &str| std::path::Path::new(env!("CARGO_BIN_EXE_worker")).with_file_name(name);
    let start = |name: &str, variable: &str, value: Option<&str>| {
        let mut command = Command::new(binary(name));
        command.envs(world.environment());
        if name == "worker" {
            command.arg("run");
        }
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, variable, value) in [
        ("ingress", "DATABASE_URL", None),
        ("ingress", "DATABASE_URL", Some("mysql://x")),
        ("ingress", "AMQP_URL", Some("http://x")),
        ("ingress", "SEALING_KEYS", None),
        ("ingress", "SEALING_KEYS", Some("k:c2hvcnQtc2VjcmV0")),
        ("ingress", "INGRESS_WRITERS", Some("many")),
        ("ingress", "INGRESS_LISTEN", Some("256.0.0.1:1")),
        ("ingress", "LOG_FORMAT", Some("xml")),
        ("worker", "WORKER_LANES", Some("payments,nothing")),
        ("worker", "SEALING_KEYS", Some("no-colon")),
        ("worker", "AMQP_PREFIX", Some("a b")),
    ] {
        let (success, words) = start(name, variable, value);
        let flag = match variable {
            "WORKER_LANES" => "--lanes".to_owned(),
            _ => format!("--{}", variable.to_lowercase().replace('_', "-")),
        };
        assert!(!success, "{name} started with {variable}={value:?}");
        assert!(words.contains(variable) || words.contains(&flag), "{variable}={value:?}: {words}");
        assert!(!words.contains("c2hvcnQtc2VjcmV0"), "the value may be a secret: {words}");
    }
}

/// Every table with all its values, byte strings as text.
fn everything_stored(world: &World) -> Vec<(String, String)> {
    let tables = world.rows(
        "SELECT c.table_schema || '.' || c.table_name AS name,
                string_agg(CASE data_type WHEN 'bytea' THEN format('encode(%I, ''escape'')', column_name)
                                          ELSE format('%I::text', column_name) END, ', ') AS columns
           FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
          WHERE c.table_schema IN ('webhook', 'public') AND t.table_type = 'BASE TABLE'
          GROUP BY 1",
    );
    assert!(tables.len() > 20);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let mut stored = Vec::new();
    for table in &tables {
        let (name, columns) = (text(&table["name"]), text(&table["columns"]));
        let rows = world.rows(&format!("SELECT concat_ws(' ', {columns}) AS text FROM {name}"));
        stored.push((name, rows.iter().map(|row| text(&row["text"])).collect::<Vec<_>>().join("\n")));
    }
    stored
}

#[test]
fn no_payload_secret_or_signature_is_found_outside_its_sealed_place() {
    let world = World::new();
    world.database.execute("ALTER TABLE payments ADD CONSTRAINT refused CHECK (payment_id <> 'pi_bad') NOT VALID");
    let (ingress, worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let marked = |suffix: &str| {
        let event = stripe("charge.succeeded", suffix, |_| {});
        let text = String::from_utf8(event.body.clone()).unwrap();
        let marked = text.replacen('{', "{\"note\":\"MARKER-4111111111111111\",", 1);
        crate::harness::Event { id: event.id, body: marked.into_bytes() }
    };
    sender.deliver(&marked("good"));
    sender.deliver(&marked("bad"));
    let refused = marked("refused");
    let forged = crate::harness::post(sender.agent(), sender.url(), &signed(b"other"), &refused.body).unwrap();
    assert_eq!(forged.status, 401);
    world.wait_until_settled();
    world.wait_for_number(1, "SELECT count(*) FROM webhook.refusals WHERE reason = 'signature'");
    assert_eq!(world.number("SELECT count(*) FROM webhook.dead_letters"), 1);

    for (table, text) in everything_stored(&world) {
        for marker in ["MARKER", "4111111111", SECRET] {
            assert!(!text.contains(marker), "{marker} in {table}");
        }
    }
    let signature =
        world.rows("SELECT signature FROM webhook.raw_events LIMIT 1")[0]["signature"].as_str().unwrap().to_owned();
    let mac = signature.rsplit_once("v1=").unwrap().1.to_owned();
    let key = SEALING_KEYS.split_once(':').unwrap().1;
    let (_, ctl_output, ctl_errors) = world.webhookctl(&["events", "list", "-o", "json"]);
    for text in [ingress.logged(), worker.logged(), ctl_output, ctl_errors] {
        for marker in ["MARKER", "4111111111", SECRET, key, mac.as_str()] {
            assert!(!text.contains(marker), "{marker} in\n{text}");
        }
    }
}

#[test]
fn an_endpoint_added_while_the_ingress_runs_is_served_without_a_restart() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let secret_file = world.dir.join("second.secret");
    std::fs::write(&secret_file, format!("{SECRET}\n")).unwrap();
    let secret_path = secret_file.to_str().unwrap();
    let arguments = ["endpoints", "add", "stripe", "second", "--account", "acct_second", "--secret-file", secret_path];
    let (code, out, err) = world.webhookctl(&arguments);
    assert_eq!(code, 0, "{out}{err}");
    let event = stripe("charge.succeeded", "a", |_| {});
    let url = format!("{}/webhooks/stripe/second", ingress.public());
    wait_for("the endpoint to be served", || {
        crate::harness::post(sender.agent(), &url, &signed(&event.body), &event.body).is_some_and(|a| a.status == 200)
    });
    let (code, out, _) = world.webhookctl(&["keys", "list", "-o", "json"]);
    assert_eq!((code, out.contains(SECRET)), (0, false));
}
