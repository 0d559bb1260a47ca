! command -v cc rustc gcc >&2 || { echo "a compiler is here" >&2; exit 1; }
# The copyright file of the package $1 has the holder and the text of the licence beside it.
copyright() {
  sed -n 's/^Copyright (c) //p; 5,$ { s/^$/./; p }' "/usr/share/doc/$1/LICENSE-MIT" >/tmp/licence
  sed -n 's/^Copyright: //p; /^License: MIT$/,$ s/^ //p' "/usr/share/doc/$1/copyright" >/tmp/copyright
  diff /tmp/licence /tmp/copyright >&2
}
