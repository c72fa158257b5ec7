#!/bin/sh
set -e
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -std=gnu11 -Wall -Isrc -o "$out/test" test/test.c src/lines.c src/record.c src/summary.c
cc -std=gnu11 -Wall -Isrc -o "$out/logsum" src/*.c
"$out/test"
