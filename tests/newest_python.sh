#!/bin/sh
# The newest Python of this machine that railopt supports: on the PATH, or beside pyenv's default one.
for minor in 13 12 11; do
  for candidate in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3; do
    if "$candidate" -c "import sys; sys.exit(sys.version_info[:2] != (3, $minor))" 2>/dev/null; then
      echo "$candidate"
      exit 0
    fi
  done
done
echo "no Python 3.11 to 3.13 was found" >&2
exit 1
