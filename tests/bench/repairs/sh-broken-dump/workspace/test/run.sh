#!/usr/bin/env bash
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for n in 1 2 3 4 5; do
  [ "$(DUMP="echo dump $n" bash "$here/bin/backup.sh" "$work/backups")" = "backup done: $n.gz" ]
done
[ "$(ls "$work/backups" | tr '\n' ' ')" = "3.gz 4.gz 5.gz " ]
[ "$(gunzip -c "$work/backups/5.gz")" = "dump 5" ]
echo ok
