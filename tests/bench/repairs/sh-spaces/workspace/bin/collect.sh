#!/usr/bin/env bash
# collect.sh SOURCE TARGET
set -eu
here=$(cd $(dirname $0)/.. && pwd)
. $here/lib/files.sh
. $here/lib/copy.sh

if [ $# -ne 2 ]; then
  echo "usage: collect.sh SOURCE TARGET" >&2
  exit 2
fi
SOURCE=${1%/}
TARGET=${2%/}
mkdir -p $TARGET
: > $TARGET/list
each_text $SOURCE copy_one
echo "$(wc -l < $TARGET/list | tr -d ' ') files"
