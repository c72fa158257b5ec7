"""Know how code writes what a question says in words: `delete` is del, remove, unlink. Pure.

Words that begin alike are not listed: `dict` for dictionary is found by itself (`terms.forms_of_code`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sakti.store.search.stems import stems

_TABLE = """
absolute: abs
add: append extend insert
administrator: admin
append: add extend
array: list numpy np
asynchronous: async await
attribute: getattr setattr
average: mean avg
boolean: bool true false
buffer: buf
button: btn
call: invoke
check: is has valid assert
choose: select
close: exit
column: col
combine: merge join
command: cmd argv
compare: cmp eq diff
concatenate: join
connection: socket
convert: to cast parse
copy: clone
count: len counter
create: make new mk
database: db sql
date: datetime strftime strptime
delete: del remove unlink rm pop
destination: dst target
directory: folder mkdir isdir listdir path
display: show print render
download: urlopen urlretrieve fetch requests
duplicate: unique set dedupe
element: item
empty: len none
environment: environ
equal: eq
error: exception raise except
exception: error raise except
execute: run exec
exist: isfile
fetch: get
file: open filename path
filename: path basename
find: search match index
folder: dir directory mkdir
function: def callable lambda
generator: yield
get: fetch read load
header: hdr
image: img
index: idx pos
initialize: init
insert: add
integer: int
iterate: iter for yield next
join: merge concat
length: len size
list: array
load: read open
log: logger
lowercase: lower
maximum: max
merge: update join
message: msg
minimum: min
modify: update set
normalize: norm
number: int float count num
object: obj
option: argparse
output: stdout print
parallel: thread pool
path: dir join
pattern: regex re
pointer: ptr
position: pos offset
previous: prev
print: stdout write
process: subprocess popen
random: shuffle choice
read: open load
remove: del pop strip discard unlink
rename: move
replace: sub
request: req http
response: reply
run: exec subprocess popen
save: write dump store
search: find match lookup
send: post
sequence: list
set: update
show: display print
size: len shape
sleep: wait
socket: sock
sort: order sorted
source: src
split: partition
start: begin
stop: end exit
store: save put
sum: total
temporary: tmp
terminate: kill
test: assert
text: str
thread: threading
time: datetime clock
timestamp: ts datetime
total: sum
type: isinstance
unicode: utf8 encode
update: set modify
uppercase: upper
url: urlopen urlparse
validate: check
verify: check assert
wait: sleep join
window: win
write: dump save
"""


@cache
def _table() -> dict[str, tuple[str, ...]]:
    rows = (line.split(": ") for line in _TABLE.strip().splitlines())
    return {stems(word)[0]: tuple(dict.fromkeys(s for w in words.split() for s in stems(w))) for word, words in rows}


def in_code(stem: str) -> Sequence[str]:
    """Return the stems of the words by which code says the same."""
    return _table().get(stem, ())
