# The guided tour of deploy/up: real signed requests, and for each a look at what became of it. Every line that begins
# with `ok` was checked in the database, not assumed. Sourced, never run. Needs webhookctl, psql and $ingress.
# shellcheck shell=bash

tour_failures=0 ingress=''

heading() { printf '\n%s\n' "$*"; }

ok() { printf '   ok      %s\n' "$*"; }

failed() {
  tour_failures=$((tour_failures + 1))
  printf '   FAILED  %s\n' "$*"
}

note() { printf '   %s\n' "$*"; }

# sql STATEMENT
sql() { PGOPTIONS='-c client_min_messages=warning' psql --no-psqlrc -qAt -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1" </dev/null; }

# becomes WHAT WANTED QUERY: waits until the query's only value is WANTED.
becomes() {
  local deadline=$((SECONDS + 30)) got=''
  until got=$(sql "$3") && [ "$got" = "$2" ]; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      failed "$1: wanted '$2', but it is '$got'"
      return 0
    fi
    sleep 0.1
  done
  ok "$1"
}

# send TYPE SUFFIX [OPTION…]: webhookctl builds the event, signs it with the endpoint's key, posts it, and fails when an
# answer is not the one that belongs to the option.
send() {
  local type=$1 suffix=$2 answers
  shift 2
  printf '   $ webhookctl trigger stripe %s --suffix %s%s\n' "$type" "$suffix" "${*:+ $*}"
  if answers=$(webhookctl trigger stripe "$type" --endpoint demo --ingress "$ingress" --suffix "$suffix" "$@" 2>&1); then
    indent <<<"$answers"
  else
    indent <<<"$answers"
    failed "an answer of the ingress is not the expected one"
  fi
}

indent() { sed 's/^/     /'; }

# quoted WORD…: as one would type it.
quoted() {
  local word
  for word in "$@"; do
    case $word in
      *' '*) printf " '%s'" "$word" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
}

# show COMMAND…: of webhookctl, with its output.
show() {
  printf '   $ webhookctl%s\n' "$(quoted "$@")"
  webhookctl "$@" 2>&1 | indent || failed "webhookctl $1 $2 failed"
}

# Rows of this tour carry its name in their ids: an older tour in the same database is not mistaken for it.
payment() { printf "SELECT %s FROM payments WHERE payment_id LIKE '%%%s'" "$1" "$2"; }
event() { printf "SELECT %s FROM webhook.inbox WHERE event_id LIKE '%%%s%%' AND event_type = '%s'" "$1" "$2" "$3"; }

tour() {
  local name
  name="tour$(random_word 3)"
  tour_payment "${name}a"
  tour_refund "${name}a"
  tour_subscription "${name}b"
  tour_replay "${name}c"
  tour_forgery "${name}d"
  tour_mismatch "${name}e"
  tour_dead_letter "${name}f"
  tour_books
}

tour_payment() {
  heading "1. A payment. Two events tell of it; either may come first."
  send payment_intent.succeeded "$1" --amount 5000 --currency usd
  send charge.succeeded "$1" --amount 5000 --currency usd
  becomes "one payment, paid, 50.00 USD" "paid 50.00 USD" \
    "$(payment "status || ' ' || round(captured_amount, 2) || ' ' || currency" "$1")"
}

tour_refund() {
  heading "2. A partial refund of it."
  send charge.refunded "$1" --amount 5000 --currency usd
  send refund.created "$1" --amount 5000 --currency usd
  becomes "the payment is partially refunded" partially_refunded "$(payment status "$1")"
  becomes "its total is the sum of its refunds" t "$(payment "refunded_amount > 0 AND refunded_amount < captured_amount \
    AND refunded_amount = (SELECT sum(amount) FROM refunds r WHERE r.payment_id = payments.payment_id)" "$1")"
}

tour_subscription() {
  heading "3. A subscription and its first invoice."
  send customer.subscription.created "$1"
  send invoice.paid "$1"
  becomes "the subscription is active" active \
    "SELECT status FROM subscription_states WHERE subscription_id LIKE '%$1'"
}

tour_replay() {
  heading "4. The same event twice, as every provider does it. Accepted once, answered 200 both times."
  send payment_intent.succeeded "$1" --duplicate
  becomes "one event, delivered again once" "1 1" \
    "$(event "count(*) || ' ' || sum(replay_count)" "$1" payment_intent.succeeded)"
}

tour_forgery() {
  heading "5. A forged event: the signature is not the endpoint's. 401, and no event."
  local before
  before=$(sql "$rejected")
  send payment_intent.succeeded "$1" --forged
  becomes "the refusal is counted" t "SELECT ($rejected) > $before"
  becomes "nothing of it is in the inbox" 0 "$(event 'count(*)' "$1" payment_intent.succeeded)"
}

readonly rejected="SELECT coalesce(sum(requests), 0) FROM webhook.intake_counts WHERE outcome = 'rejected'"

tour_mismatch() {
  heading "6. The same event id with another amount, properly signed. 409; both are kept, a person decides."
  send payment_intent.succeeded "$1" --mismatch
  becomes "it waits in quarantine" "payload_mismatch open" \
    "SELECT reason || ' ' || status FROM webhook.quarantine WHERE event_id IN ($(event id "$1" payment_intent.succeeded))"
  becomes "the ledger believes the first one" paid "$(payment status "$1")"
  show quarantine list
}

tour_dead_letter() {
  local dead
  heading "7. An event that cannot be projected. For this the tour breaks its own database on purpose: a constraint that"
  note "refuses one payment. The worker sees that trying again cannot help and buries the event, with its reason."
  refusing=1
  sql "ALTER TABLE payments DROP CONSTRAINT IF EXISTS tour_refuses;
       ALTER TABLE payments ADD CONSTRAINT tour_refuses CHECK (payment_id NOT LIKE '%$1') NOT VALID"
  send payment_intent.succeeded "$1" --amount 4200 --currency usd
  becomes "the event is dead, and accepted all the same" dead "$(event status "$1" payment_intent.succeeded)"
  dead=$(sql "SELECT id FROM webhook.dead_letters WHERE external_event_id LIKE '%$1%' AND status = 'open'")
  show dlq list
  show dlq show "$dead"
  note "The cause is fixed (the constraint is dropped) and the dead letter is sent the same road again."
  stop_refusing
  show dlq replay "$dead" --reason "guided tour: the constraint that refused it is gone"
  becomes "the event is processed" processed "$(event status "$1" payment_intent.succeeded)"
  becomes "the dead letter is resolved" resolved "SELECT status FROM webhook.dead_letters WHERE external_event_id LIKE '%$1%'"
  becomes "the payment is in the ledger" "paid 42.00" "$(payment "status || ' ' || round(captured_amount, 2)" "$1")"
}

refusing=0

# Also called when the tour is interrupted: the database may be somebody's own.
stop_refusing() {
  [ "$refusing" = 1 ] || return 0
  sql "ALTER TABLE payments DROP CONSTRAINT IF EXISTS tour_refuses"
  refusing=0
}

tour_books() {
  heading "8. The ledger, and the books: what was received, and what became of each."
  show ledger rows payments
  show ledger rows refunds
  show ledger rows subscriptions
  becomes "nothing waits to be published" 0 "SELECT count(*) FROM webhook.outbox"
  printf '   $ webhookctl doctor\n'
  if webhookctl doctor 2>&1 | indent; then
    ok "the books balance"
  else
    failed "webhookctl doctor found something"
  fi
}
