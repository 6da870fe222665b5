# What has to be installed to build and run Hookledger: finding it, and installing what is missing. Sourced, never run.
# shellcheck shell=bash

readonly OLDEST_POSTGRES=15

# first_with PROGRAM FOLDER…: the first folder that holds the program.
first_with() {
  local program=$1 folder
  shift
  for folder in "$@"; do
    if [ -x "$folder/$program" ]; then
      printf '%s\n' "$folder"
      return 0
    fi
  done
  return 1
}

is_complete_postgres() { [ -x "$1/initdb" ] && [ -x "$1/pg_ctl" ] && [ -x "$1/postgres" ] && [ -x "$1/psql" ]; }

postgres_major() { "$1/initdb" --version 2>/dev/null | sed -E 's/.* ([0-9]+).*/\1/'; }

# postgres_bin: the folder of the newest PostgreSQL that is new enough and complete. Debian keeps one folder per major
# version out of PATH, Homebrew one per formula.
postgres_bin() {
  local folder best='' best_major=$((OLDEST_POSTGRES - 1)) major
  for folder in "$(dirname "$(command -v initdb || echo /nowhere/initdb)")" /usr/lib/postgresql/*/bin \
    /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
    is_complete_postgres "$folder" || continue
    major=$(postgres_major "$folder")
    if [ "${major:-0}" -gt "$best_major" ]; then
      best=$folder best_major=$major
    fi
  done
  [ -n "$best" ] && printf '%s\n' "$best"
}

# rabbitmq_bin: the folder of the real scripts. Debian's /usr/sbin/rabbitmq-server is a wrapper that works only for the
# system's own broker, so PATH comes last.
rabbitmq_bin() {
  first_with rabbitmq-server /usr/lib/rabbitmq/bin /opt/homebrew/opt/rabbitmq/sbin /usr/local/opt/rabbitmq/sbin \
    "$(dirname "$(command -v rabbitmq-server || echo /nowhere/rabbitmq-server)")"
}

epmd_program() {
  command -v epmd || {
    local folder
    folder=$(first_with epmd /opt/homebrew/bin /usr/local/bin /usr/lib/erlang/bin /usr/lib/erlang/erts-*/bin \
      /opt/homebrew/opt/erlang/lib/erlang/erts-*/bin) && printf '%s/epmd\n' "$folder"
  }
}

has_broker() { rabbitmq_bin >/dev/null && epmd_program >/dev/null; }
has_database() { postgres_bin >/dev/null; }
has_psql() { has psql || has_database; }
has_compiler() { has cc || has gcc || has clang; }
# python_with_yaml: a Python (3.11 or newer: tomllib) that has PyYAML; the system's own counts where another comes first.
python_with_yaml() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import yaml, tomllib' 2>/dev/null; then
      printf '%s\n' "$python"
      return 0
    fi
  done
  return 1
}

has_node() { has node && has npm; }
has_libpq() { pkg-config --exists libpq 2>/dev/null || [ -d "$(pg_config --includedir 2>/dev/null)" ]; }

# ensure build|database|broker|psql|node|shellcheck|yaml …: installs what is missing of each; dies when that cannot be done here.
ensure() {
  local part missing=()
  for part in "$@"; do
    lacks "$part" && missing+=("$part")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if has apt-get; then
    install_with_apt "${missing[@]}"
  elif has brew; then
    install_with_brew "${missing[@]}"
  else
    die "missing: ${missing[*]}, and neither apt-get nor brew is here. $(what_to_install)"
  fi
  for part in "${missing[@]}"; do
    ! lacks "$part" || die "$part is still missing after the installation. $(what_to_install)"
  done
}

lacks() {
  case $1 in
    build) ! { has_compiler && has pkg-config && has_libpq; } ;;
    database) ! has_database ;;
    broker) ! has_broker ;;
    psql) ! has_psql ;;
    node) ! has_node ;;
    shellcheck) ! has shellcheck ;;
    yaml) ! python_with_yaml >/dev/null ;;
    *) die "no such part: $1" ;;
  esac
}

