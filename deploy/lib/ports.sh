# Free TCP ports on loopback. Sourced, never run.
# shellcheck shell=bash

# Below the range that systems hand to outgoing connections (32768 on Linux, 49152 on macOS), so that a client cannot
# sit on a port in the moment between the choice and the server's start.
readonly LOWEST_PORT=20000 PORT_COUNT=12000

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

port_claims() { printf '%s/hookledger-ports-%s' "${TMPDIR:-/tmp}" "$(id -u)"; }

# claim_port OWNER: prints a port that nobody listens on and that no other folder of this user has claimed. Making a
# folder is atomic, hence two starts at the same moment cannot choose the same port.
claim_port() {
  local owner=$1 claims port attempt
  claims=$(port_claims)
  for attempt in {1..200}; do
    mkdir -p "$claims"
    port=$((LOWEST_PORT + (RANDOM * 32768 + RANDOM) % PORT_COUNT))
    port_answers "$port" && continue
    if mkdir "$claims/$port" 2>/dev/null || is_abandoned "$claims/$port"; then
      printf '%s\n' "$owner" >"$claims/$port/owner"
      printf '%s\n' "$port"
      return 0
    fi
  done
  die "no free port on 127.0.0.1 after $attempt attempts"
}

# A claim whose owner's folder has been deleted binds nobody.
is_abandoned() {
  local owner
  owner=$(cat "$1/owner" 2>/dev/null) && [ -n "$owner" ] && [ ! -d "$owner" ]
}

# release_ports OWNER
release_ports() {
  local claim
  for claim in "$(port_claims)"/*; do
    if [ "$(cat "$claim/owner" 2>/dev/null)" = "$1" ]; then
      rm -f "$claim/owner"
      rmdir "$claim" 2>/dev/null || true
    fi
  done
  rmdir "$(port_claims)" 2>/dev/null || true
}
