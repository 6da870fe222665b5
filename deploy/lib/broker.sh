# A private RabbitMQ node under $DIR/broker, with an epmd of its own. Sourced, never run. Needs DIR and the settings.
# shellcheck shell=bash

node_name() { printf 'hookledger-%s@localhost\n' "$NODE_PORT"; }

# A clean environment: neither the machine's rabbitmq-env.conf nor variables of the caller reach the private node, nor do
# its commands reach another node.
set_broker_environment() {
  local broker="$DIR/broker" epmd
  epmd=$(epmd_program)
  broker_environment=(
    PATH="$(dirname "$epmd"):$PATH" HOME="$broker/home" LANG=C.UTF-8 LC_ALL=C.UTF-8
    ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$EPMD_PORT"
    RABBITMQ_NODENAME="$(node_name)"
    RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$NODE_PORT" RABBITMQ_DIST_PORT="$DIST_PORT"
    RABBITMQ_CONF_ENV_FILE="$broker/rabbitmq-env.conf" RABBITMQ_CONFIG_FILE="$broker/rabbitmq.conf"
    RABBITMQ_CONFIG_FILES="$broker/conf.d" RABBITMQ_ADVANCED_CONFIG_FILE="$broker/advanced.config"
    RABBITMQ_ENABLED_PLUGINS_FILE="$broker/enabled_plugins"
    RABBITMQ_MNESIA_BASE="$broker/mnesia" RABBITMQ_LOG_BASE="$broker/log" RABBITMQ_PID_FILE="$broker/pid"
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
  )
}

in_broker_environment() {
  set_broker_environment
  env -i "${broker_environment[@]}" "$@"
}

make_broker_folder() {
  local broker="$DIR/broker" cookie="$DIR/broker/home/.erlang.cookie"
  mkdir -p "$broker/home" "$broker/mnesia" "$broker/log" "$broker/conf.d"
  chmod 700 "$broker"
  if [ ! -f "$cookie" ]; then
    random_word 20 >"$cookie"
    chmod 400 "$cookie"
  fi
  : >"$broker/rabbitmq-env.conf"
  printf '[].\n' >"$broker/enabled_plugins"
  broker_settings >"$broker/rabbitmq.conf"
}

broker_settings() {
  cat <<-SETTINGS
	listeners.tcp.1 = 127.0.0.1:$NODE_PORT
	log.file = node.log
	log.file.level = info
	disk_free_limit.absolute = 64MB
	raft.wal_max_size_bytes = 64000000
	SETTINGS
}

# broker_answers: the node sent a method frame (type 1) for the protocol header, hence all its boot steps are done.
broker_answers() (
  first=''
  exec 2>/dev/null 3<>"/dev/tcp/127.0.0.1/$NODE_PORT" || exit 1
  printf 'AMQP\0\0\11\1' >&3
  IFS= read -r -t 5 -n 1 first <&3 || true
  [ "$first" = $'\1' ]
)

broker_pid() { cat "$DIR/broker/pid" 2>/dev/null || true; }

# What only this node's command line says.
broker_word() { printf -- '-home %s/broker/home' "$DIR"; }

broker_runs() { is_ours "$(broker_pid)" "$(broker_word)"; }

start_broker() {
  make_broker_folder
  if ! broker_runs; then
    rm -f "$DIR/broker/pid"
    start_epmd
    launch_broker
  fi
  wait_until 120 "RabbitMQ to answer on port $NODE_PORT" broker_settled || true
  broker_answers || die "RabbitMQ did not start. See $DIR/broker/log; the end of its output: $(broker_output)"
}

# An epmd of its own: one that is shared would be left behind or, worse, be ended under another node.
start_epmd() {
  port_answers "$EPMD_PORT" && return 0
  in_broker_environment "$(epmd_program)" -daemon -address 127.0.0.1 -port "$EPMD_PORT" </dev/null >/dev/null 2>&1
  wait_until 10 "epmd to answer on port $EPMD_PORT" port_answers "$EPMD_PORT"
}

# A process group of its own: Ctrl-C at the caller's terminal must not reach the node before its clients are gone.
launch_broker() {
  set_broker_environment
  (
    set -m
    env -i "${broker_environment[@]}" nohup "$(rabbitmq_bin)/rabbitmq-server" </dev/null >"$DIR/broker/output.log" 2>&1 &
    printf '%s\n' "$!" >"$DIR/broker/launcher"
  )
}

# Up, or ended while it was trying.
broker_settled() { broker_answers || ! kill -0 "$(cat "$DIR/broker/launcher")" 2>/dev/null; }

broker_output() { tail -n 8 "$DIR/broker/output.log" 2>/dev/null || true; }

# stop_broker SECONDS: how long it may take to stop in order; 0 is a crash.
stop_broker() {
  [ -d "$DIR/broker" ] || return 0
  end_process "$(broker_pid)" "$(broker_word)" "$1"
  stop_epmd
}

# epmd refuses to end while it knows a live node, and needs a moment to notice that a killed one is gone.
stop_epmd() {
  port_answers "$EPMD_PORT" || return 0
  wait_until 10 "epmd on port $EPMD_PORT to end" epmd_ended
}

epmd_ended() {
  in_broker_environment "$(epmd_program)" -port "$EPMD_PORT" -kill </dev/null >/dev/null 2>&1 || true
  ! port_answers "$EPMD_PORT"
}

# broker_ctl ARGUMENT…: rabbitmqctl on the private node.
broker_ctl() { in_broker_environment "$(rabbitmq_bin)/rabbitmqctl" --node "$(node_name)" "$@"; }

amqp_url() { printf 'amqp://guest:guest@127.0.0.1:%s/%%2f?heartbeat=10\n' "$NODE_PORT"; }
