#!/bin/sh
set -e
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -std=c11 -Wall -Isrc -o "$out/test" test/test.c src/series.c src/stats.c src/histogram.c
cc -std=c11 -Wall -Isrc -o "$out/timing" src/*.c
"$out/test"
