//! A rebuild of a larger ledger: `REBUILD_EVENTS=100000 deploy/test rebuild_of_many`.

use serde_json::Value;

use crate::harness::{Loader, World};
use crate::rebuild::{DAMAGED, Mix, apply, damage, everything, rebuild};

const STORY: usize = 15;

fn events() -> usize {
    std::env::var("REBUILD_EVENTS").map_or(3_000, |number| number.parse().unwrap())
}

fn fill(world: &World, events: usize) {
    let loader = Loader::of(world);
    let mut first = Mix::new();
    DAMAGED.iter().for_each(|name| first.story(name));
    loader.load(&first.arrivals);
    for begin in (DAMAGED.len()..events / STORY).step_by(100) {
        let mut mix = Mix::new();
        (begin..(begin + 100).min(events / STORY)).for_each(|number| mix.story(&format!("n{number}")));
        loader.load(&mix.arrivals);
    }
}

#[test]
fn a_rebuild_of_many_events_finds_exactly_what_was_damaged_and_repairs_it() {
    let world = World::new();
    fill(&world, events());
    let healthy = rebuild(&world, &[]);
    assert_eq!(healthy.code, 0, "{}", healthy.err);
    assert_eq!(healthy.report["events"], world.number("SELECT count(*) FROM webhook.inbox"));
    eprintln!(
        "{} events with {} facts in {:.1} s: {:.0} events/s",
        healthy.report["events"],
        healthy.report["facts"],
        healthy.report["seconds"].as_f64().unwrap(),
        healthy.report["events_per_second"].as_f64().unwrap()
    );
    let before = everything(&world);
    let expected = damage(&world);
    let damaged = rebuild(&world, &[]);
    assert_eq!((damaged.code, damaged.differences()), (8, expected));
    let applied = apply(&world, 13, &[]);
    assert_eq!((applied.code, &applied.report["repaired_subjects"]), (0, &Value::from(13)), "{}", applied.err);
    assert!(everything(&world) == before, "the rows are as they were");
    assert_eq!(rebuild(&world, &[]).code, 0);
}
