#!/bin/sh
# Runs a program where nobody may make a ring. The init lets them again.
echo 2 >/proc/sys/kernel/io_uring_disabled || exit
exec "$@"
