# Installs the command's package on a bare Debian, and uses it. That of another processor lacks its libraries.
dpkg --add-architecture arm64
! dpkg -i /dist/cringle_*_arm64.deb >&2 || { echo "arm64's package can be installed" >&2; exit 1; }
dpkg --purge cringle:arm64 >&2
dpkg -i /dist/cringle_*_amd64.deb >/dev/null
copyright cringle
set -- cringle
