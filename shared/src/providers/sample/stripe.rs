use serde::Serialize;
use serde_json::{Value, json};

use super::{Sample, SampleOptions};

/// The API version whose shapes the samples have: "Basil", <https://docs.stripe.com/changelog/basil>.
const API_VERSION: &str = "2025-03-31.basil";
const MONTH_SECONDS: i64 = 30 * 86_400;
const PRODUCT: &str = "prod_basic";

pub(super) static TYPES: [&str; 32] = [
    "payment_intent.created",
    "payment_intent.processing",
    "payment_intent.requires_action",
    "payment_intent.amount_capturable_updated",
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
    "charge.pending",
    "charge.succeeded",
    "charge.captured",
    "charge.updated",
    "charge.refunded",
    "charge.failed",
    "charge.expired",
    "refund.created",
    "refund.updated",
    "refund.failed",
    "charge.refund.updated",
    "charge.dispute.created",
    "charge.dispute.updated",
    "charge.dispute.funds_withdrawn",
    "charge.dispute.funds_reinstated",
    "charge.dispute.closed",
    "customer.subscription.created",
    "customer.subscription.updated",
    "customer.subscription.paused",
    "customer.subscription.deleted",
    "invoice.paid",
    "invoice.payment_succeeded",
    "invoice.payment_failed",
    "checkout.session.completed",
    // Nobody's business: kept and ignored.
    "customer.created",
];

/// In the order in which Stripe writes the fields.
#[derive(Serialize)]
struct Event<'a> {
    id: &'a str,
    object: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    api_version: &'a str,
    created: i64,
    data: Value,
    livemode: bool,
    pending_webhooks: i64,
    request: Value,
    #[serde(rename = "type")]
    event_type: &'a str,
}

pub(super) fn event(event_type: &str, options: &SampleOptions) -> Sample {
    let event_id = options.event_id("evt", event_type);
    let event = Event {
        id: &event_id,
        object: "event",
        account: options.account.as_deref(),
        api_version: API_VERSION,
        created: options.created.timestamp(),
        data: json!({ "object": object(event_type, options) }),
        livemode: options.livemode,
        pending_webhooks: 1,
        request: json!({ "id": options.own_id("req"), "idempotency_key": null }),
        event_type,
    };
    // Plain data always serialises; an empty body would be refused by every reader. Stripe indents by two spaces.
    let body = serde_json::to_vec_pretty(&event).unwrap_or_default();
    Sample { event_id, body }
}

fn object(event_type: &str, o: &SampleOptions) -> Value {
    match event_type {
        "payment_intent.created" => intent(o, "requires_payment_method"),
        "payment_intent.processing" => intent(o, "processing"),
        "payment_intent.requires_action" => intent(o, "requires_action"),
        "payment_intent.amount_capturable_updated" => intent(o, "requires_capture"),
        "payment_intent.succeeded" => intent(o, "succeeded"),
        "payment_intent.payment_failed" => declined(o),
        "payment_intent.canceled" => intent(o, "canceled"),
        "charge.pending" => charge(o, "pending", 0),
        "charge.failed" => charge(o, "failed", 0),
        "charge.expired" => released(o),
        "charge.refunded" => charge(o, "succeeded", o.amount_minor),
        "charge.succeeded" | "charge.captured" | "charge.updated" => charge(o, "succeeded", 0),
        "refund.created" | "refund.updated" | "charge.refund.updated" => refund(o, "succeeded"),
        "refund.failed" => refund(o, "failed"),
        "charge.dispute.created" | "charge.dispute.funds_withdrawn" => dispute(o, "needs_response"),
        "charge.dispute.updated" => dispute(o, "under_review"),
        "charge.dispute.funds_reinstated" => dispute(o, "won"),
        "charge.dispute.closed" => dispute(o, "lost"),
        "customer.subscription.created" | "customer.subscription.updated" => subscription(o, "active"),
        "customer.subscription.paused" => subscription(o, "paused"),
        "customer.subscription.deleted" => subscription(o, "canceled"),
        "invoice.paid" | "invoice.payment_succeeded" => invoice(o, true),
        "invoice.payment_failed" => invoice(o, false),
        "checkout.session.completed" => checkout(o),
        _ => json!({ "id": o.customer_id(), "object": "customer", "created": o.created.timestamp(), "metadata": {} }),
    }
}

