#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# strata data: downloads files from a server of this test, which as the test chooses closes connections, ignores ranges,
# sends wrong bytes or stops sending.
. "$(dirname "$0")/support.sh"

expect 0 "mnist:" data list
for name in cifar10 imdb fake_news; do stdout "$name:"; done
expect 0 "" data list --json
json '[d["name"] for d in r] == ["mnist", "cifar10", "imdb", "fake_news"]'
json 'all(len(f["sha256"]) == 64 and f["url"].startswith("https://") and f["bytes"] > 0 for d in r for f in d["files"])'
expect 2 "data needs list|fetch" data
expect 2 'not "get"' data get mnist
expect 2 "needs --to DIR" data fetch mnist
expect 2 "needs NAME|FILES.json" data fetch --to "$work/to"
expect 2 'Did you mean "mnist"?' data fetch mnits --to "$work/to"
expect 2 'there are no data "imagenet"' data fetch imagenet --to "$work/to"
expect 2 "takes no name" data list mnist

# ---- lists of the user ----
list() { # NAME JSON
    printf '%s\n' "$2" >"$work/list.json"
    expect 3 "$1" data fetch "$work/list.json" --to "$work/to"
}
hash=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
list "list.json" '{"files": ['
list "files" '{}'
list "must be a plain file name" "{\"files\": [{\"name\": \"../x\", \"url\": \"http://localhost/\", \"sha256\": \"$hash\"}]}"
list "must begin with http" "{\"files\": [{\"name\": \"x\", \"url\": \"file:///etc/passwd\", \"sha256\": \"$hash\"}]}"
list "must be 64 lower-case" '{"files": [{"name": "x", "url": "http://localhost/", "sha256": "12"}]}'
expect 3 "nowhere.json: cannot open" data fetch "$work/nowhere.json" --to "$work/to"

"$strata" data fetch "$work/list.json" --to "$work/to" >"$work/out" 2>&1
printf '{"files": [{"name": "x", "url": "http://127.0.0.1:9/x", "sha256": "%s"}]}' "$hash" >"$work/list.json"
"$strata" data fetch "$work/list.json" --to "$work/to" >"$work/out" 2>&1
if grep -q "no libcurl" "$work/out"; then
    # Files that the user downloaded by other means are checked, too.
    expect 3 "Get http://127.0.0.1:9/x yourself" data fetch "$work/list.json" --to "$work/to"
    : >"$work/to/x.part"
    expect 0 "fetched" data fetch "$work/list.json" --to "$work/to"
    expect 0 "was there" data fetch "$work/list.json" --to "$work/to"
    finish
fi
expect 3 "127.0.0.1" data fetch "$work/list.json" --to "$work/to"
: >"$work/file"
expect 3 "cannot make this folder" data fetch "$work/list.json" --to "$work/file/below"
expect 3 "cannot make this folder" data fetch "$work/list.json" --to "$work/file"

# ---- a server ----
python3 "$here/server.py" "$work" >"$work/server.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
eventually test -e "$work/port"
port=$(cat "$work/port")
sha=$(python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$work/body")
export no_proxy=127.0.0.1
make_list() { # HOW
    printf '{"files": [{"name": "x.bin", "url": "http://127.0.0.1:%s/%s/x", "sha256": "%s", "bytes": 300000}]}' "$port" "$1" \
        "$sha" \
        >"$work/list.json"
}
fetch() { # CODE TEXT HOW FOLDER
    make_list "$3"
    expect "$1" "$2" data fetch "$work/list.json" --to "$work/$4"
}

fetch 0 "fetched" plain new/folder
check "the file is whole" cmp "$work/new/folder/x.bin" "$work/body"
check "no part is left" test ! -e "$work/new/folder/x.bin.part"
quiet stderr
fetch 0 "was there" missing new/folder
printf 'other' >"$work/new/folder/x.bin"
fetch 3 "move it away" plain new/folder
check "a file that is another one stays" test "$(cat "$work/new/folder/x.bin")" = other
fetch 0 "fetched" moved redirected

fetch 3 "answers with code 404" missing none
fetch 3 "they were thrown away" wrong wrong
check "the wrong bytes are gone" test -z "$(ls "$work/wrong")"

# When the connection breaks, the download continues at this place...
: >"$work/log"
fetch 0 "fetched" once once
check "the file is whole after a break" cmp "$work/once/x.bin" "$work/body"
check "the second request began where the first broke" grep -qx "once bytes=40000-" "$work/log"
# ... or the next run continues it, when the connection breaks again and again.
fetch 3 "the same command continues there" breaks resumed
check "what came is kept" test "$(wc -c <"$work/resumed/x.bin.part")" = 200000
: >"$work/log"
fetch 0 "fetched" plain resumed
check "the next run went on from there" grep -qx "plain bytes=200000-" "$work/log"
check "the file is whole after two runs" cmp "$work/resumed/x.bin" "$work/body"
mkdir "$work/deaf" && head -c 1000 /dev/zero >"$work/deaf/x.bin.part"
fetch 0 "fetched" deaf deaf
mkdir "$work/whole" && cp "$work/body" "$work/whole/x.bin.part"
fetch 0 "fetched" plain whole
check "a part that was whole" cmp "$work/whole/x.bin" "$work/body"

# The disk is full: the exit code must show that free space would help.
make_list plain
checks=$((checks + 1))
(ulimit -f 64 && trap '' XFSZ && exec "$strata" data fetch "$work/list.json" --to "$work/full") >"$work/out" 2>"$work/err" \
    </dev/null
code=$?
[ $code = 161 ] || bad "without room: exit code $code, not 161"
stderr "make room"

# After Ctrl-C the bytes that were received are kept.
make_list slow
python3 - "$strata" data fetch "$work/list.json" --to "$work/stopped" >"$work/code" 2>"$work/err" <<'END'
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
run = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
part = sys.argv[-1] + "/x.bin.part"
while run.poll() is None and not os.path.exists(part):
    time.sleep(0.05)
time.sleep(0.3)
run.send_signal(signal.SIGINT)
print(run.wait(300))
END
check "exit code 130, not $(cat "$work/code")" test "$(cat "$work/code")" = 130
stderr "the same command continues there"
finish
