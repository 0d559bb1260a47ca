# Uses the command $1: examines the machine, copies a tree, and runs a program with 200 threads.
status=0
"$1" doctor --no-measure --json /tmp/report >/dev/null || status=$?
# 3: the ring is not usable.
case "$status" in 0 | 3) ;; *) echo "doctor ended with status $status" >&2; exit 1 ;; esac
grep -q '"command": *"doctor"' /tmp/report
"$1" cp -a /usr/lib/python3 /tmp/copy
diff -r /usr/lib/python3 /tmp/copy
cat >/tmp/threads.py <<'PYTHON'
import os, threading
ready, end = threading.Barrier(201), threading.Event()
threads = [threading.Thread(target=lambda: (ready.wait(), end.wait())) for _ in range(200)]
for thread in threads:
    thread.start()
ready.wait()
print(len(os.listdir("/proc/self/task")))
end.set()
for thread in threads:
    thread.join()
PYTHON
threads=$(python3 /tmp/threads.py)
fibers=$("$1" run python3 /tmp/threads.py)
[ "$threads" = 201 ] && [ "$fibers" -lt 100 ] || { echo "run: $fibers threads, not $threads" >&2; exit 1; }
prefix=$(dirname "$(dirname "$(command -v "$1")")")
for file in man/man1/cringle-cp.1 bash-completion/completions/cringle doc/cringle/deploying.md doc/cringle/LICENSES-OF-DEPENDENCIES.txt; do
  [ -s "$prefix/share/$file" ] || [ -s "$prefix/share/$file.gz" ] || { echo "no $file" >&2; exit 1; }
done
echo "$("$1" --version): doctor $status; 200 threads are $fibers of the system"