fn intent(o: &SampleOptions, status: &str) -> Value {
    let amount = o.payment_amount();
    let taken = if status == "succeeded" { amount } else { 0 };
    let held = if status == "requires_capture" { amount } else { 0 };
    let charge = matches!(status, "succeeded" | "requires_capture" | "processing").then(|| o.story_id("ch"));
    json!({
        "id": o.payment_id("pi"),
        "object": "payment_intent",
        "amount": amount,
        "amount_capturable": held,
        "amount_details": { "tip": {} },
        "amount_received": taken,
        "application": null,
        "application_fee_amount": null,
        "automatic_payment_methods": { "allow_redirects": "always", "enabled": true },
        "canceled_at": (status == "canceled").then(|| o.created.timestamp()),
        "cancellation_reason": (status == "canceled").then_some("requested_by_customer"),
        "capture_method": if held > 0 { "manual" } else { "automatic_async" },
        "confirmation_method": "automatic",
        "created": o.created.timestamp(),
        "currency": o.currency,
        "customer": o.customer_id(),
        "description": "Basic plan",
        "last_payment_error": null,
        "latest_charge": charge,
        "livemode": o.livemode,
        "metadata": { "order": o.suffix },
        "next_action": null,
        "payment_method": o.story_id("pm"),
        "payment_method_options": { "card": { "request_three_d_secure": "automatic" } },
        "payment_method_types": ["card", "link"],
        "processing": null,
        "receipt_email": null,
        "setup_future_usage": null,
        "shipping": null,
        "statement_descriptor": null,
        "status": status,
        "transfer_data": null,
        "transfer_group": null,
    })
}

fn declined(o: &SampleOptions) -> Value {
    let error = json!({
        "charge": o.story_id("ch"),
        "code": "card_declined",
        "decline_code": "insufficient_funds",
        "doc_url": "https://stripe.com/docs/error-codes/card-declined",
        "message": "Your card has insufficient funds.",
        "type": "card_error",
    });
    let changes = [("latest_charge", json!(o.story_id("ch"))), ("last_payment_error", error)];
    with(intent(o, "requires_payment_method"), changes)
}

fn with<const N: usize>(mut object: Value, changes: [(&str, Value); N]) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.extend(changes.map(|(key, value)| (key.to_owned(), value)));
    }
    object
}

