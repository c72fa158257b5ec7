#!/usr/bin/env bash
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/in/sub"
echo 1 > "$work/in/a.txt"
echo 2 > "$work/in/sub/b.txt"
echo 3 > "$work/in/c.png"
said=$(bash "$here/bin/collect.sh" "$work/in" "$work/out")
[ "$said" = "2 files" ]
[ "$(cat "$work/out/list")" = "a.txt
sub/b.txt" ]
[ "$(cat "$work/out/sub/b.txt")" = 2 ]
echo ok
