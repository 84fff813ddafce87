#!/bin/sh
# SPDX-License-Identifier: MIT
#
# report_browser.sh TEST_REPORT: opens the page of made-up runs in headless Chromium at the width of a phone and of a desk,
# light and dark, and checks that tables, curves and bars are there, that nothing overflows and that no label is cut off.
set -eu

browser=
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then browser=$name && break; fi
done
if [ -z "$browser" ]; then
  echo "skipped: no chromium here (Debian: chromium)"
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --demo "$folder"

# The page goes into a frame of each width; a script beside it looks at what the browser made of it.
frame() {
  printf '<iframe style="border:0;width:%spx;height:4000px" srcdoc="' "$1"
  sed -e 's/&/\&amp;/g' -e 's/"/\&quot;/g' "$folder/report.html"
  printf '"></iframe>\n'
}
{
  echo '<!doctype html><meta charset="utf-8"><body>'
  frame 360
  frame 1200
  cat <<'SCRIPT'
<pre id="found"></pre>
<script>
addEventListener("load", () => {
  const lines = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, all = (what) => [...page.querySelectorAll(what)];
    const outside = (text) => {
      const a = text.getBoundingClientRect(), b = text.closest("svg").getBoundingClientRect();
      return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
    };
    const drawn = (shape) => shape.getBBox().width > 10 && shape.getBBox().height > 20;
    const root = page.documentElement;
    lines.push([
      "width " + frame.clientWidth,
      "tables " + all("table.results").length,
      "rows " + all("table.results tbody tr").length,
      "charts " + all("svg.chart").filter((s) => s.getBoundingClientRect().width > 250).length,
      "curves " + all("polyline.curve:not(.faint)").filter(drawn).length,
      "faint " + all("polyline.faint").filter(drawn).length,
      "bars " + all("rect.bar").filter((r) => r.getBBox().width > 20).length,
      "spreads " + all("path.spread").length,
      "overflow " + Math.max(0, root.scrollWidth - root.clientWidth,
        ...all("table.times").map((t) => t.parentElement.scrollWidth - t.parentElement.clientWidth)),
      "cut " + all("svg.chart text").filter(outside).length,
      "ground " + getComputedStyle(page.body).backgroundColor
    ].join(", "));
  }
  document.getElementById("found").textContent = lines.join("\n");
});
</script>
SCRIPT
} >"$folder/frames.html"

# Per family four norms and three tables: one mean each, three runs each; the norm that diverged has a curve against steps
# (short, but it climbs) and none against time, no quality and no time. Bars: quality, un-fused and library times. The
# section adds one line.
expected='tables 6, rows 24, charts 11, curves 16, faint 45, bars 21, spreads 7, overflow 0, cut 0'
status=0
for scheme in 1:'rgb(251, 251, 250)' 0:'rgb(20, 23, 27)'; do
  found=$(timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" \
    --blink-settings=preferredColorScheme="${scheme%%:*}" --window-size=1300,900 --virtual-time-budget=5000 \
    --dump-dom "file://$folder/frames.html" 2>"$folder/browser.log" | sed -n 's/.*\(width [0-9]*, tables.*\)/\1/p')
  for width in 360 1200; do
    wanted="width $width, $expected, ground ${scheme#*:}"
    if printf '%s\n' "$found" | grep -qF "$wanted"; then
      echo "ok: $wanted"
    else
      echo "wanted: $wanted"
      echo "found:  $found"
      status=1
    fi
  done
done
[ "$status" = 0 ] || tail -5 "$folder/browser.log"
exit "$status"
