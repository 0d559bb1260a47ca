#!/usr/bin/env bash
# Draws the book's pictures of traces, docs/book/src/trace/*.svg. With --report it also measures the
# sample report, docs/report.html and docs/report.png, which needs an idle machine and Chromium.
#
#     docs/draw.sh [--report]
set -euo pipefail
cd "$(dirname "$0")/.."

pictures=$PWD/docs/book/src/trace
report=$PWD/docs/report.html
release=$PWD/${CARGO_TARGET_DIR:-target}/release

cargo build --release -p cringle-cli -p cringle \
  --bin cringle --example copy --example race --example copy_tree

# On the disk of the target directory, because tmpfs completes no op of a ring inline.
place=$(mktemp -d "$PWD/${CARGO_TARGET_DIR:-target}/draw-XXXXXX")
trap 'rm -rf "$place"' EXIT
cd "$place"

# draw TRACE PICTURE TITLE [OPTION]…
draw() {
  "$release/cringle" trace "$1" --svg "$pictures/$2.svg" --title "$3" "${@:4}" >/dev/null
}

# draw_part TRACE PICTURE TITLE MILLISECONDS: of ten windows of this length, the one with the most
# events. (On a busy machine the traced program may pause.)
draw_part() {
  local start
  for start in 20 40 60 80 100 120 140 160 180 200; do
    draw "$1" "$2-$start" "$3" --from "${start}ms" --to "$((start + $4))ms" 2>/dev/null || true
  done
  mv "$(ls -S "$pictures/$2"-*.svg | head -n 1)" "$pictures/$2.svg"
  rm -f "$pictures/$2"-*.svg
}

head -c 16M /dev/urandom >from
CRINGLE_TRACE=batch.pftrace "$release/examples/copy" from to >/dev/null
draw batch.pftrace batch "32 reads in one batch, then 32 writes"

CRINGLE_TRACE=race.pftrace "$release/examples/race" >/dev/null
draw race.pftrace race "Four races of two replicas"

mkdir tree
for number in $(seq 64); do head -c 1M /dev/urandom >"tree/$number"; done
CRINGLE_TRACE=4k.pftrace "$release/examples/copy_tree" tree copy-4k 4096 >/dev/null
draw_part 4k.pftrace tree-4k "A tree in blocks of 4 KiB: 2 ms of it" 2
CRINGLE_TRACE=64k.pftrace "$release/examples/copy_tree" tree copy-64k 65536 >/dev/null
draw_part 64k.pftrace tree-64k "The same tree in blocks of 64 KiB: 20 ms of it" 20

for workers in 1 2; do
  CRINGLE_BALANCE=fixed "$release/cringle" --trace web.pftrace bench http --servers fibers --keepalive --quiet \
    --connections 16 --workers $workers --requests 20000 --repeat 1 >/dev/null
  # Each process of the benchmark writes a trace; the server's is the largest.
  largest=$(ls -S web-*.pftrace | head -n 1)
  title="A web server with $([ $workers = 1 ] && echo one worker || echo two workers)"
  draw_part "$largest" web-$workers "$title" 1
  rm web-*.pftrace
done

if [ "${1:-}" = --report ]; then
  "$release/cringle" bench disk --qd 1,8,32,128 --repeat 5 --quiet --html report.html
  mv report.html "$report"
  # The README's picture of it.
  "$(command -v chromium-headless-shell || command -v chromium)" --headless --no-sandbox --hide-scrollbars \
    --window-size=1000,900 --screenshot="${report%.html}.png" "file://$report"
fi
