#!/usr/bin/env bash
# What a large copy costs another program on the machine: how much of a file that is read now and then remains in the
# page cache while `cringle cp` copies a larger one, cached and uncached, in alternating rounds.
#
#     cargo build --release -p cringle-cli
#     benches/cp/beside.sh [ROUNDS]
#
# Needs root: the shell and all that it starts get 3 GiB of memory, in a control group (version 1 or 2) of their own.
# The files (1 GiB and 3 GiB) are in the current directory, which should be on a disk.
set -euo pipefail

rounds=${1:-3}
root=$(cd "$(dirname "$0")/../.." && pwd)
cringle=${CARGO_TARGET_DIR:-$root/target}/release/cringle

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  echo +memory >/sys/fs/cgroup/cgroup.subtree_control
  group=/sys/fs/cgroup/cringle-beside limit=memory.max
else
  group=/sys/fs/cgroup/memory/cringle-beside limit=memory.limit_in_bytes
fi
here=$(mktemp -d ./beside-XXXXXX)
mkdir "$group"
previous=$(dirname "$group")
cleanup() {
  rm -rf "$here"
  echo $$ >"$previous/cgroup.procs"
  rmdir "$group"
}
trap cleanup EXIT
echo $((3 << 30)) >"$group/$limit"
echo $$ >"$group/cgroup.procs"

head -c 1G /dev/zero | tr '\0' h >"$here/hot"
head -c 3G /dev/zero | tr '\0' c >"$here/cold"
sync "$here/hot" "$here/cold"

drop() { dd of="$1" oflag=nocache conv=notrunc,fdatasync count=0 status=none; }

# Prints the way, the seconds, the CPU seconds, and the share of the hot file that is no longer cached.
measure() {
  local copy=$here/copy-$1-$2
  drop "$here/hot"
  drop "$here/cold"
  cat "$here/hot" >/dev/null
  TIMEFORMAT='%R %U %S'
  local times left
  times=$({ time "$cringle" cp --reflink=never --uncached="$1" "$here/cold" "$copy"; } 2>&1)
  left=$(fincore --bytes --noheadings --output RES "$here/hot")
  read -r real user kernel <<<"$times"
  awk -v way="$1" -v real="$real" -v user="$user" -v kernel="$kernel" -v left="$left" \
    'BEGIN { printf "%s %.2f %.2f %.3f\n", way, real, user + kernel, 1 - left / 2 ^ 30 }'
}

for ((round = 0; round < rounds; round++)); do
  measure never $round
  measure always $round
done | tee "$here/all"

for column in 2 3 4; do
  median() { grep "^$1 " "$here/all" | awk -v c=$column '{ print $c }' | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
  what=$(sed -n "$((column - 1))p" <<<$'seconds\nCPU seconds\nshare of the other file that was displaced')
  echo "$what: cached $(median never), uncached $(median always)"
done