what_to_install() {
  printf '%s' "Install by hand: a C compiler, pkg-config, the libpq headers, PostgreSQL $OLDEST_POSTGRES or newer " \
    "(server and psql) and RabbitMQ 3.10 or newer with Erlang's epmd; or set DATABASE_URL and AMQP_URL to servers " \
    "that run already, then only the compiler, pkg-config, libpq and psql are needed."
}

apt_packages() {
  case $1 in
    build) echo gcc libc6-dev pkg-config libpq-dev ;;
    database) echo postgresql ;;
    broker) echo rabbitmq-server ;;
    psql) echo postgresql-client ;;
    node) echo nodejs npm ;;
    shellcheck) echo shellcheck ;;
    yaml) echo python3-yaml ;;
  esac
}

install_with_apt() {
  local part packages=()
  for part in "$@"; do
    # shellcheck disable=SC2207 # a list of plain words
    packages+=($(apt_packages "$part"))
  done
  say "installing ${packages[*]} (apt-get)"
  # One lock for the whole of it: the list update has no lock option of its own.
  (
    if has flock; then
      exec 9>"${TMPDIR:-/tmp}/hookledger-apt-$(id -u).lock"
      flock 9
    fi
    as_root apt-get update -qq
    without_service_starts as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${packages[@]}"
  ) </dev/null >&2 || die "apt-get could not install ${packages[*]}: its own words are above. $(what_to_install)"
}

as_root() {
  if is_root; then
    "$@"
  elif has sudo; then
    # A prompt needs a terminal (sudo asks there by itself, whatever its input is); without one it must answer at once.
    if [ -t 2 ]; then sudo "$@"; else sudo -n "$@"; fi
  else
    die "root is needed for: $*. $(what_to_install)"
  fi
}

readonly POLICY=/usr/sbin/policy-rc.d

# The server packages of Debian start a system-wide server when they are installed, and at every boot from then on.
# Private servers are all that is wanted here. A policy that exists (containers have one) is left as it is.
without_service_starts() {
  local units
  units=$(unknown_units)
  if [ -e "$POLICY" ]; then
    "$@"
  else
    printf '#!/bin/sh\nexit 101\n' | as_root sh -c "cat >$POLICY && chmod 755 $POLICY"
    local failed=0
    "$@" || failed=$?
    as_root rm -f "$POLICY"
    [ "$failed" -eq 0 ] || return "$failed"
  fi
  # shellcheck disable=SC2086 # a list of plain words
  [ -z "$units" ] || as_root systemctl disable --quiet $units 2>/dev/null || true
}

# Units that this installation may add. One that is known already belongs to the machine's owner and stays as it is.
unknown_units() {
  local unit
  has systemctl || return 0
  for unit in postgresql.service rabbitmq-server.service epmd.socket epmd.service; do
    systemctl cat "$unit" >/dev/null 2>&1 || printf '%s ' "$unit"
  done
}

brew_formula() {
  case $1 in
    build) echo pkg-config libpq ;;
    database | psql) echo postgresql@17 ;;
    broker) echo rabbitmq ;;
    node) echo node ;;
    shellcheck) echo shellcheck ;;
    yaml) echo pyyaml ;;
  esac
}

# Homebrew starts no service on installation.
install_with_brew() {
  local part formulas=()
  for part in "$@"; do
    # shellcheck disable=SC2207 # a list of plain words
    formulas+=($(brew_formula "$part"))
  done
  say "installing ${formulas[*]} (brew)"
  brew install --quiet "${formulas[@]}" </dev/null >&2 || die "brew could not install ${formulas[*]}. $(what_to_install)"
}

# tool_path: PATH with the folders of psql, pg_config and libpq in it, wherever the package manager keeps them.
tool_path() {
  local folders=$PATH folder
  for folder in /opt/homebrew/opt/libpq/bin /usr/local/opt/libpq/bin "$(postgres_bin)"; do
    [ -d "$folder" ] && folders="$folders:$folder"
  done
  printf '%s\n' "$folders"
}
