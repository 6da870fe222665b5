use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Sample, SampleOptions};

pub(super) static TYPES: [&str; 21] = [
    "payment.pending",
    "payment.authorized",
    "payment.succeeded",
    "payment.failed",
    "payment.canceled",
    "payment.expired",
    "refund.pending",
    "refund.succeeded",
    "refund.failed",
    "refund.canceled",
    "dispute.inquiry",
    "dispute.opened",
    "dispute.under_review",
    "dispute.won",
    "dispute.lost",
    "subscription.created",
    "subscription.updated",
    "subscription.deleted",
    "invoice.paid",
    "invoice.payment_failed",
    // Nobody's business: kept and ignored.
    "customer.updated",
];

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    event_type: &'a str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    livemode: bool,
    data: Value,
}

pub(super) fn event(event_type: &str, options: &SampleOptions) -> Sample {
    let event = Event {
        event_type,
        timestamp: options.created.to_rfc3339_opts(SecondsFormat::Secs, true),
        account: options.account.as_deref(),
        livemode: options.livemode,
        data: data(event_type, options),
    };
    // Plain data always serialises; an empty body would be refused by every reader.
    let body = serde_json::to_vec(&event).unwrap_or_default();
    Sample { event_id: options.event_id("msg", event_type), body }
}

fn data(event_type: &str, o: &SampleOptions) -> Value {
    let payment_id = o.payment_id("pay");
    let user = o.customer_id();
    match event_type.split('.').next() {
        Some("payment") => json!({
            "payment_id": payment_id, "amount": o.amount_minor, "currency": o.currency, "app_user_id": user,
            "product_id": "prod_basic", "store": "web",
        }),
        Some("refund") => json!({
            "refund_id": o.own_id("re"), "payment_id": payment_id, "amount": o.amount_minor, "currency": o.currency,
            "reason": "requested_by_customer",
        }),
        Some("dispute") => json!({
            "dispute_id": o.own_id("dp"), "payment_id": payment_id, "amount": o.amount_minor, "currency": o.currency,
            "reason": "fraudulent",
        }),
        Some("subscription") => json!({
            "subscription_id": o.story_id("sub"), "app_user_id": user, "product_id": "prod_basic", "store": "web",
            "status": if event_type == "subscription.deleted" { "expired" } else { "active" },
            "started_at": o.created.timestamp(), "period_start": o.created.timestamp(),
            "period_end": o.created.timestamp() + 30 * 86_400,
        }),
        Some("invoice") => json!({
            "invoice_id": o.own_id("in"), "subscription_id": o.story_id("sub"), "payment_id": payment_id,
            "amount": o.amount_minor, "currency": o.currency, "app_user_id": user, "product_id": "prod_basic",
            "store": "web",
        }),
        _ => json!({ "app_user_id": user }),
    }
}
