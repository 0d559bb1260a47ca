#!/usr/bin/env bash
# Compares the book's key-value server with the same server on tokio, and with Redis, if it is installed:
# redis-benchmark's rates of durable SETs and of GETs, in alternating rounds.
#
#     cargo build --release --example kv
#     (cd benches && cargo build --release -p kv)
#     benches/kv/compare.sh [ROUNDS] [CONNECTIONS]
#
# The servers run on core 0, the load on core 1. The logs are in the current directory, which should be on a disk. Redis
# syncs its log before it answers, too (appendfsync always), and does not save anything else.
set -euo pipefail

rounds=${1:-5} connections=${2:-50} port=6399
root=$(cd "$(dirname "$0")/../.." && pwd)
fibers=${CARGO_TARGET_DIR:-$root/target}/release/examples/kv
tokio=${BENCHES_TARGET_DIR:-$root/benches/target}/release/kv
logs=$(mktemp -d ./kv-XXXXXX)
trap 'rm -rf "$logs"' EXIT

# Prints "SET rate" and "GET rate" of one run.
measure() {
  local name=$1 pid
  shift
  taskset -c 0 "$@" >/dev/null 2>&1 &
  pid=$!
  until redis-cli -p $port ping >/dev/null 2>&1; do
    kill -0 $pid || { echo "$name does not start: $*" >&2; exit 1; }
  done
  for command in set get; do
    local count=200000
    [ $command = set ] && count=20000
    taskset -c 1 redis-benchmark -p $port -t $command -n $count -P 1 -c "$connections" -d 64 -r 100000 --csv |
      awk -F'","|"' -v name="$name" 'NR > 1 { print name, $2, $3 }'
  done
  kill "$pid"
  wait "$pid" 2>/dev/null || true
}

redis() {
  mkdir "$logs/redis-$1"
  measure redis redis-server --port $port --bind 127.0.0.1 --save "" --appendonly yes --appendfsync always \
    --auto-aof-rewrite-percentage 0 --dir "$logs/redis-$1"
}

for ((round = 0; round < rounds; round++)); do
  measure fibers "$fibers" "$logs/fibers-$round" 127.0.0.1:$port
  measure tokio "$tokio" "$logs/tokio-$round" 127.0.0.1:$port 1
  if command -v redis-server >/dev/null; then redis $round; fi
done | sort -k1,2 -k3n | awk '
  { rates[$1 " " $2] = rates[$1 " " $2] " " $3 }
  END {
    for (key in rates) {
      count = split(rates[key], all, " ")
      median[key] = all[int((count + 1) / 2)]
    }
    split("SET GET", commands, " ")
    split("tokio redis", others, " ")
    for (n = 1; n <= 2; n++) {
      command = commands[n]
      fibers = median["fibers " command]
      printf "%s: fibers %.0f/s", command, fibers
      for (m = 1; m <= 2; m++) {
        other = median[others[m] " " command]
        if (other) printf ", %s %.0f/s, ratio %.2f", others[m], other, fibers / other
      }
      print ""
    }
  }'
