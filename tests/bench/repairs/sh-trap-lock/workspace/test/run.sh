#!/usr/bin/env bash
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp"
mkdir "$TMPDIR"
bash "$here/bin/publish.sh" "$work/site" echo built
[ "$(cat "$work/site/build.log")" = built ]
[ -z "$(ls "$TMPDIR")" ]
grep -q "started: echo built" "$work/site/publish.log"
echo ok
