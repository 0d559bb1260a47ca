# Installs the C library's packages, and runs programs that were compiled with them elsewhere.
! command -v cc rustc gcc >&2 || { echo "a compiler is here" >&2; exit 1; }
dpkg -i /dist/libcringle_*_amd64.deb /dist/libcringle-dev_*_amd64.deb >/dev/null
ldconfig -p | grep -q libcringle.so || { echo "ldconfig does not know the library" >&2; exit 1; }
/dist/.programs/shared
/dist/.programs/static
