#!/bin/sh
set -e
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -std=gnu11 -Wall -Isrc -o "$out/test" test/test.c src/series.c src/stats.c src/histogram.c
cc -std=gnu11 -Wall -Isrc -o "$out/timing" src/*.c
"$out/test"
