#!/bin/sh
# Reports as ptxas does, for every kernel of its third argument, a number of registers that the test knows.
echo "$2" | /bin/grep -q '^-arch=sm_[0-9][0-9]$' || exit 1
for kernel in $(/bin/sed -n 's/^\.visible \.entry \([A-Za-z0-9_]*\)(.*/\1/p' "$3"); do
  echo "ptxas info    : Compiling entry function '$kernel' for 'sm'"
  echo "ptxas info    : Used 72 registers, used 1 barriers, 520 bytes cmem[0]"
done >&2
