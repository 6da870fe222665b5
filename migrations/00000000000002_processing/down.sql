DROP VIEW webhook.events;
DROP FUNCTION webhook.plain_json(bytea);
DROP TABLE webhook.audit_log;
DROP TABLE webhook.dead_letters;
DROP TABLE webhook.attempts;
