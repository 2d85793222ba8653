#!/bin/sh
# The demo: two specs become objects, a C program is linked with them, and it runs.
#
#   examples/demo/run.sh BUILD
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
root=$(cd "$here/../.." && pwd)
work=$build/demo
mkdir -p "$work"
cd "$work"

show() {
  printf '$ %s\n' "$*" | sed "s#$root/##g"
  "$@"
}

show "$build/bin/attnc" "$root/examples/scaled_dot.attn" -o scaled_dot.o
show "$build/bin/attnc" "$here/attend.attn" -o attend.o
cc -c -std=c99 -Wall -Wextra -pedantic -O2 "$here/npy.c" -o npy.o
cc -c -O2 -march=native -ffp-contract=fast "$here/peak.c" -o peak.o
show cc -std=c99 -Wall -Wextra -pedantic -O2 -I. "$here/demo.c" npy.o peak.o scaled_dot.o attend.o \
  -lpthread -ldl -lm -o demo
echo
show ./demo cases "$here/words"
echo
PYTHONPATH=$build/python "$root/.venv/bin/python" "$here/race.py" ./demo .