fn charge(o: &SampleOptions, status: &str, refunded: i64) -> Value {
    let amount = o.payment_amount();
    let failed = status == "failed";
    json!({
        "id": o.story_id("ch"),
        "object": "charge",
        "amount": amount,
        "amount_captured": if status == "succeeded" { amount } else { 0 },
        "amount_refunded": refunded,
        "application": null,
        "application_fee": null,
        "application_fee_amount": null,
        "balance_transaction": (status == "succeeded").then(|| o.story_id("txn")),
        "billing_details": {
            "address": { "city": null, "country": "US", "line1": null, "line2": null, "postal_code": "94110",
                         "state": null },
            "email": "jenny.rosen@example.com",
            "name": "Jenny Rosen",
            "phone": null,
        },
        "calculated_statement_descriptor": "EXAMPLE.COM",
        "captured": status != "failed",
        "created": o.created.timestamp(),
        "currency": o.currency,
        "customer": o.customer_id(),
        "description": "Basic plan",
        "disputed": false,
        "failure_code": failed.then_some("card_declined"),
        "failure_message": failed.then_some("Your card has insufficient funds."),
        "fraud_details": {},
        "livemode": o.livemode,
        "metadata": { "order": o.suffix },
        "outcome": {
            "network_status": if failed { "declined_by_network" } else { "approved_by_network" },
            "reason": failed.then_some("insufficient_funds"),
            "risk_level": "normal",
            "risk_score": 27,
            "seller_message": if failed { "The bank declined the payment." } else { "Payment complete." },
            "type": if failed { "issuer_declined" } else { "authorized" },
        },
        "paid": !failed,
        "payment_intent": o.payment_id("pi"),
        "payment_method": o.story_id("pm"),
        "payment_method_details": {
            "card": {
                "amount_authorized": amount,
                "brand": "visa",
                "checks": { "address_line1_check": null, "address_postal_code_check": "pass", "cvc_check": "pass" },
                "country": "US",
                "exp_month": 12,
                "exp_year": 2031,
                "funding": "credit",
                "last4": "4242",
                "network": "visa",
                "three_d_secure": null,
                "wallet": null,
            },
            "type": "card",
        },
        "receipt_email": null,
        "receipt_number": null,
        "receipt_url": null,
        "refunded": refunded >= amount,
        "shipping": null,
        "statement_descriptor": null,
        "status": status,
        "transfer_data": null,
        "transfer_group": null,
    })
}

/// An authorization that ran out: Stripe counts what it releases as refunded.
fn released(o: &SampleOptions) -> Value {
    let changes = [
        ("captured", json!(false)),
        ("amount_captured", json!(0)),
        ("amount_refunded", json!(o.payment_amount())),
        ("refunded", json!(true)),
    ];
    with(charge(o, "succeeded", 0), changes)
}

fn refund(o: &SampleOptions, status: &str) -> Value {
    json!({
        "id": o.own_id("re"),
        "object": "refund",
        "amount": o.amount_minor,
        "balance_transaction": o.own_id("txn"),
        "charge": o.story_id("ch"),
        "created": o.created.timestamp(),
        "currency": o.currency,
        "destination_details": { "card": { "type": "refund", "reference_status": "pending" }, "type": "card" },
        "failure_reason": (status == "failed").then_some("expired_or_canceled_card"),
        "metadata": {},
        "payment_intent": o.payment_id("pi"),
        "reason": "requested_by_customer",
        "receipt_number": null,
        "source_transfer_reversal": null,
        "status": status,
        "transfer_reversal": null,
    })
}

fn dispute(o: &SampleOptions, status: &str) -> Value {
    json!({
        "id": o.own_id("dp"),
        "object": "dispute",
        "amount": o.amount_minor,
        "balance_transactions": [],
        "charge": o.story_id("ch"),
        "created": o.created.timestamp(),
        "currency": o.currency,
        "enhanced_eligibility_types": [],
        "evidence_details": {
            "due_by": o.created.timestamp() + 14 * 86_400, "has_evidence": false, "past_due": false,
            "submission_count": 0,
        },
        "is_charge_refundable": false,
        "livemode": o.livemode,
        "metadata": {},
        "payment_intent": o.payment_id("pi"),
        "payment_method_details": {
            "card": { "brand": "visa", "case_type": "chargeback", "network_reason_code": "10.4" }, "type": "card",
        },
        "reason": "fraudulent",
        "status": status,
    })
}

