# Installs the wheel that pip chooses into a fresh environment, and reads with it.
python3 -m venv /tmp/venv
/tmp/venv/bin/pip install --quiet --no-index --find-links /dist cringle
