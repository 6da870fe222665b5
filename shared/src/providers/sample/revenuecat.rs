use serde::Serialize;
use serde_json::value::RawValue;

use super::{Sample, SampleOptions};
use crate::domain::{Currency, Money};

const DAY_MS: i64 = 86_400_000;
const MONTH_MS: i64 = 30 * DAY_MS;
const PRODUCT: &str = "com.example.pro.monthly";
const STORE: &str = "APP_STORE";

pub(super) static TYPES: [&str; 25] = [
    "INITIAL_PURCHASE",
    "INITIAL_PURCHASE/TRIAL",
    "RENEWAL",
    "NON_RENEWING_PURCHASE",
    "CANCELLATION",
    "CANCELLATION/BILLING_ERROR",
    "CANCELLATION/CUSTOMER_SUPPORT",
    "UNCANCELLATION",
    "BILLING_ISSUE",
    "BILLING_ISSUE/NO_GRACE",
    "EXPIRATION",
    "EXPIRATION/SUBSCRIPTION_PAUSED",
    "SUBSCRIPTION_PAUSED",
    "SUBSCRIPTION_EXTENDED",
    "PRODUCT_CHANGE",
    "REFUND_REVERSED",
    "TRANSFER",
    "TEMPORARY_ENTITLEMENT_GRANT",
    // Nobody's business: kept and ignored.
    "TEST",
    "INVOICE_ISSUANCE",
    "VIRTUAL_CURRENCY_TRANSACTION",
    "EXPERIMENT_ENROLLMENT",
    "SUBSCRIBER_ALIAS",
    "PURCHASE_REDEEMED",
    "PAYWALL_IMPRESSION",
];

#[derive(Serialize)]
struct Body<'a> {
    event: Event<'a>,
    api_version: &'static str,
}

#[derive(Serialize, Default)]
struct Event<'a> {
    event_timestamp_ms: i64,
    #[serde(flatten)]
    purchase: Option<Purchase<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transferred_from: Option<[String; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transferred_to: Option<[String; 2]>,
    store: &'static str,
    environment: &'static str,
    #[serde(rename = "type")]
    event_type: &'a str,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_id: Option<&'a str>,
}

/// What all events but transfers tell.
#[derive(Serialize)]
struct Purchase<'a> {
    product_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_product_id: Option<&'static str>,
    period_type: &'static str,
    purchased_at_ms: i64,
    expiration_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_expiration_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_resume_at_ms: Option<i64>,
    entitlement_ids: [&'static str; 1],
    presented_offering_id: &'static str,
    transaction_id: Option<String>,
    original_transaction_id: Option<String>,
    is_family_share: bool,
    country_code: &'static str,
    app_user_id: String,
    aliases: [String; 2],
    original_app_user_id: String,
    currency: String,
    price: Box<RawValue>,
    price_in_purchased_currency: Box<RawValue>,
    takehome_percentage: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_reason: Option<&'a str>,
}

/// The types of <https://www.revenuecat.com/docs/integrations/webhooks/sample-events>.
pub(super) fn event(event_type: &str, o: &SampleOptions) -> Sample {
    let event_id = o.event_id("rc", event_type);
    let (name, variant) = event_type.split_once('/').unwrap_or((event_type, ""));
    let user = o.customer_id();
    let moved = name == "TRANSFER";
    let event = Event {
        event_timestamp_ms: o.created.timestamp_millis(),
        purchase: (!moved).then(|| purchase(name, variant, o)),
        transferred_from: moved.then(|| [user.clone()]),
        transferred_to: moved.then(|| [o.story_id("heir"), format!("$RCAnonymousID:{user}")]),
        store: STORE,
        environment: if o.livemode { "PRODUCTION" } else { "SANDBOX" },
        event_type: name,
        id: &event_id,
        app_id: o.account.as_deref(),
    };
    // Plain data always serialises; an empty body would be refused by every reader.
    let body = serde_json::to_vec(&Body { event, api_version: "1.0" }).unwrap_or_default();
    Sample { event_id, body }
}

fn purchase<'a>(name: &str, variant: &'a str, o: &SampleOptions) -> Purchase<'a> {
    let now = o.created.timestamp_millis();
    // An event about a period that is over, or all but over.
    let starts = if matches!(name, "EXPIRATION" | "BILLING_ISSUE") { now - MONTH_MS } else { now };
    let extra = if name == "SUBSCRIPTION_EXTENDED" { 7 * DAY_MS } else { 0 };
    let user = o.customer_id();
    let first = o.story_id("txn");
    let price = price(name, variant, o);
    Purchase {
        product_id: PRODUCT,
        new_product_id: (name == "PRODUCT_CHANGE").then_some("com.example.pro.yearly"),
        period_type: if variant == "TRIAL" { "TRIAL" } else { "NORMAL" },
        purchased_at_ms: starts,
        expiration_at_ms: (name != "NON_RENEWING_PURCHASE").then_some(starts + MONTH_MS + extra),
        grace_period_expiration_at_ms: (name == "BILLING_ISSUE" && variant.is_empty()).then_some(now + 16 * DAY_MS),
        auto_resume_at_ms: (name == "SUBSCRIPTION_PAUSED").then_some(now + 2 * MONTH_MS),
        entitlement_ids: ["pro"],
        presented_offering_id: "default",
        transaction_id: match name {
            "INVOICE_ISSUANCE" => None,
            "RENEWAL" | "NON_RENEWING_PURCHASE" => {
                Some(o.payment.clone().unwrap_or_else(|| format!("{first}_{}", name.to_ascii_lowercase())))
            }
            _ => Some(o.payment_id("txn")),
        },
        original_transaction_id: (name != "INVOICE_ISSUANCE").then_some(first),
        is_family_share: false,
        country_code: "US",
        aliases: [format!("$RCAnonymousID:{user}"), user.clone()],
        original_app_user_id: format!("$RCAnonymousID:{user}"),
        app_user_id: user,
        currency: o.currency.to_ascii_uppercase(),
        price: price.clone(),
        price_in_purchased_currency: price,
        takehome_percentage: 0.7,
        cancel_reason: (name == "CANCELLATION").then_some(if variant.is_empty() { "UNSUBSCRIBE" } else { variant }),
        expiration_reason: (name == "EXPIRATION").then_some(if variant.is_empty() { "UNSUBSCRIBE" } else { variant }),
    }
}

/// The amount in major units: what was paid, with a minus what was given back, and zero where no money moved.
fn price(name: &str, variant: &str, o: &SampleOptions) -> Box<RawValue> {
    let amount = o.currency.parse().ok().and_then(|currency: Currency| {
        Money::from_minor_digits(&o.amount_minor.to_string(), currency.exponent(), currency).ok()
    });
    let amount = amount.map_or_else(String::new, |money| money.amount().to_string());
    let digits = match (name, variant) {
        ("INITIAL_PURCHASE" | "RENEWAL" | "NON_RENEWING_PURCHASE" | "REFUND_REVERSED", "") => amount,
        ("CANCELLATION", "CUSTOMER_SUPPORT") => format!("-{amount}"),
        _ => "0".to_owned(),
    };
    // A currency that does not exist has no price; the reader says so.
    RawValue::from_string(digits).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