fn subscription(o: &SampleOptions, status: &str) -> Value {
    let now = o.created.timestamp();
    let ended = (status == "canceled").then_some(now);
    json!({
        "id": o.story_id("sub"),
        "object": "subscription",
        "application": null,
        "automatic_tax": { "disabled_reason": null, "enabled": false, "liability": null },
        "billing_cycle_anchor": now,
        "cancel_at": null,
        "cancel_at_period_end": false,
        "canceled_at": ended,
        "cancellation_details": { "comment": null, "feedback": null, "reason": ended.map(|_| "cancellation_requested") },
        "collection_method": "charge_automatically",
        "created": now,
        "currency": o.currency,
        "customer": o.customer_id(),
        "default_payment_method": o.story_id("pm"),
        "ended_at": ended,
        "items": {
            "object": "list",
            "data": [{
                "id": o.story_id("si"),
                "object": "subscription_item",
                "created": now,
                "current_period_end": now + MONTH_SECONDS,
                "current_period_start": now,
                "price": {
                    "id": "price_basic_monthly",
                    "object": "price",
                    "active": true,
                    "currency": o.currency,
                    "product": PRODUCT,
                    "recurring": { "interval": "month", "interval_count": 1, "usage_type": "licensed" },
                    "type": "recurring",
                    "unit_amount": o.payment_amount(),
                },
                "quantity": 1,
                "subscription": o.story_id("sub"),
            }],
            "has_more": false,
            "total_count": 1,
        },
        "latest_invoice": o.story_id("in"),
        "livemode": o.livemode,
        "metadata": {},
        "pause_collection": null,
        "start_date": now,
        "status": status,
        "trial_end": null,
        "trial_start": null,
    })
}

fn invoice(o: &SampleOptions, paid: bool) -> Value {
    let now = o.created.timestamp();
    let amount = o.payment_amount();
    json!({
        "id": o.story_id("in"),
        "object": "invoice",
        "amount_due": amount,
        "amount_paid": if paid { amount } else { 0 },
        "amount_remaining": if paid { 0 } else { amount },
        "attempt_count": 1,
        "attempted": true,
        "billing_reason": "subscription_create",
        "collection_method": "charge_automatically",
        "created": now,
        "currency": o.currency,
        "customer": o.customer_id(),
        "lines": {
            "object": "list",
            "data": [{
                "id": o.story_id("il"),
                "object": "line_item",
                "amount": amount,
                "currency": o.currency,
                "parent": {
                    "subscription_item_details": {
                        "proration": false, "subscription": o.story_id("sub"), "subscription_item": o.story_id("si"),
                    },
                    "type": "subscription_item_details",
                },
                "period": { "end": now + MONTH_SECONDS, "start": now },
                "pricing": {
                    "price_details": { "price": "price_basic_monthly", "product": PRODUCT }, "type": "price_details",
                },
                "quantity": 1,
            }],
            "has_more": false,
        },
        "livemode": o.livemode,
        "next_payment_attempt": (!paid).then_some(now + 3 * 86_400),
        "parent": {
            "quote_details": null,
            "subscription_details": { "metadata": {}, "subscription": o.story_id("sub") },
            "type": "subscription_details",
        },
        "payments": {
            "object": "list",
            "data": [{
                "id": o.story_id("inpay"),
                "object": "invoice_payment",
                "amount_paid": if paid { Some(amount) } else { None },
                "amount_requested": amount,
                "payment": { "payment_intent": o.payment_id("pi"), "type": "payment_intent" },
                "status": if paid { "paid" } else { "open" },
            }],
            "has_more": false,
        },
        "period_end": now,
        "period_start": now,
        "status": if paid { "paid" } else { "open" },
        "subtotal": amount,
        "total": amount,
    })
}

fn checkout(o: &SampleOptions) -> Value {
    json!({
        "id": o.story_id("cs"),
        "object": "checkout.session",
        "amount_subtotal": o.payment_amount(),
        "amount_total": o.payment_amount(),
        "client_reference_id": o.customer_id(),
        "created": o.created.timestamp(),
        "currency": o.currency,
        "customer": o.customer_id(),
        "expires_at": o.created.timestamp() + 86_400,
        "livemode": o.livemode,
        "metadata": {},
        "mode": "payment",
        "payment_intent": o.payment_id("pi"),
        "payment_method_types": ["card"],
        "payment_status": "paid",
        "status": "complete",
        "subscription": null,
        "success_url": "https://example.com/success",
        "ui_mode": "hosted",
    })
}
