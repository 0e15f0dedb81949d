// SPDX-License-Identifier: Apache-2.0
//
// page_style: the report's style sheet, light and dark. Outcomes are shown as words and colours.
#pragma once

namespace quire::conformance {

constexpr char kPageStyle[] = R"css(
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #23262b; --soft: #6a6f78; --line: #e4e1d9;
  --yes: #1f7a4d; --no: #b3261e; --skip: #8a6d1b; --yes-wash: #e6f3ec; --no-wash: #fbe9e7;
  --skip-wash: #f7f0dc; --accent: #33508f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181c; --card: #1e2126; --ink: #e6e4de; --soft: #9a9fa8; --line: #32363d;
    --yes: #6fcf9b; --no: #ff8a80; --skip: #e0c064; --yes-wash: #1b3227; --no-wash: #3d2321;
    --skip-wash: #352e18; --accent: #9db4ec;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 2.4rem; line-height: 1.15; margin: .1rem 0 .6rem; letter-spacing: -.02em; }
h2 { font-size: 1.25rem; margin: 3rem 0 .3rem; }
p.lead { color: var(--soft); margin: 0 0 1rem; max-width: 46rem; }
.kicker { color: var(--soft); text-transform: uppercase; letter-spacing: .12em; font-size: .75rem; }
.yes { color: var(--yes); } .no { color: var(--no); } .skip { color: var(--skip); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  padding: 1.1rem 1.4rem; overflow-x: auto;
}
.hero { border-left: .5rem solid; }
.hero.yes, .hero.no, .hero.skip { color: var(--ink); }
.hero.yes { border-left-color: var(--yes); } .hero.no { border-left-color: var(--no); }
.hero.skip { border-left-color: var(--skip); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem;
  margin: 1.4rem 0 0; }
.facts dt { color: var(--soft); font-size: .8rem; } .facts dd { margin: 0; font-weight: 600; }
.bar { display: flex; height: .55rem; border-radius: .3rem; overflow: hidden; margin: 1rem 0 .3rem;
  background: var(--line); gap: 2px; }
.bar i { display: block; } .bar .yes { background: var(--yes); } .bar .no { background: var(--no); }
.bar .skip { background: var(--skip); }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .8rem; }
th, td { padding: .42rem .7rem .42rem 0; border-top: 1px solid var(--line); vertical-align: top; }
thead th { border-top: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.small { color: var(--soft); font-size: .84rem; }
.chip { display: inline-block; min-width: 3.1rem; text-align: center; border-radius: 1rem;
  padding: .02rem .55rem; font-size: .78rem; font-weight: 700; }
.chip.yes { background: var(--yes-wash); } .chip.no { background: var(--no-wash); }
.chip.skip { background: var(--skip-wash); }
.matrix { table-layout: fixed; min-width: 44rem; }
.matrix td, .matrix th { text-align: center; padding: .3rem .35rem; }
.matrix td:first-child, .matrix th:first-child { text-align: left; white-space: nowrap;
  width: 9.5rem; }
.matrix td.yes { background: var(--yes-wash); } .matrix td.no { background: var(--no-wash); }
.matrix td.skip { background: var(--skip-wash); }
.matrix td { border: 2px solid var(--card); border-radius: .3rem; font-size: .82rem; }
.matrix caption { text-align: left; font-weight: 600; padding: .2rem 0 .4rem; }
.matrix + .matrix { margin-top: 1.4rem; }
ol.notes { margin: 1rem 0 0; padding-left: 1.4rem; font-size: .84rem; color: var(--soft); }
details { border-top: 1px solid var(--line); } details:first-of-type { border-top: 0; }
summary { cursor: pointer; padding: .5rem 0; display: flex; gap: .8rem; align-items: baseline; }
summary::before { content: "\25B8"; color: var(--soft); }
details[open] > summary::before { content: "\25BE"; }
summary b { flex: 1; } details table { margin: 0 0 .8rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0 0; font: .8rem/1.45
  ui-monospace, "DejaVu Sans Mono", Consolas, monospace; }
.share { display: grid; grid-template-columns: 11rem 1fr 5rem; gap: .8rem; align-items: center;
  padding: .3rem 0; }
.share div { height: .6rem; background: var(--line); border-radius: .3rem; overflow: hidden; }
.share div i { display: block; height: 100%; background: var(--accent); }
footer { margin-top: 3rem; color: var(--soft); font-size: .84rem; }
@media print { body { background: #fff; } .card { break-inside: avoid; } }
)css";

}  // namespace quire::conformance
