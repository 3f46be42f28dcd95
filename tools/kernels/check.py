"""Compares what `nicache check --json` said in a virtual machine with the declared table: `check.py FEATURES NAME < LOG`."""

import json
import sys

VERIFIED_MAX = 200_000

declared = None
with open(sys.argv[1]) as table:
    for line in table:
        words = line.split()
        if words and words[0] == sys.argv[2]:
            declared = set(words[1:])
if declared is None:
    sys.exit(f"{sys.argv[2]} is not in {sys.argv[1]}")
said = [
    line
    for line in sys.stdin.buffer.read().decode(errors="replace").splitlines()
    if line.startswith("{")
]
if not said:
    sys.exit("the machine did not answer")
check = json.loads(said[-1])
has = {feature["feature"] for feature in check["features"] if feature["available"]}
wrong = []
for feature in check["features"]:
    name = feature["feature"]
    if (name in has) != (name in declared):
        wrong.append(
            f"{name}: {'there' if name in has else 'missing'}, unlike declared; {'; '.join(feature['why_not'])}"
        )
for program in check["programs"]:
    if program["refused"]:
        wrong.append(f"{program['program']} is refused:\n{program['refused']}")
    elif program["verified"] > VERIFIED_MAX:
        wrong.append(
            f"{program['program']} takes {program['verified']} verified instructions, {VERIFIED_MAX} at most"
        )
largest = max(check["programs"], key=lambda program: program["verified"])
print(
    f"{check['kernel']}: {' '.join(sorted(has))}; largest program {largest['program']} {largest['verified']}"
)
for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
