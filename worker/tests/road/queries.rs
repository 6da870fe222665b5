//! docs/LEDGER.md is true: its columns and reasons are those there are, and its queries answer what they say, by the
//! indexes they name.

mod crowd;
mod page;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use diesel::connection::SimpleConnection as _;
use diesel::{PgConnection, QueryableByName, RunQueryDsl, sql_query};

use crate::harness::{Sender, World};
use crowd::CROWD;
use page::{Page, Question};
use story::{ACCOUNT, Calendar};

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = diesel::sql_types::Text)]
    line: String,
}

#[derive(QueryableByName)]
struct Plan {
    #[diesel(sql_type = diesel::sql_types::Text)]
    #[diesel(column_name = "QUERY PLAN")]
    step: String,
}

/// A world whose ledger holds the story twice: as production and, with the same ids, as sandbox.
fn told_world(calendar: &Calendar) -> World {
    let world = World::new();
    {
        let (ingress, _worker) = (world.ingress(), world.worker());
        let sender = Sender::to(&ingress);
        sender.wait_until_open();
        story::tell(&sender, calendar);
        world.wait_until_settled();
    }
    let spoiled = "SELECT count(*) FROM webhook.inbox WHERE status NOT IN ('processed', 'ignored')";
    assert_eq!(world.number(spoiled), 0);
    world
}

fn reader(world: &World) -> PgConnection {
    let mut connection = world.database.connection();
    connection.batch_execute("SET TIME ZONE 'UTC'; ANALYZE").unwrap();
    connection
}

/// The rows of a query, each as one line: the values as PostgreSQL writes them, `-` for NULL.
fn lines(connection: &mut PgConnection, sql: &str) -> Vec<String> {
    let text = format!(
        "SELECT (SELECT string_agg(coalesce(value, '-'), ' | ') FROM json_each_text(row_to_json(answer))) AS line
           FROM ({sql}) AS answer"
    );
    let rows: Vec<Line> = sql_query(text).load(connection).unwrap_or_else(|error| panic!("{error} in {sql}"));
    rows.into_iter().map(|row| row.line).collect()
}

#[test]
fn every_query_of_the_page_answers_what_it_says() {
    let (page, calendar) = (Page::read(), Calendar::today());
    assert!(page.questions.len() >= 10);
    let mut answers = story::answers(&calendar);
    let world = told_world(&calendar);
    let mut connection = reader(&world);
    for question in &page.questions {
        let expected = answers.remove(question.heading.as_str());
        let expected = expected.unwrap_or_else(|| panic!("what should \"{}\" answer?", question.heading));
        assert!(!expected.is_empty(), "an empty answer to \"{}\" proves nothing", question.heading);
        let live = question.with(|name| calendar.parameter(name, ACCOUNT));
        assert_eq!(lines(&mut connection, &live), expected, "{}", question.heading);

        let sandbox = format!("{ACCOUNT}:sandbox");
        let test = question.with(|name| calendar.parameter(name, &sandbox)).replace("'production'", "'sandbox'");
        let twin = lines(&mut connection, &test).into_iter().map(|line| line.replace(":sandbox", ""));
        assert_eq!(twin.collect::<Vec<_>>(), expected, "{} of the sandbox", question.heading);
    }
    assert!(answers.is_empty(), "the page does not ask {:?}", answers.keys());

    connection.batch_execute(CROWD).unwrap();
    for question in &page.questions {
        assert_uses_its_indexes(&mut connection, question, &calendar);
    }
}

/// Without sequential scans, because even a crowd fits into a few pages.
fn assert_uses_its_indexes(connection: &mut PgConnection, question: &Question, calendar: &Calendar) {
    let sql = question.with(|name| calendar.parameter(name, ACCOUNT));
    connection.batch_execute("SET enable_seqscan = off").unwrap();
    let plan: Vec<Plan> = sql_query(format!("EXPLAIN {sql}")).load(connection).unwrap();
    let plan: Vec<String> = plan.into_iter().map(|row| row.step).collect();
    let used: BTreeSet<&str> = plan
        .iter()
        .filter(|step| step.contains("Index "))
        .filter_map(|step| step.split_once(" using ").or_else(|| step.split_once("Bitmap Index Scan on ")))
        .filter_map(|(_, rest)| rest.split_whitespace().next())
        .collect();
    assert!(!question.indexes.is_empty(), "\"{}\" names no index", question.heading);
    for index in &question.indexes {
        assert!(used.contains(index.as_str()), "\"{}\" does without {index}:\n{}", question.heading, plan.join("\n"));
    }
}

#[test]
fn a_day_of_a_query_begins_where_its_time_zone_says() {
    let (page, calendar) = (Page::read(), Calendar::today());
    let paid = page.questions.iter().find(|question| question.heading.starts_with("Paid today")).unwrap();
    let world = told_world(&calendar);
    let in_seoul =
        paid.with(|name| if name == "zone" { "Asia/Seoul".into() } else { calendar.parameter(name, ACCOUNT) });
    // 16:00 and 23:59 in UTC are tomorrow in Seoul.
    assert_eq!(lines(&mut reader(&world), &in_seoul), ["USD | 1 | 50"]);
}

#[test]
fn the_page_knows_every_column_and_no_other() {
    let (page, world) = (Page::read(), World::new());
    let columns = lines(
        &mut reader(&world),
        "SELECT CASE table_schema WHEN 'public' THEN '' ELSE table_schema || '.' END || table_name, column_name
           FROM information_schema.columns
          WHERE table_schema IN ('public', 'webhook')",
    );
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in &columns {
        let (table, column) = line.split_once(" | ").unwrap();
        known.entry(table).or_default().insert(column);
    }
    let must = ["payments", "refunds", "disputes", "subscription_states", "ledger_facts", "subscription_event_log"];
    for table in must.into_iter().chain(["webhook.inbox", "webhook.events", "webhook.quarantine"]) {
        let told: BTreeSet<&str> = page.columns[table].iter().map(String::as_str).collect();
        assert_eq!(told, known[table], "{table}");
    }
    assert_eq!(page.columns.len(), must.len() + 3);
}

#[test]
fn the_page_explains_every_review_reason_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/src/domain");
    let mut given = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let code = std::fs::read_to_string(file).unwrap();
        given.extend(reasons(code.split("#[cfg(test)]").next().unwrap()));
    }
    assert!(given.contains("paid_after_canceled") && given.contains("refund_currency_mismatch"), "{given:?}");
    assert_eq!(Page::read().reasons, given);
}

/// The string literals of a source file that stand where a contradiction gets its reason.
fn reasons(code: &str) -> Vec<String> {
    let parts: Vec<&str> = code.split('"').collect();
    parts
        .windows(3)
        .filter(|around| {
            let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            let given = ["Review(", "verdict(", "accepts(", "vouched(", "REASON: &str = "]
                .iter()
                .any(|before| around[0].ends_with(before));
            is_word(around[1]) && (given || around[2].split(')').next().unwrap().ends_with(".webhook_event_id"))
        })
        .map(|around| around[1].to_owned())
        .collect()
}
