source "$CHECK"
work=$(mktemp -d)
export TMPDIR="$work/tmp"
mkdir "$TMPDIR"
site="$work/my site"

publish() { "$BASH_PROGRAM" "$WORKSPACE/bin/publish.sh" "$site" "$@"; }

publish echo built
same "exit code" 0 $?
same "output" built "$(cat "$site/build.log")"
holds "the lock is gone" test ! -e "$site/lock"
same "the scratch folder is gone" "" "$(ls "$TMPDIR")"
same "the log's end" finished "$(tail -n 1 "$site/publish.log")"

publish "$BASH_PROGRAM" -c 'echo broken; exit 7' 2> /dev/null
same "the build's exit code" 7 $?
holds "cleaned up after a failure" test ! -e "$site/lock"
same "its output is kept" broken "$(cat "$site/build.log")"

mkdir "$site/lock"
publish echo never 2> /dev/null
same "refused" 75 $?
holds "another's lock stays" test -d "$site/lock"
rmdir "$site/lock" 2> /dev/null

"$BASH_PROGRAM" "$WORKSPACE/bin/publish.sh" "$site" "$BASH_PROGRAM" -c 'echo > "$0/up"; exec sleep 1' "$work" 2> /dev/null &
runner=$!
tries=0
while [ ! -e "$work/up" ] && kill -0 "$runner" 2> /dev/null && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
kill -TERM "$runner"
tries=0
while kill -0 "$runner" 2> /dev/null && [ $tries -lt 160 ]; do sleep 0.05; tries=$((tries + 1)); done
holds "TERM ends it" test $tries -lt 160
holds "without the lock" test ! -e "$site/lock"
same "without the scratch folder" "" "$(ls "$TMPDIR")"
kill -KILL "$runner" 2> /dev/null
finish
