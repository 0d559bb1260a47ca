#!/bin/sh
# The first process of the machine: runs the tests and says what came of them on the second serial line.
# Each line there is "@@ word …", or "NAME| …" for what a test binary wrote.

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
# Before Linux 6.13 each fiber's stack is two mappings.
sysctl -qw vm.max_map_count=4194304

exec >/dev/ttyS1 2>&1
stty raw -echo </dev/ttyS1

# What a command writes, each line with a name before it; the status is the command's.
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

. /settings
cd "$PACKAGE" || finish
echo "@@ ring $(xtask ring)"
for queue in /sys/block/nvme*/queue/io_poll; do
  echo "@@ polled $(cat "$queue")"
done

if [ -e /command ]; then
  named command sh /command
  echo "@@ status $?"
  finish
fi

export CRINGLE_POLL_QUEUES=required
for test in $TESTS; do
  echo "@@ start $test"
  begun=$(date +%s)
  named "$test" timeout -s KILL "$BOUND" "/tests/$test" --color never
  status=$?
  echo "@@ end $test $status $(($(date +%s) - begun))"
done

# Where the ring is denied to programs without a privilege, and to all.
for denied in 1 2; do
  [ -e /proc/sys/kernel/io_uring_disabled ] || break
  echo "$denied" >/proc/sys/kernel/io_uring_disabled
  echo "@@ denied $denied $(su nobody -c "xtask ring")"
done
finish
