/// Hundreds of copies of every row, of other ids, users, products and times, all of it settled: so that a plan has
/// something to choose between.
pub const CROWD: &str = "
    INSERT INTO ledger_facts
    SELECT (json_populate_record(f, json_build_object(
               'subject_id', subject_id || n, 'event_id', md5(event_id::text || n)::uuid,
               'occurred_at', occurred_at - n * interval '3 days'))).*
      FROM ledger_facts f, generate_series(1, 300) AS n;

    INSERT INTO payments
    SELECT (json_populate_record(p, json_build_object(
               'payment_id', payment_id || n, 'app_user_id', app_user_id || n, 'paid_at', paid_at - n * interval '3 days',
               'needs_review', false, 'review_reason', NULL))).*
      FROM payments p, generate_series(1, 300) AS n;

    INSERT INTO refunds
    SELECT (json_populate_record(r, json_build_object(
               'refund_id', refund_id || n, 'payment_id', payment_id || n,
               'requested_at', requested_at - n * interval '3 days', 'refunded_at', refunded_at - n * interval '3 days',
               'needs_review', false, 'review_reason', NULL))).*
      FROM refunds r, generate_series(1, 300) AS n;

    INSERT INTO disputes
    SELECT (json_populate_record(d, json_build_object(
               'dispute_id', dispute_id || n, 'payment_id', payment_id || n, 'opened_at', opened_at - n * interval '3 days',
               'needs_review', false, 'review_reason', NULL))).*
      FROM disputes d, generate_series(1, 300) AS n WHERE closed_at IS NOT NULL;

    INSERT INTO subscription_states
    SELECT (json_populate_record(s, json_build_object(
               'app_user_id', app_user_id || n, 'subscription_id', subscription_id || n, 'product_id', product_id || n % 20,
               'expires_at', expires_at - n * interval '3 days', 'needs_review', false, 'review_reason', NULL))).*
      FROM subscription_states s, generate_series(1, 300) AS n;

    ANALYZE;";
