DROP INDEX webhook.quarantine_open_subject;
ALTER TABLE webhook.quarantine DROP COLUMN decision_event_id;
