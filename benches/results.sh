#!/bin/sh
# Writes RESULTS.md, in about ten minutes:
#
#     ./results.sh DIRECTORY > RESULTS.md
#
# DIRECTORY is on the file system and disk to measure (not on tmpfs); a file of 1 GiB is created
# there and removed. REPEAT=1 measures each figure once, for a quick look.
#
# The parts that other commands measured are copied from the last commit's RESULTS.md.
set -eu
directory=${1:?usage: ./results.sh DIRECTORY > RESULTS.md}
repeat=${REPEAT:-5}
rounds=$((3 * repeat))
here=$(cd "$(dirname "$0")" && pwd)
cargo build --release --manifest-path "$here/Cargo.toml" >&2
bin=${CARGO_TARGET_DIR:-$here/target}/release

data=$directory/randread.dat
trap 'rm -f "$data"' EXIT INT TERM
head -c 1073741824 /dev/urandom > "$data"
sync "$data"

version() {
    sed -n "/^name = \"$1\"$/{n;s/version = \"\(.*\)\"/\1/p;}" "$here/Cargo.lock" |
        paste -sd '/' | sed "s/^/$1 /"
}

# Prints a heading, the command as a reader would type it, and the command's output.
randread() {
    printf '\n### %s\n\n    randread --file FILE %s\n\n' "$1" "$2"
    # $2 is split into arguments.
    # shellcheck disable=SC2086
    "$bin/randread" --file "$data" --repeat "$repeat" $2
}

cat <<END
# Results

The first two parts are written by \`./results.sh DIRECTORY > RESULTS.md\`; [README.md](README.md) explains what the
figures mean, and what to know before trusting them. The parts [The command's benchmarks](#the-commands-benchmarks) and
[Single decisions](#single-decisions) were measured by the commands that they name, and are kept by the script.

- Date: $(date -u +%Y-%m-%d); Cringle at $(git -C "$here" describe --always --dirty --exclude '*')
- Machine: $(nproc) × $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), Linux $(uname -r),
  file system $(stat -f -c %T "$directory" | sed 's/ext2.ext3/ext4/'), $(rustc --version | cut -d' ' -f1-2)
- Versions: $(for name in corosensei tokio tokio-uring monoio compio glommio io-uring; do
    version $name; done | paste -sd ',' | sed 's/,/, /g')

## Micro-benchmarks

    micro --directory DIRECTORY
END
"$bin/micro" --directory "$directory" --rounds "$rounds"
printf '\n## Random reads\n'
randread "Pure overhead: 64 bytes from the page cache" "--cached --block 64 --qd 32 --ops 1000000"
randread "4 KiB from the page cache" "--cached --qd 32 --ops 500000"
randread "4 KiB from the page cache, one after the other" "--cached --qd 1 --ops 300000 --base sync"
randread "4 KiB from the disk" "--direct --qd 32 --ops 100000"
randread "4 KiB from the disk, 128 at once" "--direct --qd 128 --ops 100000"
randread "4 KiB from the disk, one after the other" "--direct --qd 1 --ops 20000 --base sync"
printf '\n'
git -C "$here" show HEAD:./RESULTS.md | sed -n '/^<!-- results.sh keeps/,$p'
