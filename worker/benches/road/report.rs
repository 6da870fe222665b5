use serde_json::{Value, json};

use crate::Failed;
use crate::baseline::BaselinePoint;
use crate::cpu::Shares;
use crate::ledger::LedgerFigures;
use crate::measure::{Intake, Latency, Point};
use crate::null::NullPoint;
use crate::requests::Requests;
use crate::settings::{STEADY_RATE, Settings};
use crate::stage::{self, Stage};

/// The share of all cores above which it is the processor that limits.
const BUSY: f64 = 0.85;

/// All points of all rounds, and where they were measured.
pub struct Report {
    pub null: Vec<NullPoint>,
    pub intake: Vec<Intake>,
    pub full: Vec<Point>,
    pub steady: Vec<Point>,
    pub pgbench: Vec<BaselinePoint>,
    pub ledger: Option<LedgerFigures>,
    connections: Vec<u16>,
    clients: Vec<u16>,
    rounds: u32,
    seconds: f64,
    workers: u16,
    cores: usize,
    postgres: String,
    body_bytes: usize,
    sealed_bytes: i64,
}

/// A figure, what it must reach, and whether it does.
struct Target {
    name: &'static str,
    words: &'static str,
    value: f64,
    bound: Bound,
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => self.value >= bound,
            Bound::AtMost(bound) => self.value <= bound,
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or_default();
    if values.len().is_multiple_of(2) { (at(middle.saturating_sub(1)) + at(middle)) / 2.0 } else { at(middle) }
}

impl Report {
    /// An empty report. The database already holds the events of the warm-up.
    pub fn new(stage: &Stage, settings: &Settings) -> Result<Self, Failed> {
        let mut connection = stage.connection()?;
        Ok(Report {
            null: Vec::new(),
            intake: Vec::new(),
            full: Vec::new(),
            steady: Vec::new(),
            pgbench: Vec::new(),
            ledger: None,
            connections: settings.connections.clone(),
            clients: settings.clients.clone(),
            rounds: settings.rounds(),
            seconds: settings.seconds_per_point(),
            workers: settings.workers,
            cores: std::thread::available_parallelism()?.get(),
            postgres: stage::words(&mut connection, "SELECT current_setting('server_version') AS words")?,
            body_bytes: Requests::prepare("size", 1)?.body_bytes(),
            sealed_bytes: stage::number(
                &mut connection,
                "SELECT avg(octet_length(body))::bigint AS number FROM webhook.raw_events",
            )?,
        })
    }

    fn full_at(&self, connections: u16) -> impl Iterator<Item = &Point> {
        self.full.iter().filter(move |point| point.connections == connections)
    }

    fn at(&self, connections: u16, figure: impl Fn(&Point) -> f64) -> f64 {
        median(self.full_at(connections).map(figure))
    }

