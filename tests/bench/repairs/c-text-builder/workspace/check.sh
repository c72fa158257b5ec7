#!/bin/sh
set -e
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -std=gnu11 -Wall -Isrc -o "$out/test" test/test.c src/text.c src/quote.c src/json.c
cc -std=gnu11 -Wall -Isrc -o "$out/notes" src/*.c
"$out/test"
