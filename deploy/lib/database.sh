# A private PostgreSQL server under $DIR/db. Sourced, never run. Needs DIR, and the settings that `servers` keeps.
# shellcheck shell=bash

readonly DATABASE_NAME=hookledger

# PostgreSQL refuses to run as root; the package brings a user for it.
database_user() {
  if id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

# as_database_user COMMAND…: the folder `/`, because a user who may not enter the current one gets warnings from
# every program of PostgreSQL.
as_database_user() {
  if ! is_root; then
    (cd / && "$@")
  elif has setpriv; then
    local user
    user=$(database_user)
    (cd / && setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@")
  elif has runuser; then
    (cd / && runuser -u "$(database_user)" -- "$@")
  else
    die "neither setpriv nor runuser (util-linux) is here, and PostgreSQL refuses to run as root"
  fi
}

# Where the server's files really lie: its user can follow no link out of a folder that he may not enter.
database_folder() { readlink "$DIR/db" || printf '%s\n' "$DIR/db"; }

data_folder() { printf '%s/data\n' "$(database_folder)"; }

# make_database_folder: $DIR/db, owned by the user who runs the server. Where that user cannot reach $DIR (a clone below
# /root, say) the folder lies in the temporary folder and $DIR/db is a link.
make_database_folder() {
  [ -e "$DIR/db" ] && return 0
  local folder="$DIR/db"
  if is_root; then
    # The settings and keys in here have mode 600; passing through is all that this allows.
    chmod go+x "$DIR"
    if ! as_database_user test -x "$DIR"; then
      folder=$(reachable_temporary_folder)
      ln -s "$folder" "$DIR/db"
    fi
  fi
  mkdir -p "$folder"
  ! is_root || chown "$(database_user)" "$folder"
  chmod 700 "$folder"
}

reachable_temporary_folder() {
  local base folder
  for base in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
    if as_database_user test -x "$base" && folder=$(mktemp -d "$base/hookledger-db.XXXXXX"); then
      printf '%s\n' "$folder"
      return 0
    fi
  done
  die "user $(database_user) can enter neither $DIR nor a temporary folder; name another folder"
}

# init_database: the password goes through a file that only the server's user can read, never through an argument.
init_database() {
  [ -f "$(data_folder)/PG_VERSION" ] && return 0
  local log password
  log="$(database_folder)/initdb.log" password="$(database_folder)/password"
  printf '%s\n' "$DB_PASSWORD" | as_database_user sh -c "umask 077; cat >'$password'"
  as_database_user "$(postgres_bin)/initdb" --pgdata="$(data_folder)" --username="$DATABASE_NAME" \
    --auth=scram-sha-256 --pwfile="$password" --encoding=UTF8 --no-locale --data-checksums --no-sync 2>&1 |
    as_database_user sh -c "cat >'$log'" || die "initdb failed: $(tail -n 5 "$log")"
  as_database_user rm -f "$password"
  database_settings | as_database_user sh -c "cat >>'$(data_folder)/postgresql.conf'"
}

database_settings() {
  cat <<-SETTINGS
	listen_addresses = '127.0.0.1'
	unix_socket_directories = ''
	port = $DB_PORT
	max_connections = 200
	timezone = 'UTC'
	log_timezone = 'UTC'
	log_line_prefix = '%m [%p] %a '
	SETTINGS
  # For tests: nothing here needs to outlive a power cut. A killed server still recovers, the system keeps its writes.
  [ "$FAST" = 0 ] || printf 'fsync = off\nfull_page_writes = off\n'
}

database_runs() {
  [ -f "$(data_folder)/postmaster.pid" ] &&
    as_database_user "$(postgres_bin)/pg_ctl" status --pgdata="$(data_folder)" >/dev/null 2>&1
}

start_database() {
  make_database_folder
  init_database
  if ! database_runs; then
    as_database_user "$(postgres_bin)/pg_ctl" start --wait --timeout=60 --silent --pgdata="$(data_folder)" \
      --log="$(database_folder)/server.log" </dev/null >/dev/null 2>&1 ||
      die "PostgreSQL did not start. The end of $DIR/db/server.log: $(tail -n 5 "$DIR/db/server.log" 2>/dev/null)"
  fi
  make_database
}

make_database() {
  if [ "$(sql "SELECT 1 FROM pg_database WHERE datname = '$DATABASE_NAME'")" != 1 ]; then
    sql "CREATE DATABASE $DATABASE_NAME" >/dev/null
  fi
}

# sql STATEMENT: in the maintenance database.
sql() {
  PGPASSWORD=$DB_PASSWORD "$(postgres_bin)/psql" --no-psqlrc --quiet --no-align --tuples-only \
    --host=127.0.0.1 --port="$DB_PORT" --username="$DATABASE_NAME" --dbname=postgres \
    --set=ON_ERROR_STOP=1 --command="$1" </dev/null
}

# stop_database fast|immediate: `immediate` is a crash; the next start recovers from the log.
stop_database() {
  [ -d "$(data_folder)" ] && database_runs || return 0
  as_database_user "$(postgres_bin)/pg_ctl" stop --wait --timeout=60 --silent --mode="$1" \
    --pgdata="$(data_folder)" </dev/null >/dev/null 2>&1 || ! database_runs ||
    die "PostgreSQL did not stop ($1). The end of $DIR/db/server.log: $(tail -n 5 "$DIR/db/server.log")"
}

database_url() { printf 'postgres://%s:%s@127.0.0.1:%s/%s\n' "$DATABASE_NAME" "$DB_PASSWORD" "$DB_PORT" "$DATABASE_NAME"; }

# remove_database: the data, and the link that may lead to it.
remove_database() {
  [ -e "$DIR/db" ] || [ -L "$DIR/db" ] || return 0
  rm -rf -- "$(database_folder)"
  rm -f -- "$DIR/db"
}
