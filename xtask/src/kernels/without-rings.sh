#!/bin/sh
# Runs a program while no process may create a ring. The init allows rings again.
echo 2 >/proc/sys/kernel/io_uring_disabled || exit
exec "$@"
