# SPDX-License-Identifier: Apache-2.0
"""Runs a command with a terminal as stderr, and checks what it draws.

python3 screen.py [--both] [--resize COLUMNS] [--interrupt TEXT] FILE COLUMNS COMMAND...

FILE gets everything that was drawn. Nothing may be drawn beyond the last column of a simulated screen. --both: stdout is
the terminal, too. --resize: changes the width after the first line that contains "epoch ". --interrupt: sends Ctrl-C when
TEXT was drawn; with --resize, when it was drawn three times after that. The exit code is the command's."""
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios

words, options = sys.argv[1:], {}
while words[0].startswith("--"):
    name = words.pop(0)[2:]
    options[name] = words.pop(0) if name != "both" else True
path, columns, command = words[0], int(words[1]), words[2:]
ours, theirs = pty.openpty()


def resize(width):
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))


resize(columns)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell without job control ignores it
run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=theirs, stdout=theirs if "both" in options else sys.stdout)
drawn, widest, mark, times = b"", columns, 0, 1
keep = os.dup(theirs)
os.close(theirs)
theirs = keep
while True:

    ready, _, _ = select.select([ours], [], [], 0.05)
    if ready:
        drawn += os.read(ours, 65536)
    elif run.poll() is not None:
        break
    if "resize" in options and b"epoch " in drawn:
        widest = max(columns, int(options.pop("resize")))
        mark, times = len(drawn), 3
        resize(int(sys.argv[sys.argv.index("--resize") + 1]))
    if "interrupt" in options and "resize" not in options and drawn[mark:].count(options["interrupt"].encode()) >= times:
        options.pop("interrupt")
        run.send_signal(signal.SIGINT)
open(path, "wb").write(drawn)
text = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", drawn.decode(errors="replace"))
for line in re.split(r"[\r\n]", text):
    if not line.startswith("strata: ") and ("step " in line or " left" in line or "━" in line or "compiling" in line) \
            and len(line) >= widest:
        print(f"{len(line)} columns of {widest}: {line}", file=sys.stderr)
        sys.exit(77)
sys.exit(run.wait())
