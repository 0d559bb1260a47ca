# Installs the C library, and runs programs that were compiled with the -dev package elsewhere.
! command -v cc rustc gcc >&2 || { echo "a compiler is here" >&2; exit 1; }
dpkg -i /dist/libcringle_*_amd64.deb >/dev/null
ldconfig -p | grep -q libcringle.so || { echo "ldconfig does not know the library" >&2; exit 1; }
/work/shared
/work/static
