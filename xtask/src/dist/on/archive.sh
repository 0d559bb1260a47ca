# Unpacks the archive on a bare Debian, and uses it where it is.
tar -C /opt -xf /dist/cringle-*-x86_64-linux.tar.gz
set -- /opt/cringle-*/bin/cringle
