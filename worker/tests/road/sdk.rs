//! Stripe's own library for Node.js signs and judges; we must agree with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{SECRET, Sender, World, post, stripe};

struct StripeSdk {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl StripeSdk {
    /// None where Node.js is missing, which only a machine that is not CI may say.
    fn start() -> Option<StripeSdk> {
        let Ok(folder) = std::env::var("HOOKLEDGER_STRIPE_SDK") else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "under CI the tests with Stripe's library must run");
            eprintln!("skipped: HOOKLEDGER_STRIPE_SDK is not set; deploy/test sets it where Node.js is installed");
            return None;
        };
        let script = std::path::Path::new(&folder).join("sign.cjs");
        let mut child = Command::new("node").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Some(StripeSdk { child, input, output })
    }

    fn ask(&mut self, command: &Value) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn sign(&mut self, payload: &str, timestamp: i64) -> String {
        self.ask(&json!({"payload": payload, "secret": SECRET, "timestamp": timestamp}))
    }

    fn accepts(&mut self, payload: &str, header: &str) -> bool {
        self.ask(&json!({"verify": true, "payload": payload, "header": header, "secret": SECRET})) == "ok"
    }
}

impl Drop for StripeSdk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_the_stripe_sdk_signs_is_accepted_and_what_it_rejects_is_rejected() {
    let Some(mut sdk) = StripeSdk::start() else { return };
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let now = chrono::Utc::now().timestamp();
    let payload = String::from_utf8(stripe("charge.succeeded", "sdk", |_| {}).body).unwrap();
    let emoji = payload.replacen('{', "{\"note\":\"결제😀é\",", 1).replace("evt_sdk", "evt_sdk_emoji");
    let header = sdk.sign(&payload, now);
    let emoji_header = sdk.sign(&emoji, now);
    let old_header = sdk.sign(&payload, now - 400);
    let compact = serde_json::from_str::<Value>(&payload).unwrap().to_string();
    let flipped = payload.replacen("succeeded", "succeedee", 1);
    let weak = header.replace("v1=", "v0=");

    for (what, body, header, status) in [
        ("as signed", &payload, &header, 200),
        ("beyond ASCII", &emoji, &emoji_header, 200),
        ("one byte changed", &flipped, &header, 401),
        ("printed anew", &compact, &header, 401),
        ("an old time", &payload, &old_header, 401),
        ("a lower scheme", &payload, &weak, 401),
    ] {
        let headers = [("stripe-signature".to_owned(), header.clone())];
        let answer = post(sender.agent(), sender.url(), &headers, body.as_bytes()).unwrap();
        let ours = answer.status == 200;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert_eq!(ours, sdk.accepts(body, header), "the SDK judges otherwise: {what}");
    }

    // And the other way round: what we sign, the SDK accepts.
    let signed = shared::providers::sign(
        shared::providers::Provider::Stripe,
        SECRET.as_bytes(),
        "",
        chrono::Utc::now(),
        payload.as_bytes(),
    );
    let (_, ours) = signed.unwrap().remove(0);
    assert!(sdk.accepts(&payload, &ours));
}
