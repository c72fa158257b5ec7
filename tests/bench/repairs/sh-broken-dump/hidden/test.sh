source "$CHECK"
work=$(mktemp -d)
folder="$work/back ups"

backup() { DUMP=$1 "$BASH_PROGRAM" "$WORKSPACE/bin/backup.sh" "$folder"; }
there() { ls "$folder" | tr '\n' ' '; }

cat > "$work/broken.sh" <<'DUMP'
echo half of it
exit 3
DUMP

for n in 1 2 3; do backup "echo dump $n" > /dev/null; done
same "good ones" "1.gz 2.gz 3.gz " "$(there)"

said=$(backup false 2> "$work/err")
same "exit code" 1 $?
same "nothing on stdout" "" "$said"
holds "a message" test -s "$work/err"
same "nothing changed" "1.gz 2.gz 3.gz " "$(there)"

backup "$BASH_PROGRAM $work/broken.sh" > /dev/null 2>&1
same "broken off in the middle" 1 $?
same "nothing of it stays" "1.gz 2.gz 3.gz " "$(there)"
same "no hidden files either" "" "$(find "$folder" -type f ! -name '[123].gz')"

backup "no-such-program-here" > /dev/null 2>&1
same "no such program" 1 $?
same "the oldest is whole" "dump 1" "$(gunzip -c "$folder/1.gz")"

same "afterwards it goes on" "backup done: 4.gz" "$(backup 'echo dump 4')"
same "and rotates" "2.gz 3.gz 4.gz " "$(there)"
same "with the whole dump" "dump 4" "$(gunzip -c "$folder/4.gz")"
finish
