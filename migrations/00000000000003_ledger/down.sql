DROP VIEW subscription_event_log;
DROP TABLE subscription_states;
DROP TABLE disputes;
DROP TABLE refunds;
DROP TABLE payments;
DROP TABLE ledger_facts;
