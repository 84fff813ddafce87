# SPDX-License-Identifier: MIT
"""same_training.py A B: the checkpoints of two folders are the same but for the times, and so are the losses and scores of the
reports in A/report and B/report, where there are any."""
import json
import pathlib
import struct
import sys


def tensors(path):
    """The step and the bytes of every tensor; of the curve, the steps and the losses."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    notes = header.pop("__metadata__")
    found = {"step": notes["step"], "settings": notes["settings"]}
    for name, item in header.items():
        start, end = item["data_offsets"]
        block = data[8 + length + start:8 + length + end]
        if name == "curve":
            points = struct.unpack(f"<{len(block) // 8}d", block)
            block = [points[0::3], points[2::3]]
        found[name] = block
    return found


def scores(folder):
    path = folder / "report" / "report.json"
    if not path.exists():
        return None
    runs = [run for run in json.loads(path.read_text())["runs"] if not run.get("timing")]
    return [{key: run.get(key) for key in ("model", "norm", "seed", "quality", "details", "steps")} for run in runs]


a, b = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
names = sorted(path.name for path in a.glob("*.safetensors"))
if not names or names != sorted(path.name for path in b.glob("*.safetensors")):
    sys.exit(f"{a} and {b} do not hold the same checkpoints: {names}")
for name in names:
    one, other = tensors(a / name), tensors(b / name)
    different = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    if different:
        sys.exit(f"{name}: {a} and {b} differ in {', '.join(sorted(different)[:5])}")
if scores(a) != scores(b):
    sys.exit(f"the reports differ: {scores(a)}, {scores(b)}")
print(f"{a} and {b}: {len(names)} checkpoints are the same")
