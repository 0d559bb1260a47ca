#!/bin/sh
# The first process of the machine: runs the tests and reports on the second serial line. Each line there
# is "@@ word …", or "NAME| …" for the output of a test binary.

export PATH=/bin HOME=/root TERM=dumb
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
chmod 1777 /dev/shm
ln -s /proc/self/fd /dev/fd
ip link set lo up
hostname cringle
ulimit -n 65536
# Before Linux 6.13 each fiber's stack takes two mappings.
sysctl -qw vm.max_map_count=4194304

exec >/dev/ttyS1 2>&1
stty raw -echo </dev/ttyS1

# Prints the output of a command, each line with a name before it. Returns the command's status.
named() {
  name=$1
  shift
  "$@" </dev/null >/run/output 2>&1
  status=$?
  sed "s/^/$name| /" /run/output
  return $status
}

finish() {
  echo "@@ done"
  sync
  poweroff -f
}

SWITCH=/proc/sys/kernel/io_uring_disabled

# Reports the driver that a runtime gets: by default, with the ring denied to unprivileged programs, and
# with the ring denied to all.
describe() {
  echo "@@ ring $(driver)"
  for queue in /sys/block/nvme*/queue/io_poll; do
    echo "@@ polled $(cat "$queue")"
  done
  for denied in 1 2; do
    [ -e "$SWITCH" ] || break
    echo "$denied" >"$SWITCH"
    echo "@@ denied $denied $(su nobody -c driver)"
    echo 0 >"$SWITCH"
  done
}

. /settings
# Mounts the other disk, which may be the first or the second: the kernel finds them in any order.
for disk in /dev/nvme?n1; do
  [ -e "${disk}p1" ] || mount "$disk" /plain
done
cd "$PACKAGE" || finish

if [ -e /command ]; then
  named command sh /command
  echo "@@ status $?"
  finish
fi

echo "@@ start kernel"
describe
named kernel cringle doctor --no-measure /tmp /plain
echo "@@ end kernel 0 0"

export CRINGLE_POLL_QUEUES=required CRINGLE_DISK_WITHOUT_QUEUES=/plain
tab=$(printf '\t')
while IFS=$tab read -r step needs words <&3; do
  case ",$DONE," in *",$step,"*) continue ;; esac
  echo "@@ start $step"
  if ! [ -e "$needs" ]; then
    echo "@@ skip $step $needs"
    continue
  fi
  begun=$(date +%s)
  # shellcheck disable=SC2086 # several words
  named "$step" timeout -s KILL "$BOUND" $words 3<&-
  status=$?
  [ ! -e "$SWITCH" ] || echo 0 >"$SWITCH"
  echo "@@ end $step $status $(($(date +%s) - begun))"
done 3</steps
finish
