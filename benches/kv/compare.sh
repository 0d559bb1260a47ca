#!/usr/bin/env bash
# Compares the book's key-value server with the same server on tokio: redis-benchmark's rates of durable SETs and of
# GETs, in alternating rounds.
#
#     benches/kv/compare.sh [ROUNDS] [CONNECTIONS]
#
# The servers run on core 0, the load on core 1. The log is in the current directory, which should be on a disk.
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
  taskset -c 0 "$@" 2>/dev/null &
  pid=$!
  until redis-cli -p $port ping >/dev/null 2>&1; do :; done
  for command in set get; do
    local count=200000
    [ $command = set ] && count=20000
    taskset -c 1 redis-benchmark -p $port -t $command -n $count -c "$connections" -d 64 -r 100000 --csv |
      awk -F'","|"' -v name="$name" 'NR > 1 { print name, $2, $3 }'
  done
  kill "$pid"
  wait "$pid" 2>/dev/null || true
}

for ((round = 0; round < rounds; round++)); do
  measure fibers "$fibers" "$logs/fibers-$round" 127.0.0.1:$port
  measure tokio "$tokio" "$logs/tokio-$round" 127.0.0.1:$port 1
done | sort -k1,2 -k3n | awk '
  { rates[$1 " " $2] = rates[$1 " " $2] " " $3 }
  END {
    for (key in rates) {
      count = split(rates[key], all, " ")
      median[key] = all[int((count + 1) / 2)]
    }
    split("SET GET", commands, " ")
    for (n = 1; n <= 2; n++) {
      command = commands[n]
      fibers = median["fibers " command]; tokio = median["tokio " command]
      printf "%s: fibers %.0f/s, tokio %.0f/s, ratio %.2f\n", command, fibers, tokio, fibers / tokio
    }
  }'
