# Installs the command's package on a bare Debian, and uses it.
! command -v cc rustc gcc >&2 || { echo "a compiler is here" >&2; exit 1; }
dpkg -i /dist/cringle_*_amd64.deb >/dev/null
set -- cringle
