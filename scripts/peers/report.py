# SPDX-License-Identifier: MIT
"""Tables in Markdown that are printed line by line, so that a run that is cut off leaves what it had measured."""
import statistics


def spread(values) -> float:
    """The range without the lowest and the highest tenth (at least one of each), as a share of the median."""
    ordered = sorted(values)
    cut = max(1, len(ordered) // 10)
    inner = ordered[cut:-cut] or ordered
    return (inner[-1] - inner[0]) / statistics.median(ordered)


class Table:
    def __init__(self):
        self.title = None

    def line(self, title, label, names, times, wrong, shown):
        """`times`: of each engine, all rounds, in microseconds. `wrong`: what went wrong with an engine. `shown`: the text
        for a name and its median. The best peer is set in bold; an engine whose results differ is none."""
        if title != self.title:
            self.title = title
            print(f"\n{title}\n\n| | " + " | ".join(names) + " | ours, µs | best peer | ours / best | spread |")
            print("|---|" + "--:|" * len(names) + "--:|---|--:|--:|")
        medians = {name: statistics.median(values) for name, values in times.items()}
        peers = {n: t for n, t in medians.items() if n not in ("copy", "ours") and wrong.get(n) != "differs"}
        best = min(peers, key=peers.get) if peers else None
        cells = []
        for name in names:
            cell = " ".join(filter(None, (shown(name, medians[name]) if name in medians else "", wrong.get(name))))
            cells.append(f"**{cell}**" if name == best else cell)
        own = f"{medians['ours']:.4g}" if "ours" in medians else ""
        ratio = f"{medians[best] / medians['ours']:.3f}" if best and "ours" in medians else ""
        wide = max((spread(times[n]) for n in ("ours", best) if n in times), default=0.0)
        print(f"| {label} | " + " | ".join(cells) + f" | {own} | {best or ''} | {ratio} | {wide:.1%} |", flush=True)
