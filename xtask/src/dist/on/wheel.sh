# Installs the wheel that pip chooses into a fresh environment, and reads with it.
! command -v cc rustc gcc >&2 || { echo "a compiler is here" >&2; exit 1; }
python3 -m venv /tmp/venv
/tmp/venv/bin/pip install --quiet --no-index --find-links /dist cringle