    fn best(&self, figure: impl Fn(&Point) -> f64 + Copy) -> (u16, f64) {
        let each = self.connections.iter().copied().map(|connections| (connections, self.at(connections, figure)));
        each.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    fn intake_at(&self, connections: u16, figure: impl Fn(&Intake) -> f64) -> f64 {
        median(self.intake.iter().filter(|point| point.connections == connections).map(figure))
    }

    fn intake_best(&self) -> (u16, f64) {
        let each = self
            .connections
            .iter()
            .map(|connections| (*connections, self.intake_at(*connections, |point| point.accepted_per_second)));
        each.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    fn pgbench_at(&self, clients: u16, figure: impl Fn(&BaselinePoint) -> f64) -> f64 {
        median(self.pgbench.iter().filter(|point| point.clients == clients).map(figure))
    }

    fn pgbench_best(&self) -> (u16, f64) {
        let each =
            self.clients.iter().copied().map(|clients| (clients, self.pgbench_at(clients, |point| point.per_second)));
        each.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    fn targets(&self) -> Vec<Target> {
        let (_, baseline) = self.pgbench_best();
        let transaction = self.pgbench_at(1, |point| point.transaction.p50);
        let mut targets = vec![
            Target {
                name: "accept_ratio",
                words: "best accepted per second, workers resting / best pgbench transactions per second",
                value: self.intake_best().1 / baseline,
                bound: Bound::AtLeast(2.0),
            },
            Target {
                name: "road_ratio",
                words: "events per second from HTTP to ledger row / the same",
                value: self.best(|point| point.ledger_per_second).1 / baseline,
                bound: Bound::AtLeast(1.0),
            },
            Target {
                name: "p50_ratio",
                words: "p50 of an answer at one connection / median transaction of one pgbench client",
                value: self.at(1, |point| point.answer.p50) / transaction,
                bound: Bound::AtMost(2.0),
            },
            Target {
                name: "ledger_p99_ratio",
                words: "p99 from HTTP to ledger row at 100 events a second / the same",
                value: median(self.steady.iter().map(|point| point.ledger.p99)) / transaction,
                bound: Bound::AtMost(10.0),
            },
        ];
        if let Some(ledger) = &self.ledger {
            targets.push(Target {
                name: "projected_per_second",
                words: "events of a prepared backlog, one worker",
                value: ledger.projected_per_second.first().map_or(0.0, |(_, per_second)| *per_second),
                bound: Bound::AtLeast(3000.0),
            });
            targets.push(Target {
                name: "rebuilt_per_second",
                words: "events of a rebuild",
                value: ledger.rebuilt_per_second,
                bound: Bound::AtLeast(10_000.0),
            });
        }
        targets
    }

    pub fn targets_met(&self) -> bool {
        self.targets().iter().all(Target::is_met)
    }

    pub fn print(&self, as_json: bool) {
        if as_json { println!("{}", self.json()) } else { self.print_tables() }
    }

    // --- For people ------------------------------------------------------------------------------------------------

    fn print_tables(&self) {
        println!(
            "{} cores, PostgreSQL {}, {} worker(s); {} rounds of {} s a point, medians; events of {} bytes, {} sealed",
            self.cores, self.postgres, self.workers, self.rounds, self.seconds, self.body_bytes, self.sealed_bytes
        );
        self.print_intake();
        println!(
            "\nThe whole road at full load: every connection sends its next event as soon as the last one is answered"
        );
        println!("             answered 200        milliseconds       in the ledger           milliseconds");
        println!("connections   per second     p50     p95     p99     per second     p50      p95      p99");
        for connections in self.connections.iter().copied() {
            let at = |figure: fn(&Point) -> f64| self.at(connections, figure);
            println!(
                "{connections:>11} {:>12.0} {:>7.2} {:>7.2} {:>7.2} {:>14.0} {:>7.1} {:>8.1} {:>8.1}",
                at(|p| p.accepted_per_second),
                at(|p| p.answer.p50),
                at(|p| p.answer.p95),
                at(|p| p.answer.p99),
                at(|p| p.ledger_per_second),
                at(|p| p.ledger.p50),
                at(|p| p.ledger.p95),
                at(|p| p.ledger.p99),
            );
        }
        self.print_steady();
        self.print_costs();
        self.print_baseline();
        self.print_ledger();
        println!();
        for target in self.targets() {
            let (word, bound) = match target.bound {
                Bound::AtLeast(bound) => ("at least", bound),
                Bound::AtMost(bound) => ("at most", bound),
            };
            let verdict = if target.is_met() { "met" } else { "MISSED" };
            println!("{:<20} {:>8.2}  {word} {bound:.1}: {verdict}   ({})", target.name, target.value, target.words);
        }
    }

    fn print_intake(&self) {
        println!("\nThe intake at full load, while the workers rest");
        println!("             answered 200        milliseconds          cores kept busy");
        println!("connections   per second     p50     p95     p99   ingress  PostgreSQL  RabbitMQ  driver  others");
        for connections in self.connections.iter().copied() {
            let at = |figure: fn(&Intake) -> f64| self.intake_at(connections, figure);
            println!(
                "{connections:>11} {:>12.0} {:>7.2} {:>7.2} {:>7.2} {:>9.2} {:>11.2} {:>9.2} {:>7.2} {:>7.2}",
                at(|p| p.accepted_per_second),
                at(|p| p.answer.p50),
                at(|p| p.answer.p95),
                at(|p| p.answer.p99),
                at(|p| p.while_sending.ingress),
                at(|p| p.while_sending.postgres),
                at(|p| p.while_sending.broker),
                at(|p| p.while_sending.driver),
                at(|p| p.while_sending.others),
            );
        }
    }

    fn print_steady(&self) {
        let at = |figure: fn(&Point) -> f64| median(self.steady.iter().map(figure));
        println!("\nSteady load: {STEADY_RATE} events a second, whatever is still unanswered; milliseconds");
        println!("                      p50     p95     p99");
        println!(
            "answered 200      {:>7.2} {:>7.2} {:>7.2}",
            at(|p| p.answer.p50),
            at(|p| p.answer.p95),
            at(|p| p.answer.p99)
        );
        println!(
            "in the ledger     {:>7.2} {:>7.2} {:>7.2}",
            at(|p| p.ledger.p50),
            at(|p| p.ledger.p95),
            at(|p| p.ledger.p99)
        );
    }

    fn print_costs(&self) {
        println!("\nCores kept busy while sending, of {}", self.cores);
        println!("connections  ingress  workers  PostgreSQL  RabbitMQ  driver    sum   others   limited by");
        for connections in self.connections.iter().copied() {
            let busy = self.shares(connections, |point| point.while_sending);
            println!(
                "{connections:>11} {:>8.2} {:>8.2} {:>11.2} {:>9.2} {:>7.2} {:>6.2} {:>8.2}   {}",
                busy.ingress,
                busy.workers,
                busy.postgres,
                busy.broker,
                busy.driver,
                busy.sum(),
                busy.others,
                self.limit(&busy)
            );
        }
        println!("\nProcessor time that one event costs, from the socket to the ledger, in microseconds");
        println!("connections  ingress  workers  PostgreSQL  RabbitMQ  driver    sum");
        for connections in self.connections.iter().copied() {
            let cost = self.shares(connections, |point| point.an_event);
            println!(
                "{connections:>11} {:>8.0} {:>8.0} {:>11.0} {:>9.0} {:>7.0} {:>6.0}",
                cost.ingress,
                cost.workers,
                cost.postgres,
                cost.broker,
                cost.driver,
                cost.sum()
            );
        }
        println!("\nThe driver alone, against a server that only answers");
        println!("connections   requests per second   driver's microseconds a request");
        for connections in self.connections.iter().copied() {
            println!(
                "{connections:>11} {:>21.0} {:>33.1}",
                self.null_at(connections, |point| point.per_second),
                self.null_at(connections, |point| point.driver_micros)
            );
        }
    }

    fn print_baseline(&self) {
        println!("\nThe same rows by pgbench, one event a transaction, prepared statements");
        println!("clients   transactions per second   milliseconds: p50      p99");
        for clients in self.clients.iter().copied() {
            println!(
                "{clients:>7} {:>25.0} {:>19.2} {:>8.2}",
                self.pgbench_at(clients, |point| point.per_second),
                self.pgbench_at(clients, |point| point.transaction.p50),
                self.pgbench_at(clients, |point| point.transaction.p99)
            );
        }
    }

    fn print_ledger(&self) {
        let Some(ledger) = &self.ledger else { return };
        println!("\nThe ledger alone");
        println!("subjects folded per second, in memory         {:>10.0}", ledger.folds_per_second);
        for (workers, per_second) in &ledger.projected_per_second {
            println!("events of a backlog projected per second, {workers} worker(s) {per_second:>6.0}");
        }
        println!(
            "events per second of a rebuild of {:>9}    {:>10.0}",
            ledger.rebuilt_events, ledger.rebuilt_per_second
        );
    }

    fn null_at(&self, connections: u16, figure: impl Fn(&NullPoint) -> f64) -> f64 {
        median(self.null.iter().filter(|point| point.connections == connections).map(figure))
    }

    fn shares(&self, connections: u16, shares: impl Fn(&Point) -> Shares) -> Shares {
        Shares {
            ingress: self.at(connections, |point| shares(point).ingress),
            workers: self.at(connections, |point| shares(point).workers),
            postgres: self.at(connections, |point| shares(point).postgres),
            broker: self.at(connections, |point| shares(point).broker),
            driver: self.at(connections, |point| shares(point).driver),
            others: self.at(connections, |point| shares(point).others),
        }
    }

    fn limit(&self, busy: &Shares) -> &'static str {
        let cores = self.cores as f64;
        if busy.sum() >= BUSY * cores {
            "the processor"
        } else if busy.sum() + busy.others >= BUSY * cores {
            "the processor, which others use too"
        } else {
            "waiting for commits and for each other"
        }
    }

    // --- For programs ----------------------------------------------------------------------------------------------

    fn json(&self) -> Value {
        let (best_connections, accepted) = self.intake_best();
        let (road_connections, road) = self.best(|point| point.ledger_per_second);
        let (best_clients, baseline) = self.pgbench_best();
        let mut object = json!({
            "cores": self.cores,
            "postgres": self.postgres,
            "workers": self.workers,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "body_bytes": self.body_bytes,
            "sealed_bytes": self.sealed_bytes,
            "accepted_per_second": accepted,
            "accepted_at_connections": best_connections,
            "accept_ratio_whole_road": self.best(|point| point.accepted_per_second).1 / baseline,
            "ledger_per_second": road,
            "ledger_at_connections": road_connections,
            "pgbench_per_second": baseline,
            "pgbench_clients": best_clients,
            "pgbench_one_client_ms": self.pgbench_at(1, |point| point.transaction.p50),
            "intake": self.connections.iter().map(|connections| json!({
                "connections": connections,
                "accepted_per_second": self.intake_at(*connections, |point| point.accepted_per_second),
                "answer_ms": latency_json(
                    self.intake.iter().filter(|point| point.connections == *connections).map(|point| point.answer).collect(),
                ),
            })).collect::<Vec<_>>(),
            "full": self.connections.iter().map(|connections| self.full_json(*connections)).collect::<Vec<_>>(),
            "steady": self.steady_json(),
            "pgbench": self.clients.iter().copied().map(|clients| json!({
                "clients": clients,
                "per_second": self.pgbench_at(clients, |point| point.per_second),
                "p50_ms": self.pgbench_at(clients, |point| point.transaction.p50),
                "p99_ms": self.pgbench_at(clients, |point| point.transaction.p99),
            })).collect::<Vec<_>>(),
            "ledger": self.ledger.as_ref().map(|ledger| json!({
                "folds_per_second": ledger.folds_per_second,
                "projected_per_second": ledger.projected_per_second.iter().map(|(workers, per_second)| json!({
                    "workers": workers,
                    "per_second": per_second,
                })).collect::<Vec<_>>(),
                "rebuilt_events": ledger.rebuilt_events,
                "rebuilt_per_second": ledger.rebuilt_per_second,
            })),
            "targets_met": self.targets_met(),
        });
        if let Some(fields) = object.as_object_mut() {
            fields.extend(self.targets().into_iter().map(|target| (target.name.to_owned(), json!(target.value))));
        }
        object
    }

    fn full_json(&self, connections: u16) -> Value {
        let busy = self.shares(connections, |point| point.while_sending);
        let cost = self.shares(connections, |point| point.an_event);
        json!({
            "connections": connections,
            "accepted_per_second": self.at(connections, |point| point.accepted_per_second),
            "answer_ms": self.latency(connections, |point| point.answer),
            "ledger_per_second": self.at(connections, |point| point.ledger_per_second),
            "ledger_ms": self.latency(connections, |point| point.ledger),
            "cores_busy": {
                "ingress": busy.ingress,
                "workers": busy.workers,
                "postgres": busy.postgres,
                "broker": busy.broker,
                "driver": busy.driver,
                "others": busy.others,
            },
            "micros_an_event": {
                "ingress": cost.ingress,
                "workers": cost.workers,
                "postgres": cost.postgres,
                "broker": cost.broker,
                "driver": cost.driver,
            },
            "driver_alone": {
                "requests_per_second": self.null_at(connections, |point| point.per_second),
                "driver_micros_per_request": self.null_at(connections, |point| point.driver_micros),
            },
            "limited_by": self.limit(&busy),
        })
    }

    fn latency(&self, connections: u16, latency: impl Fn(&Point) -> Latency) -> Value {
        latency_json(self.full_at(connections).map(latency).collect())
    }

    fn steady_json(&self) -> Value {
        json!({
            "per_second": STEADY_RATE,
            "answer_ms": latency_json(self.steady.iter().map(|point| point.answer).collect()),
            "ledger_ms": latency_json(self.steady.iter().map(|point| point.ledger).collect()),
        })
    }
}

fn latency_json(rounds: Vec<Latency>) -> Value {
    json!({
        "p50": median(rounds.iter().map(|latency| latency.p50)),
        "p95": median(rounds.iter().map(|latency| latency.p95)),
        "p99": median(rounds.iter().map(|latency| latency.p99)),
    })
}
