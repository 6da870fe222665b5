/// What the code of a contradiction or of a held event means, for people. None for codes of a newer version.
pub fn reason_in_words(code: &str) -> Option<&'static str> {
    Some(match code {
        "payload_mismatch" => {
            "the provider sent this event twice, and the two do not say the same; the first one counts"
        }

        "failed_after_paid" => "the payment was paid, and then the provider said that it failed",
        "canceled_after_paid" => "the payment was paid, and then the provider said that it was canceled",
        "expired_after_paid" => "the payment was paid, and then the provider said that it expired",
        "authorized_after_canceled" => "the payment was canceled, and then the provider said that it was authorized",
        "paid_after_canceled" => "the payment was canceled, and then the provider said that it was paid",
        "authorized_after_expired" => "the payment expired, and then the provider said that it was authorized",
        "paid_after_expired" => "the payment expired, and then the provider said that it was paid",
        "currency_changed" => "the provider states the payment in another currency than before",
        "payment_id_reused" => "two purchases, of another time or amount, came under the same payment id",
        "more_out_than_in" => "refunds and disputes together take back more than was captured",

        "unknown_payment" => "a refund was done, and no event has told of its payment",
        "refund_currency_mismatch" => {
            "the refund is in another currency than its payment, and is left out of the payment's totals"
        }
        "refund_currency_changed" => "the provider states the refund in another currency than before",
        "refund_succeeded_after_failed" => "the refund failed, and then the provider said that it succeeded",
        "refund_succeeded_after_canceled" => "the refund was canceled, and then the provider said that it succeeded",

        "dispute_currency_mismatch" => {
            "the dispute is in another currency than its payment, and is left out of the payment's totals"
        }
        "dispute_currency_changed" => "the provider states the dispute in another currency than before",
        "dispute_after_prevented" => "the dispute was prevented, and then the provider went on with it",

        "paid_after_ended" => "the subscription had ended, and then a period of it was paid for",
        "extended_after_ended" => "the subscription had ended, and then its period was extended",
        "revived_after_ended" => "the subscription had ended, and then the provider said that it goes on",
        "ambiguous_order" => {
            "two statements of the same second exclude each other, and nothing tells which came last; the one that \
             usually does was taken"
        }

        "bad_amount" => "an amount is missing, negative, too large, or not a whole number of minor units",
        "bad_currency" => "a currency is missing, or is none of ISO 4217",
        "bad_time" => "a time is missing or impossible, so the event cannot be put in order",
        "bad_json" => "a part of the payload is of another kind than the provider documents",
        "bad_id" => "an id is empty, longer than 255 bytes, or has control characters",
        "bad_text" => "a text is longer than 255 bytes, or has control characters",
        "duplicate_key" => "a field is given twice, so nobody can say which one counts",
        "no_payment_id" => "the event names no payment",
        "no_refund_id" => "the event names no refund",
        "no_dispute_id" => "the event names no dispute",
        "no_subscription_id" => "the event names no subscription",
        "no_product_id" => "the event names no product",
        "no_app_user_id" => "the event names no user",
        "unknown_environment" => "the event does not say whether its money is real",
        "needs_transfer" => "the event moves purchases, and does not say from whom to whom",
        "unknown_status" => "the provider states a status that this version does not know",
        _ => return None,
    })
}
