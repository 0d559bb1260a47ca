# Installs the C library's packages, and runs programs that were compiled with them elsewhere.
dpkg -i /dist/libcringle[0-9]*_amd64.deb /dist/libcringle-dev_*_amd64.deb >/dev/null
ldconfig -p | grep -q libcringle.so || { echo "ldconfig does not know the library" >&2; exit 1; }
soname=$(basename "$(readlink /usr/lib/*/libcringle.so)")
copyright "libcringle${soname#libcringle.so.}"
copyright libcringle-dev
/dist/.programs/shared
/dist/.programs/static
/dist/.programs/whole
