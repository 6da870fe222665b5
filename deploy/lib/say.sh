# Words for the person at the terminal, and the small helpers that every script here shares. Sourced, never run.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# wait_until SECONDS WHAT COMMAND…: returns as soon as COMMAND succeeds; 1 with a message when it never did.
wait_until() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      say "gave up waiting: $what"
      return 1
    fi
    sleep 0.1
  done
}

# random_word BYTES: twice as many hexadecimal digits.
random_word() { od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'; }

# is_ours PID WORD: a live process whose command line names WORD. A process id that outlived its process can
# belong to somebody else by now, and must not be signalled.
is_ours() {
  [ -n "$1" ] && ps -ww -o args= -p "$1" 2>/dev/null | grep -qF -- "$2"
}

# end_process PID WORD SECONDS: asks first, insists after SECONDS (at once when 0); nothing to do when it is gone already.
end_process() {
  local pid=$1 word=$2 seconds=$3
  is_ours "$pid" "$word" || return 0
  if [ "$seconds" -gt 0 ]; then
    kill -TERM "$pid" 2>/dev/null || return 0
    wait_until "$seconds" "process $pid ($word) to end" is_gone "$pid" "$word" && return 0
  fi
  kill -KILL "$pid" 2>/dev/null || return 0
  wait_until 10 "process $pid ($word) to die" is_gone "$pid" "$word"
}

is_gone() { ! is_ours "$1" "$2"; }
