-- Which decision closed an entry, where the ledger has to know of it. Until a worker has applied it, the contradiction is
-- still there, and does not open the entry again.
ALTER TABLE webhook.quarantine
    ADD COLUMN decision_event_id uuid,
    ADD CONSTRAINT quarantine_decision_closes CHECK (decision_event_id IS NULL OR status <> 'open');

-- Open entries by what they are about: asked for every subject that is folded.
CREATE INDEX quarantine_open_subject ON webhook.quarantine (subject_id) WHERE status = 'open' AND subject_id IS NOT NULL;
