# The packages in $1 that have a library depend on what its symbols need.
depends() {
  version=$(dpkg-deb -f "$1" Depends | sed -n "s/.*$2 (>= \([0-9.]*\)).*/\1/p")
  needs=$(readelf -V "$3" | grep -o "$4_[0-9.]*" | sed "s/$4_//; s/\.0$//" | sort -V | tail -n 1)
  dpkg --compare-versions "$version" ge "$needs" || { echo "$1 needs $2 $needs, and depends on '$version'" >&2; exit 1; }
}
root=$(mktemp -d)
trap 'rm -r "$root"' EXIT
for deb in "$1"/*.deb; do
  dpkg-deb -x "$deb" "$root/${deb##*/}"
  for library in $(find "$root/${deb##*/}" -type f -name '*.so*'); do
    depends "$deb" libc6 "$library" GLIBC
    depends "$deb" libgcc-s1 "$library" GCC
  done
done
