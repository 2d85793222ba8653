#!/bin/sh
# Installs what attn needs and this machine lacks: Debian packages (debian-packages.txt) and the PyPI packages of
# .venv (requirements.txt); with --test also those of debian-packages-test.txt and requirements-test.txt, with --bench
# requirements-bench.txt as well. Quick when nothing is missing.
#
#   ./setup.sh [--test | --bench]
set -eu
cd "$(dirname "$0")"
requirements=requirements.txt
packages=debian-packages.txt
case ${1:-} in
  --test | --bench)
    requirements=requirements-${1#--}.txt
    packages="$packages debian-packages-test.txt"
    ;;
esac

say() { printf 'setup: %s\n' "$*"; }

fail() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "'$*' needs root, and sudo is not installed: run it as root, then run this again"
  fi
}

# --- Debian ------------------------------------------------------------------------------------
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

command -v dpkg-query >/dev/null || fail "attn is built on Debian 12 (bookworm); this system has no dpkg"
missing=
for list in $packages; do
  while read -r package version; do
    case $package in '' | '#'*) continue ;; esac
    installed "$package" || missing="$missing $package=$version"
  done <"$list"
done
if [ -n "$missing" ]; then
  say "installing Debian packages:$missing"
  as_root apt-get update -qq
  wanted=
  for pinned in $missing; do
    package=${pinned%%=*}
    if apt-cache show "$pinned" >/dev/null 2>&1; then
      wanted="$wanted $pinned"
    elif apt-cache show "$package" >/dev/null 2>&1; then
      say "note: the archive no longer has $pinned; taking its present version"
      wanted="$wanted $package"
    else
      fail "no repository of this system has $package. Debian 12 has it in its security repository:
  deb http://deb.debian.org/debian-security bookworm-security main"
    fi
  done
  # shellcheck disable=SC2086 # one word a package
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $wanted
fi

# --- PyPI --------------------------------------------------------------------------------------
# Debian's own Python, whose headers python3-dev brings; another python3 on PATH (pyenv, conda) may lack them.
if [ ! -x .venv/bin/python ]; then
  say "creating .venv"
  /usr/bin/python3 -m venv .venv
fi
# The stamp of a set of packages is the checksum of the files that list them.
stamp=.venv/.installed-$(cat requirements.txt requirements-test.txt "$requirements" | sha256sum | cut -c1-16)
if [ ! -e "$stamp" ]; then
  say "installing the PyPI packages of $requirements into .venv"
  # Debian 12's pip (23.0) does not know the options of a package that requirements-bench.txt gives.
  [ "$requirements" != requirements-bench.txt ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=23.1'
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$requirements"
  touch "$stamp"
fi

# `import attn` in .venv finds the package that the release build makes.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
package=$PWD/build/release/python
[ "$(cat "$site/attn.pth" 2>/dev/null)" = "$package" ] || printf '%s\n' "$package" >"$site/attn.pth"
