"use strict";
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const R = D.report, T = R.totals, root = document.documentElement;
const count = n => Number(n).toLocaleString("en-US");
const big = text => /^\d+$/.test(text) ? count(text) : text;
const plural = (n, noun) => count(n) + " " + noun + (Number(n) === 1 ? "" : "s");
const SVG = "http://www.w3.org/2000/svg";
// An element: attributes, then children. Text is always text, never markup.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== false && child !== "") node.append(child);
  return node;
}
const put = (node, ...children) => fill(node, null, children);
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const anchor = finding => finding.code + "-" + finding.id;
const files = !!D.trace && D.trace.of === "files";
const short = path => path.split("/").pop();
const where = place => place && place.file ? short(place.file) + (place.line ? ":" + place.line : "") : place && place.module ? short(place.module) : "";

// Light and dark: as the system wants it, until the button is pressed.
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
const applyTheme = () => { root.dataset.theme = theme || (dark.matches ? "dark" : "light"); for (const draw of redraws) draw(); };
const redraws = [];
dark.addEventListener("change", applyTheme);
document.getElementById("theme").addEventListener("click", () => { theme = root.dataset.theme === "dark" ? "light" : "dark"; applyTheme(); });
const color = name => getComputedStyle(root).getPropertyValue(name).trim();

const main = document.getElementById("main"), links = h("div");
document.getElementById("nav").append(links);
function section(id, title, number) {
  links.append(h("a", {href: "#" + id}, title, number === undefined ? "" : h("b", {}, " " + count(number))));
  const part = h("section", {id: id}, h("h2", {}, title));
  main.append(part);
  return part;
}
// A part that costs something is made when it comes into view.
function whenSeen(node, make) {
  const watch = new IntersectionObserver(seen => { if (seen.some(it => it.isIntersecting)) { watch.disconnect(); make(); } }, {rootMargin: "400px"});
  watch.observe(node);
}

// ---- summary
function summary() {
  const facts = [["events", count(T.events)]];
  if (T.failure_points) facts.push(["failure points", count(T.failure_points)], ["distinct call stacks", count(T.failure_point_stacks)]);
  if (T.recovery_runs) facts.push(["runs of recovery", count(T.recovery_runs)]);
  if (T.exploration) facts.push(["crash states of these runs", big(T.exploration.states)]);
  if (T.tree) facts.push(["operations on files", count(T.tree.operations)]);
  if (D.trace) facts.push([files ? "rules of" : "persistence domain", D.trace.rules === "linux" ? "ext4, xfs, btrfs" : D.trace.rules]);
  if (T.suppressed) facts.push(["suppressed", count(T.suppressed)]);
  if (T.in_baseline) facts.push(["in the baseline", count(T.in_baseline)]);
  if (T.fixed) facts.push(["fixed since the baseline", count(T.fixed)]);
  main.append(h("dl", {class: "facts"}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
  const late = (T.failure_points_not_run || {}).no_time || 0, unexplored = (T.exploration || {}).not_tried || 0;
  const left = [late && plural(late, "failure point") + " for lack of time", unexplored && plural(unexplored, "moment") + " with lost lines"].filter(Boolean);
  if (D.not_checked) main.append(h("p", {class: "alert"}, D.not_checked));
  else if (left.length) main.append(h("p", {class: "alert", id: "incomplete"}, "Not tried: " + left.join(", ") + ". ", h("a", {href: "#unchecked"}, "What was not checked")));
}

// ---- findings
function findings() {
  const part = section("findings", "Findings", R.findings.length);
  if (!R.findings.length) { part.append(h("p", {class: "muted"}, D.not_checked ? "Nothing was checked, so there are none." : "No bugs were found. What was tried is below.")); return; }
  const list = h("div", {class: "list"}), shown = h("span", {class: "muted small", id: "shown", role: "status"});
  const search = h("input", {type: "search", id: "search", placeholder: "Search message, file, function, id", "aria-label": "Search findings"});
  const off = new Set();
  const severities = ["error", "performance", "warning"].filter(it => R.findings.some(f => f.severity === it));
  const chips = severities.map(severity => {
    const chip = h("button", {type: "button", class: "chip", "aria-pressed": "true", "data-severity": severity}, h("span", {class: "dot " + severity}), severity + " " + count(R.findings.filter(f => f.severity === severity).length));
    chip.addEventListener("click", () => { off.has(severity) ? off.delete(severity) : off.add(severity); chip.setAttribute("aria-pressed", String(!off.has(severity))); filter(); });
    return chip;
  });
  const codes = [...new Set(R.findings.map(f => f.code))].sort();
  const code = h("select", {id: "code", "aria-label": "Code"}, h("option", {value: ""}, "all codes"), codes.map(it => h("option", {value: it}, it + " " + (D.codes[it] || ""))));
  const items = R.findings.map((finding, index) => {
    const place = finding.places[0];
    const node = h("details", {class: "finding", id: anchor(finding)},
      h("summary", {}, h("span", {class: "dot " + finding.severity, title: finding.severity}), h("span", {class: "code"}, finding.code), h("span", {class: "message"}, finding.message), h("span", {class: "where"}, where(place))));
    node.addEventListener("toggle", () => { if (node.open && !node.querySelector(".body")) node.append(body(finding, index)); });
    list.append(node);
    const words = [finding.id, anchor(finding), finding.code, finding.class, finding.message, finding.suggestion, finding.explanation, D.codes[finding.code]];
    for (const place of finding.places) { words.push(place.file, place.function, where(place)); for (const frame of place.stack || []) words.push(frame.function); }
    return {node, finding, text: words.filter(Boolean).join("\n").toLowerCase()};
  });
  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let number = 0;
    for (const item of items) {
      const on = !off.has(item.finding.severity) && (!code.value || item.finding.code === code.value) && wanted.every(word => item.text.includes(word));
      item.node.hidden = !on;
      number += on;
    }
    shown.textContent = number === items.length ? plural(number, "finding") : count(number) + " of " + plural(items.length, "finding");
  }
  search.addEventListener("input", filter);
  code.addEventListener("change", filter);
  part.append(h("div", {class: "tools"}, search, chips, codes.length > 1 ? code : null, shown), list);
  filter();
  function open() {
    const item = items.find(it => "#" + it.node.id === decodeURIComponent(location.hash));
    if (!item) return;
    if (item.node.hidden) { search.value = ""; code.value = ""; off.clear(); for (const chip of chips) chip.setAttribute("aria-pressed", "true"); filter(); }
    item.node.open = true;
    item.node.scrollIntoView();
  }
  addEventListener("hashchange", open);
  setTimeout(open);
  if (items.length === 1) items[0].node.open = true;
}

function body(finding, index) {
  const more = D.findings[index], evidence = finding.evidence, node = h("div", {class: "body"});
  if (more.outcome) node.append(h("p", {class: "outcome"}, capital(more.outcome) + "."));
  if (evidence && evidence.failure.again) node.append(h("p", {class: "muted small"}, "The power fails again while recovery runs, after " + plural(evidence.failure.again.events, "event") + " of it."));
  if (finding.suggestion) node.append(h("p", {class: "help"}, "Help: " + finding.suggestion + "."));
  if (finding.explanation) node.append(h("p", {class: "note"}, capital(finding.explanation) + "."));
  if (more.moment) put(node, h("h3", {}, more.moment.failure === null ? more.moment.of === "files" ? "What happens to these files" : "What happens to these lines" : "The moment of failure"), picture(more.moment));
  const code = snippets(finding, more);
  if (code.length) put(node, h("h3", {}, "Source"), code);
  const calls = stacks(finding, more);
  if (calls.length) put(node, h("h3", {}, "Call stacks"), h("div", {class: "stacks"}, calls));
  if (evidence) {
    const recovery = evidence.recovery, output = (recovery.output || "").replace(/\n$/, "");
    if (output) node.append(h("h3", {}, recovery.kind === "content" ? "What was recovered" : "What " + (recovery.command || "recovery") + " wrote"), h("pre", {class: "out"}, output));
    if (evidence.difference) node.append(h("h3", {}, "Difference to what should have been recovered"), h("pre", {class: "out"}, evidence.difference.split("\n").map(line => h("span", {class: line[0] === "+" ? "plus" : line[0] === "-" ? "minus" : null}, line + "\n"))));
  }
  if (more.facts.length) node.append(h("h3", {}, "What is known"), h("dl", {class: "known"}, more.facts.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
  if ((finding.consequences || []).length) node.append(h("p", {class: "note"}, "Other crashes because of the same bug: " + finding.consequences.map(it => it.kind + (it.signal ? " " + it.signal : it.status !== undefined ? " " + it.status : "")).join(", ") + "."));
  const replay = (evidence || finding.read) && D.out ? "powerfail replay " + finding.id + " --out " + D.out : null;
  put(node, h("h3", {}, "See it again"), replay ? commandLine(replay) : null,
    h("p", {class: "muted small"}, h("a", {href: "#" + anchor(finding)}, "link to this finding"), " · " + finding.class + " · seen " + (finding.count === 1 ? "once" : count(finding.count) + " times") + " · explained by ", h("code", {}, "powerfail explain " + finding.code)));
  return node;
}
const capital = text => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "");
function commandLine(text) {
  const button = h("button", {type: "button"}, "copy");
  button.addEventListener("click", () => { if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => { button.textContent = "copied"; }, () => {}); });
  return h("p", {class: "commandline"}, h("code", {}, text), button);
}

function snippets(finding, more) {
  const files = new Map();
  const add = (file, line, label, first) => {
    const source = file && D.sources[file];
    if (!source || !line) return;
    if (!files.has(file)) files.set(file, new Map());
    const lines = files.get(file);
    if (!lines.has(line)) lines.set(line, []);
    if (!lines.get(line).some(it => it.label === label)) lines.get(line).push({label, first});
  };
  finding.places.forEach((place, number) => {
    add(place.file, place.line, more.places[number].label, number === 0);
    if (place.helper) add(place.helper.file, place.helper.line, (place.helper.function || "a helper") + " does it here, for its caller", false);
  });
  return [...files].map(([file, marks]) => {
    const text = lines_of(file), wanted = new Set();
    for (const line of marks.keys()) for (let n = line - 3; n <= line + 3; n++) if (n >= 1 && n <= text.length) wanted.add(n);
    return h("div", {class: "snippet"}, h("div", {class: "path"}, file), h("div", {class: "lines"}, numbered(text, [...wanted].sort((a, b) => a - b), line => {
      const labels = marks.get(line);
      return labels && {class: "at" + (labels.some(it => it.first) ? " first" : ""), after: labels.map(it => h("div", {class: "says" + (it.first ? " first" : "")}, "↑ " + it.label))};
    })));
  });
}
const split = new Map();
function lines_of(file) { if (!split.has(file)) split.set(file, D.sources[file].text.split("\n")); return split.get(file); }
function numbered(text, numbers, mark) {
  const out = [];
  let last = null;
  for (const n of numbers) {
    if (last !== null && n !== last + 1) out.push(h("div", {class: "gap"}, "⋯"));
    const what = mark(n);
    out.push(h("div", {class: what ? what.class : null}, h("span", {class: "n"}, String(n)), h("span", {}, text[n - 1].replace(/\r$/, "") || " "), what && what.end ? what.end : null));
    if (what && what.after) out.push(what.after);
    last = n;
  }
  return out;
}

// What calls it starts the program.
const isMain = frame => frame.function === "main" || (frame.function || "").endsWith("::main");
// Frames of libraries that follow each other are one line.
function folded(frames) {
  const out = [];
  for (const frame of frames) {
    const last = out[out.length - 1];
    if (!frame.trusted) { out.push(frame); continue; }
    const module = (frame.module || "a library").split(".so")[0];
    if (last && last.count) { last.count++; last.names += "\n" + (frame.function || "?"); if (!last.modules.split(", ").includes(module)) last.modules += ", " + module; }
    else out.push({count: 1, modules: module, names: frame.function || "?"});
  }
  return out;
}
function stacks(finding, more) {
  const seen = new Set(), out = [];
  finding.places.forEach((place, number) => {
    const frames = place.stack || [];
    const main = frames.findIndex(isMain);
    // What the compiler has put into the program from a library says nothing.
    const own = new Set(frames.filter(it => !it.trusted).map(it => it.module));
    const used = (main < 0 ? frames : frames.slice(0, main + 1)).filter(it => !it.trusted || !own.has(it.module));
    const key = JSON.stringify(used);
    if (!used.length || seen.has(key)) return;
    seen.add(key);
    out.push(h("div", {class: "stack"}, h("h4", {}, capital(more.places[number].label)), h("ol", {}, folded(used).slice(0, 24).map(frame => frame.count ?
      h("li", {class: "trusted", title: frame.names}, h("span", {}, plural(frame.count, "frame") + " in " + frame.modules)) :
      h("li", {title: frame.file || frame.module}, h("span", {}, frame.function || "?"), h("span", {}, frame.file ? where(frame) : (frame.module || "") + "+0x" + frame.offset.toString(16))))),
      used.length > 24 ? h("p", {class: "muted small"}, plural(used.length - 24, "more frame")) : null));
  });
  return out;
}

// ---- the moment of failure: rows over events
function picture(moment) {
  const ROW = 34, TOP = 34, LEFT = 14, rows = moment.rows, marks = moment.marks, ofFiles = moment.of === "files";
  const labelWidth = 24 + 6.7 * Math.max(...rows.map(it => it.label.length), rows.some(it => it.outcome === "survives") ? 14 : 9);
  const room = Math.min(main.clientWidth, 1180) - labelWidth - 130;
  const STEP = Math.max(28, Math.min(90, room / (marks.length + 2)));
  const before = moment.failure === null ? marks.length : marks.findIndex(it => it.event >= moment.failure);
  const cut = before < 0 ? marks.length : before;
  const x = i => LEFT + (i + .5) * STEP + (moment.failure !== null && i >= cut ? STEP : 0);
  const failX = LEFT + (cut + .5) * STEP, y = row => TOP + (row + .5) * ROW;
  const endX = x(marks.length - 1) + STEP / 2 + (moment.failure !== null && cut === marks.length ? STEP : 0);
  const readX = endX + 26, readWidth = moment.reads.length ? 40 : 0;
  const width = Math.max(endX + (readWidth ? readWidth + 14 : 6), 120, moment.failure !== null && failX <= 150 ? failX + 150 : 0), height = TOP + rows.length * ROW + 30;
  const bottom = TOP + rows.length * ROW;
  const states = {durable: "durable", survives: moment.failure === null ? "" : "open, survives", lost: "lost"};
  const labels = s("svg", {class: "labels", width: labelWidth, height: height}, s("text", {x: 10, y: 20}, ofFiles ? "name or block" : "line"),
    rows.map((row, i) => [s("text", {class: "strong", x: 10, y: y(i) + (moment.failure === null ? 4 : -1)}, row.label),
      moment.failure === null ? null : s("text", {x: 10, y: y(i) + 12, class: row.outcome === "lost" ? "bad" : null}, states[row.outcome])]));
  const plot = s("svg", {width: width, height: height, role: "img", "aria-label": (ofFiles ? "Operations on the files" : "Events on the lines") + " of this finding before and after the failure"});
  if (moment.failure !== null) plot.append(s("rect", {class: "zone", x: failX, y: TOP - 8, width: width - failX, height: bottom - TOP + 16}));
  rows.forEach((row, i) => {
    plot.append(s("line", {class: "row", x1: 0, x2: width, y1: y(i), y2: y(i)}));
    let open = null, at = 0;
    const own = marks.map((mark, n) => [n, mark]).filter(([, mark]) => mark.rows.some(it => it[0] === i));
    const pieces = [];
    for (const [n, mark] of own) {
      const now = mark.rows.find(it => it[0] === i)[1];
      const was = open === null ? (isChange(mark) ? Math.max(0, now - 1) : now) : open;
      pieces.push([at, x(n), was, n]);
      at = x(n); open = now;
    }
    pieces.push([at, endX, open === null ? row.open : open, marks.length]);
    for (const [from, to, number] of pieces) {
      const cutAt = moment.failure === null ? to : Math.min(to, failX);
      if (from < cutAt) band(from, cutAt, number, false);
      if (moment.failure !== null && to > failX) band(Math.max(from, failX), to, number, true);
    }
    function band(from, to, number, later) {
      const lost = !later && row.outcome === "lost" && number > row.kept;
      plot.append(s("line", {class: (number ? lost ? "lostband" : "openband" : "durable") + (later ? " later" : ""), x1: from, x2: to, y1: y(i), y2: y(i)}));
    }
  });
  const detail = h("p", {class: "chosen-mark muted"}, "Choose a mark to see its event.");
  let chosen = null;
  const position = new Map();
  marks.forEach((mark, n) => {
    const later = moment.failure !== null && n >= cut, group = s("g", {class: later ? "later" : null});
    const own = mark.rows.map(it => it[0]), shape = mark.shape;
    position.set(mark.event, n);
    if (shape === "fence") {
      const top = y(Math.min(...own)) - 13, end = y(Math.max(...own)) + 13;
      group.append(s("line", {class: "fence", x1: x(n), x2: x(n), y1: top, y2: end}), s("rect", {class: "fencehead", x: x(n) - 4, y: top - 3, width: 8, height: 6}));
    } else for (const row of own) group.append(glyph(shape, x(n), y(row)));
    const text = "event " + mark.event + " · " + mark.kind + (D.trace && D.trace.threads > 1 ? " · thread " + mark.thread : "") + (mark.text ? " · " + mark.text : "") + (mark.place ? " · " + mark.place : "");
    const hit = s("rect", {class: "hit", x: x(n) - STEP / 2, y: TOP - 8, width: STEP, height: bottom - TOP + 16, tabindex: 0, role: "button", "aria-label": text}, s("title", {}, text));
    const choose = () => { if (chosen) chosen.classList.remove("chosen"); chosen = hit; hit.classList.add("chosen"); detail.textContent = text; detail.classList.remove("muted"); };
    hit.addEventListener("click", choose);
    hit.addEventListener("focus", choose);
    plot.append(group, hit);
    if (n % 2 === 0 || marks.length < 8) plot.append(s("text", {x: x(n), y: bottom + 18, "text-anchor": "middle"}, mark.event >= 1e6 ? (mark.event / 1e6).toFixed(2) + "M" : mark.event));
  });
  if (moment.failure !== null) plot.append(s("line", {class: "failure", x1: failX, x2: failX, y1: TOP - 12, y2: bottom + 8}),
    s("text", {class: "bad", x: failX, y: 15, "text-anchor": failX > 150 ? "end" : "start"}, (innerWidth < 600 ? "fails before " : "power fails before ") + moment.failure));
  moment.reads.forEach((read, n) => {
    const ry = y(read.row) + (n % 2 ? 7 : -1) , saw = read.saw === null ? undefined : position.get(read.saw);
    if (saw !== undefined) { const sx = x(saw), sy = y(read.row); plot.append(s("path", {class: "join", d: `M${readX} ${ry}C${(readX + sx) / 2} ${sy - 24} ${(readX + sx) / 2} ${sy - 24} ${sx} ${sy}`})); }
    const text = "recovery reads " + (read.bytes || "it") + " at " + (read.place || "an unknown place") + (saw !== undefined ? ", which event " + read.saw + " stored" : read.saw_floor ? ", which was surely durable before" : "") + (read.decisive ? "; with another value it succeeds" : "");
    const mark = s("rect", {class: "load" + (read.decisive ? " decisive" : ""), x: readX - 5, y: ry - 5, width: 10, height: 10, tabindex: 0, role: "button", "aria-label": text}, s("title", {}, text));
    const choose = () => { detail.textContent = text; detail.classList.remove("muted"); };
    mark.addEventListener("click", choose);
    mark.addEventListener("focus", choose);
    plot.append(mark);
  });
  if (moment.reads.length) plot.append(s("text", {x: readX, y: bottom + 18, "text-anchor": "middle"}, "reads"));
  const key = (shape, label) => h("span", {}, s("svg", {width: 16, height: 14}, shape), label);
  const line = name => s("line", {class: name, x1: 0, x2: 16, y1: 7, y2: 7});
  const legend = h("div", {class: "legend"}, ofFiles ? [key(glyph("store", 8, 7), "change of data"), key(glyph("name", 8, 7), "change of a name")] : [key(glyph("store", 8, 7), "store"), key(glyph("flush", 8, 7), "flush")],
    key([s("line", {class: "fence", x1: 8, x2: 8, y1: 1, y2: 13}), s("rect", {class: "fencehead", x: 4, y: 0, width: 8, height: 5})], ofFiles ? "fsync, fdatasync, msync or sync" : "fence or sync that makes stores durable"),
    key(line("durable"), "durable"), key(line("openband"), "open"), rows.some(it => it.outcome === "lost") ? key(line("lostband"), "lost") : null,
    moment.reads.length ? key(s("rect", {class: "load", x: 3, y: 2, width: 10, height: 10}), "read of recovery, joined to the store that it sees") : null);
  const scroll = h("div", {class: "scroll"}, h("div", {class: "picture"}, labels, plot));
  requestAnimationFrame(() => { if (moment.failure !== null) scroll.scrollLeft = Math.max(0, labelWidth + failX - scroll.clientWidth * .7); });
  const left = [];
  if (moment.marks_left_out) left.push(plural(moment.marks_left_out, ofFiles ? "operation" : "event") + " on these " + (ofFiles ? "files" : "lines") + " between the first and the last ones are not shown");
  if (moment.rows_left_out) left.push(ofFiles ? count(moment.rows_left_out) + " more names and blocks not shown" : plural(moment.rows_left_out, "more line") + " not shown");
  return [scroll, legend, detail, left.length ? h("p", {class: "muted small"}, capital(left.join("; ")) + ".") : null];
}
const isChange = mark => mark.shape === "store" || mark.shape === "name";
function glyph(shape, x, y) {
  return shape === "store" ? s("circle", {class: "store", cx: x, cy: y, r: 4.5}) : shape === "name" ? s("path", {class: "store", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z`}) : s("path", {class: "flush", d: `M${x - 5.5} ${y - 4.5}h11l-5.5 9.5z`});
}

// ---- the whole trace
function numbers(text, Type) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Type(bytes.buffer);
}
function trace() {
  const t = D.trace;
  if (!t || !t.buckets) return;
  const part = section("trace", "Trace", undefined);
  if (files) part.append(h("p", {class: "muted"}, plural(t.total_stores, "change") + " of data, " + plural(t.total_flushes, "change") + " of names, " + plural(t.total_fences, "sync") + " of " + plural(t.threads, "thread") + " below " + t.trees.join(", ") + ". " + (t.is_whole ? "" : "The trace ends early. ") + "Red ticks are findings. Drag to zoom."));
  else part.append(h("p", {class: "muted"}, plural(t.total_stores, "store") + ", " + plural(t.total_flushes, "flush").replace("flushs", "flushes") + ", " + plural(t.total_fences, "fence") + " of " + plural(t.threads, "thread") + " in " + plural(t.pools.length, "pool") + ". " + (t.is_whole ? "" : "The trace ends early. ") + "Red ticks are findings. Drag to zoom."));
  const panel = h("div", {class: "panel"});
  part.append(panel);
  whenSeen(panel, () => timeline(panel, t));
}
function timeline(panel, t) {
  const open = numbers(t.open, Uint32Array), states = numbers(t.states, Float32Array);
  const kinds = [numbers(t.stores, Uint32Array), numbers(t.flushes, Uint32Array), numbers(t.fences, Uint32Array)];
  const fails = R.findings.map((finding, index) => ({finding, event: D.findings[index].moment && D.findings[index].moment.failure !== null ? D.findings[index].moment.failure : (finding.places.find(it => it.event !== undefined) || {}).event})).filter(it => it.event !== undefined && !((it.finding.evidence || {}).trace));
  let from = 0, to = t.buckets;
  // The axis has room for a large number of states.
  const HEIGHT = files ? 170 : 250, KINDS = HEIGHT - 10, AXIS = files ? 46 : 64;
  const canvas = h("canvas", {height: HEIGHT, role: "img", "aria-label": files ? "Operations that are not surely durable, over the run" : "Open lines and crash states over the events of the run"}), range = h("span", {class: "range muted small", id: "range"}), at = h("p", {class: "chosen-mark muted", id: "trace-at"}, "");
  const zoom = (center, factor) => { const half = (to - from) * factor / 2; set(center - half, center + half); };
  const set = (a, b) => {
    const least = Math.min(16, t.buckets);
    if (b - a < least) { const middle = (a + b) / 2; a = middle - least / 2; b = a + least; }
    if (a < 0) { b -= a; a = 0; } if (b > t.buckets) { a -= b - t.buckets; b = t.buckets; }
    from = Math.max(0, Math.floor(a)); to = Math.min(t.buckets, Math.ceil(b)); draw();
  };
  const button = (id, label, title, act) => h("button", {type: "button", id: id, title: title, onclick: act}, label);
  panel.append(h("div", {class: "tools"}, button("zoom-in", "+", "Zoom in", () => zoom((from + to) / 2, .5)), button("zoom-out", "−", "Zoom out", () => zoom((from + to) / 2, 2)),
    button("left", "←", "Earlier", () => { const by = (to - from) / 2; set(from - by, to - by); }), button("right", "→", "Later", () => { const by = (to - from) / 2; set(from + by, to + by); }),
    button("zoom-reset", "whole run", "Show the whole run", () => set(0, t.buckets)), range), canvas, at,
    h("div", {class: "legend"}, (files ? [["--open", "operations that are not surely durable"], ["--text", "changes of data"], ["--flush", "changes of names"], ["--muted", "syncs"]] :
      [["--open", "open lines"], ["--accent", "crash states, on a logarithmic scale"], ["--text", "stores"], ["--flush", "flushes"], ["--muted", "fences"]]).map(([tint, label]) => h("span", {}, swatch(tint), label))));
  let drag = null;
  const bucketAt = event => { const box = canvas.getBoundingClientRect(); return from + (event.clientX - box.left - AXIS) / (box.width - AXIS - 6) * (to - from); };
  canvas.addEventListener("pointerdown", event => { drag = bucketAt(event); });
  canvas.addEventListener("pointermove", event => {
    const b = Math.floor(bucketAt(event));
    if (b >= 0 && b < t.buckets) { const first = b * t.bucket_events; at.textContent = (t.bucket_events === 1 ? "event " + count(first) : "events " + count(first) + " to " + count(first + t.bucket_events - 1)) + " · " + (files ? plural(open[b], "operation") + " not surely durable" : plural(open[b], "open line") + " · " + power(states[b]) + " crash states"); }
    if (drag !== null) draw(drag, bucketAt(event));
  });
  addEventListener("pointerup", event => { if (drag === null) return; const end = bucketAt(event), start = drag; drag = null; if (Math.abs(end - start) > (to - from) / 100) set(Math.min(start, end), Math.max(start, end)); else draw(); });
  canvas.addEventListener("dblclick", () => set(0, t.buckets));
  function draw(selectA, selectB) {
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = HEIGHT;
    if (!width) return;
    canvas.width = width * scale; canvas.height = height * scale;
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    const x0 = AXIS, w = width - AXIS - 6, font = "11px ui-monospace,monospace";
    c.font = font;
    const columns = Math.max(1, Math.floor(w)), mostOpen = [], mostStates = [], sums = [[], [], []];
    let topOpen = 1, topStates = 1, topKind = 1;
    for (let i = 0; i < columns; i++) {
      const a = Math.floor(from + (to - from) * i / columns), b = Math.max(a + 1, Math.floor(from + (to - from) * (i + 1) / columns));
      let o = 0, st = 0; const k = [0, 0, 0];
      for (let n = a; n < b && n < t.buckets; n++) { if (open[n] > o) o = open[n]; if (states[n] > st) st = states[n]; for (let j = 0; j < 3; j++) k[j] += kinds[j][n]; }
      mostOpen.push(o); mostStates.push(st); topOpen = Math.max(topOpen, o); topStates = Math.max(topStates, st);
      let sum = 0; for (let j = 0; j < 3; j++) { k[j] /= b - a; sums[j].push(k[j]); sum += k[j]; } topKind = Math.max(topKind, sum);
    }
    const axis = (y, h, top, label) => { c.fillStyle = color("--muted"); c.textAlign = "right"; c.fillText(label(top), x0 - 6, y + 9); c.fillText(label(0), x0 - 6, y + h); c.strokeStyle = color("--line"); c.beginPath(); c.moveTo(x0, y + h + .5); c.lineTo(x0 + w, y + h + .5); c.stroke(); };
    c.fillStyle = color("--open"); c.globalAlpha = .55;
    for (let i = 0; i < columns; i++) { const hh = mostOpen[i] / topOpen * 86; c.fillRect(x0 + i * w / columns, 104 - hh, w / columns + .5, hh); }
    c.globalAlpha = 1;
    axis(18, 86, topOpen, v => compact(v));
    if (!files) {
      c.strokeStyle = color("--accent"); c.lineWidth = 1.4; c.beginPath();
      mostStates.forEach((v, i) => { const y = 194 - v / topStates * 76; i ? c.lineTo(x0 + (i + .5) * w / columns, y) : c.moveTo(x0, y); });
      c.stroke(); c.lineWidth = 1;
      axis(118, 76, topStates, power);
    }
    const tints = ["--text", "--flush", "--muted"];
    for (let i = 0; i < columns; i++) { let y = KINDS; for (let j = 0; j < 3; j++) { const hh = sums[j][i] / topKind * 32; c.fillStyle = color2(tints[j]); c.globalAlpha = .75; c.fillRect(x0 + i * w / columns, y - hh, w / columns + .5, hh); y -= hh; } }
    c.globalAlpha = 1; c.fillStyle = color("--error");
    for (const fail of fails) { const b = fail.event / t.bucket_events; if (b >= from && b <= to) c.fillRect(x0 + (b - from) / (to - from) * w - .75, 2, 1.5, 12); }
    if (selectA !== undefined) { c.fillStyle = color("--accent"); c.globalAlpha = .18; const a = x0 + (selectA - from) / (to - from) * w, b = x0 + (selectB - from) / (to - from) * w; c.fillRect(Math.min(a, b), 14, Math.abs(b - a), KINDS - 14); c.globalAlpha = 1; }
    range.textContent = "events " + count(from * t.bucket_events) + " to " + count(Math.min(t.events, to * t.bucket_events) - 1) + (t.bucket_events > 1 ? ", " + plural(t.bucket_events, "event") + " at a time" : "");
    range.dataset.from = from * t.bucket_events; range.dataset.to = to * t.bucket_events;
  }
  let cache = {}, cachedTheme = null;
  const color2 = name => { if (cachedTheme !== root.dataset.theme) { cache = {}; cachedTheme = root.dataset.theme; } return cache[name] || (cache[name] = color(name)); };
  redraws.push(draw);
  new ResizeObserver(() => draw()).observe(canvas);
  draw();
}
const swatch = name => s("svg", {width: 12, height: 12}, s("rect", {x: 1, y: 1, width: 10, height: 10, rx: 2, style: "fill:var(" + name + ")"}));
const compact = v => v >= 1e9 ? "10^" + Math.round(Math.log10(v)) : v >= 1e6 ? (v / 1e6).toFixed(1) + "M" : v >= 1e4 ? Math.round(v / 1e3) + "k" : String(v);
const decade = e => "<" + (e < 9 ? compact(10 ** (e + 1)) : "10^" + (e + 1));
const power = v => v < 6 ? count(Math.round(10 ** v)) : "10^" + v.toFixed(1);

// ---- failure points as a flame graph
// Of one call stack some crashes stand for the others; lost and reordered lines are explored at each moment.
const stackOutcome = stack => {
  const p = stack.prefix || none, l = stack.lost_lines || none;
  return p.failed + l.failed ? "failed" : !(p.tried + l.tried) ? "untried" : l.sampled || l.tried < l.points || (p.points && !p.tried) ? "part" : "passed";
};
const combined = outcomes => outcomes.has("failed") ? outcomes.size > 1 ? "some" : "failed" : outcomes.size === 1 ? [...outcomes][0] : "part";
const OUTCOMES = [["failed", "recovery fails"], ["some", "fails in some calls"], ["passed", "recovery succeeds"], ["part", "succeeds, but not all was tried"], ["untried", "not tried"]];
const TINTS = {failed: "--o-failed", some: "--o-some", passed: "--o-passed", part: "--o-part", untried: "--o-untried"};
const sum = (a, b) => ({points: (a.points || 0) + (b.points || 0), tried: (a.tried || 0) + (b.tried || 0), sampled: (a.sampled || 0) + (b.sampled || 0), failed: (a.failed || 0) + (b.failed || 0)});
const none = {points: 0, tried: 0, sampled: 0, failed: 0};
// What was tried: crashes with everything before them durable, and moments at which something is lost.
const tells = of => {
  const parts = [];
  if (of.prefix.points) parts.push(plural(of.prefix.points, "failure point") + " with nothing lost, " + count(of.prefix.tried) + " tried, " + count(of.prefix.failed) + " failed");
  if (of.lost.points) parts.push(plural(of.lost.points, "moment") + " with losses, " + count(of.lost.tried) + " tried, " + count(of.lost.failed) + " failed");
  return parts.join("; ") || "nothing was tried";
};
function flame() {
  const coverage = D.coverage;
  if (!coverage || !coverage.stacks.length) return;
  const part = section("points", "Failure points", undefined);
  part.append(h("p", {class: "muted"}, "Call stacks at which the power was let fail, callers above. The width is the number of moments. Choose a frame to enlarge it."));
  const panel = h("div", {class: "panel"});
  part.append(panel, h("div", {class: "legend"}, OUTCOMES.map(([name, label]) => h("span", {}, h("span", {class: "dot", style: "background:var(" + TINTS[name] + ")"}), label))));
  whenSeen(panel, () => {
    const newNode = (name, frame) => ({name, frame, children: new Map(), tries: none, prefix: none, lost: none, outcomes: new Set()});
    const count_in = (node, stack, outcome) => { node.prefix = sum(node.prefix, stack.prefix || none); node.lost = sum(node.lost, stack.lost_lines || none); node.tries = sum(node.prefix, node.lost); node.outcomes.add(outcome); };
    const top = newNode("all", null);
    for (const stack of coverage.stacks) {
      const outcome = stackOutcome(stack);
      let node = top, lastModule = null;
      count_in(node, stack, outcome);
      const frames = stack.stack.map(it => coverage.frames[it]), main = frames.findIndex(isMain);
      for (const frame of (main < 0 ? frames : frames.slice(0, main + 1)).reverse()) {
        const name = frame.trusted ? frame.module || "library" : frame.function || (frame.module || "?") + "+0x" + frame.offset.toString(16);
        // The frames of one library are one, and those of a library inside the program itself say nothing.
        if (frame.trusted && lastModule === name) continue;
        lastModule = frame.module || name;
        const key = name + "\n" + (frame.trusted ? "" : (frame.file || "") + ":" + (frame.line || ""));
        if (!node.children.has(key)) node.children.set(key, newNode(name, frame));
        node = node.children.get(key);
        count_in(node, stack, outcome);
      }
    }
    // What starts the program says nothing.
    let start = top;
    const only = node => node.children.size === 1 ? [...node.children.values()][0] : null;
    while (only(start) && only(start).children.size) start = only(start);
    const path = h("p", {class: "small muted", id: "flame-at"}), graph = h("div", {class: "flame", id: "flame"});
    panel.append(path, graph);
    const show = node => {
      graph.textContent = "";
      const width = graph.clientWidth || 300;
      let deepest = 0;
      const place = (node, x, w, depth) => {
        if (w < 2 || depth > 40) return;
        deepest = Math.max(deepest, depth);
        const frame = node.frame, tries = node.tries;
        const text = node.name + (frame && frame.file && !frame.trusted ? " " + where(frame) : "");
        graph.append(h("button", {type: "button", class: combined(node.outcomes), style: `left:${x}px;width:${w}px;top:${depth * 20}px`, title: text + "\n" + tells(node), onclick: () => show(node === current && node !== start ? start : node)}, w > 26 ? text : ""));
        let cx = x;
        const children = [...node.children.values()].sort((a, b) => b.tries.points - a.tries.points);
        for (const child of children) { const cw = w * child.tries.points / Math.max(1, tries.points); place(child, cx, cw, depth + 1); cx += cw; }
      };
      current = node;
      place(node, 0, width, 0);
      graph.style.height = (deepest + 1) * 20 + "px";
      path.textContent = node.name + ": " + tells(node);
    };
    let current = start;
    show(start);
    let last = graph.clientWidth;
    new ResizeObserver(() => { if (graph.clientWidth !== last) { last = graph.clientWidth; show(current); } }).observe(graph);
  });
}

// ---- sources: what was tried on which line
function sources() {
  const files = new Map();
  const line = (file, number) => { if (!files.has(file)) files.set(file, new Map()); const lines = files.get(file); if (!lines.has(number)) lines.set(number, {prefix: none, lost: none, findings: [], outcomes: new Set()}); return lines.get(number); };
  for (const stack of (D.coverage || {stacks: []}).stacks) {
    const frame = stack.stack.map(it => D.coverage.frames[it]).find(it => !it.trusted && it.file && it.line);
    if (frame) { const of = line(frame.file, frame.line); of.prefix = sum(of.prefix, stack.prefix || none); of.lost = sum(of.lost, stack.lost_lines || none); of.outcomes.add(stackOutcome(stack)); }
  }
  for (const finding of R.findings) for (const place of finding.places.slice(0, 3)) if (place.file && place.line) { const of = line(place.file, place.line); if (!of.findings.includes(finding)) of.findings.push(finding); }
  if (!files.size) return;
  const part = section("sources", "Sources", files.size);
  part.append(h("p", {class: "muted"}, "Lines before which the power was let fail, and lines of findings. The colour at the line number is the outcome."));
  const list = h("div", {class: "list"});
  for (const [file, lines] of [...files].sort((a, b) => b[1].size - a[1].size)) {
    let all = none;
    const outcomes = new Set(), own = new Set();
    for (const of of lines.values()) { all = sum(all, sum(of.prefix, of.lost)); for (const outcome of of.outcomes) outcomes.add(outcome); for (const finding of of.findings) own.add(finding); }
    const number = own.size;
    const node = h("details", {class: "finding source"}, h("summary", {}, h("span", {class: "dot", style: "background:var(" + TINTS[outcomes.size ? combined(outcomes) : "untried"] + ")"}), h("span", {class: "code"}, plural(lines.size, "line")), h("span", {class: "message mono"}, file), h("span", {class: "where"}, (all.points ? plural(all.points, "moment") + ", " + count(all.tried) + " tried" : "") + (number ? (all.points ? ", " : "") + plural(number, "finding") : ""))));
    node.addEventListener("toggle", () => { if (node.open && !node.querySelector(".body")) node.append(listing(file, lines)); });
    list.append(node);
  }
  part.append(list);
}
function listing(file, lines) {
  const source = D.sources[file], node = h("div", {class: "body"});
  const marked = [...lines.keys()].sort((a, b) => a - b);
  const mark = n => {
    const of = lines.get(n);
    if (!of) return null;
    const tries = sum(of.prefix, of.lost);
    return {class: tries.points ? combined(of.outcomes) : "", end: [tries.points ? h("span", {class: "muted small", style: "margin-left:14px", title: tells(of)}, count(tries.tried) + " of " + count(tries.points) + " tried" + (tries.failed ? ", " + count(tries.failed) + " failed" : "")) : null, of.findings.map(it => h("a", {class: "mark", href: "#" + anchor(it)}, it.code))]};
  };
  if (!source) {
    node.append(h("p", {class: "muted small"}, "The file was not kept with the report."), h("div", {class: "lines"}, marked.map(n => { const what = mark(n); return h("div", {class: what.class}, h("span", {class: "n"}, String(n)), what.end); })));
    return node;
  }
  const text = lines_of(file), box = h("div", {class: "lines"});
  const near = new Set();
  for (const line of marked) for (let n = line - 4; n <= line + 4; n++) if (n >= 1 && n <= text.length) near.add(n);
  const draw = all => { box.textContent = ""; box.append(...numbered(text, all ? text.map((_, i) => i + 1) : [...near].sort((a, b) => a - b), mark).flat(9)); };
  let whole = false;
  const button = h("button", {type: "button", onclick: () => { whole = !whole; button.textContent = whole ? "only these lines" : "whole file"; draw(whole); }}, "whole file");
  draw(false);
  node.append(h("div", {class: "tools"}, button), h("div", {class: "scroll"}, box));
  return node;
}

// ---- state space, and what was not checked
function space() {
  const t = D.trace, rows = [];
  const add = (name, value) => { if (value !== undefined && value !== null) rows.push(h("tr", {}, h("td", {}, name), h("td", {class: "num"}, value))); };
  const e = T.exploration, g = T.eager, r = T.races, f = T.tree;
  if (f) { add("failure points of which every crash state was tried", count(f.exhausted_points)); add("of which a selection was tried", count(f.sampled_points)); add("crash states that recovery was tried on", count(f.states)); add("crash states that leave the same tree as another one", count(f.repeated)); add("crash states that differ from another one only in files that recovery does not open", count(f.unread || 0)); add("crash states of power failures during recovery", count(f.second_states || 0)); }
  if (e) { add("moments that cover all crash states", count(e.failure_points)); add("explored exhaustively", count(e.exhaustive)); add("of these, needed no run", count(e.unchanged)); add("sampled", count(e.sampled)); add("not tried", count(e.not_tried)); add("failures during recovery that were explored", count(e.second_failures)); add("executions of recovery", count(e.executions)); add("executions saved", count(e.executions_saved)); add("crash states that trying each would take", big(e.states)); }
  if (g) { add("segments", count(g.segments)); add("combinations of what may survive", big(g.combinations)); add("crash states run", count(g.run)); add("of these, recovery fails", count(g.failed)); add("update behaviours covered", count(g.groups_covered) + " of " + count(g.groups)); }
  if (r) { add("failure points at which reads were watched", count(r.watched + r.unchanged) + " of " + count(r.failure_points)); add("unsafe pairs of reader and writer", count(r.pairs)); add("of these, confirmed", count(r.confirmed)); }
  const hasSpace = t && t.state_space.length && !f;
  if (!rows.length && !hasSpace) return;
  const part = section("space", "State space", undefined);
  if (hasSpace) {
    const most = Math.max(...t.state_space.map(it => it[1])), moments = t.state_space.reduce((n, it) => n + it[1], 0);
    part.append(h("p", {class: "muted"}, plural(moments, "moment") + (moments === 1 ? " covers" : " cover") + " all crash states of the run" + (t.largest ? "; the most states, " + power(t.largest[1]) + ", can be left before event " + count(t.largest[0]) : "") + "." + (t.state_space.length > 1 ? " The bars are moments by their number of states." : "")));
    if (t.state_space.length > 1) part.append(h("div", {class: "panel"}, h("div", {class: "bars"}, t.state_space.map(([exponent, number]) => h("div", {title: plural(number, "moment") + " with " + decade(exponent) + " states"}, count(number), h("i", {style: "height:" + Math.max(2, 70 * number / most) + "px"}), decade(exponent))))));
  }
  if (rows.length) part.append(h("div", {class: "wide"}, h("table", {}, h("tbody", {}, rows))));
}
function unchecked() {
  const part = section("unchecked", "Not checked", undefined), items = [];
  const e = T.exploration, r = T.races;
  if (D.not_checked) items.push(D.not_checked);
  if (e && e.not_tried) items.push(plural(e.not_tried, "moment") + " of " + count(e.failure_points) + " were not explored for lost and reordered lines");
  if (e && e.sampled) items.push(plural(e.sampled, "moment") + " were only sampled");
  if (r && r.refused) items.push("reads could not be watched at " + plural(r.refused, "failure point"));
  if (r && r.not_tried) items.push("reads were not watched at " + plural(r.not_tried, "failure point"));
  if (T.tree && T.tree.sampled_points) items.push("only a selection of the crash states was tried at " + plural(T.tree.sampled_points, "failure point"));
  if (!e && !T.tree && T.recovery_runs) items.push("lost and reordered lines were not explored");
  if (!r && !T.tree) items.push("the reads of recovery were not watched (--races)");
  if (!T.recovery_runs) items.push("recovery was not run");
  if (T.suppressed) items.push(plural(T.suppressed, "finding") + " suppressed by powerfail.toml");
  for (const note of R.notes || []) items.push(note);
  if (!D.coverage) items.push("which failure points were tried was not kept with this report");
  if (!items.length) items.push("within this run nothing was left out; other inputs, and other orders of threads, are other runs");
  part.append(h("ul", {class: "plain"}, items.map(it => h("li", {}, capital(it) + "."))));
  const untried = [];
  for (const stack of (D.coverage || {}).stacks || []) {
    const frame = stack.stack.map(it => D.coverage.frames[it]).find(it => !it.trusted), place = frame ? frame.function ? frame.function + " " + where(frame) : where(frame) + "+0x" + frame.offset.toString(16) : "inside libraries";
    for (const [tries, what] of [[stack.prefix || none, "with nothing lost"], [stack.lost_lines || none, "with losses"]]) if (tries.tried < tries.points) untried.push({place, what, left: tries.points - tries.tried, points: tries.points});
  }
  if (!untried.length) return;
  untried.sort((a, b) => b.left - a.left);
  put(part, h("h3", {}, "Call stacks with moments that were not tried"), h("div", {class: "wide"}, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "place"), h("th", {}, "crashes"), h("th", {class: "num"}, "not tried"), h("th", {class: "num"}, "of"))),
    h("tbody", {}, untried.slice(0, 30).map(it => h("tr", {}, h("td", {class: "mono"}, it.place), h("td", {}, it.what), h("td", {class: "num"}, count(it.left)), h("td", {class: "num"}, count(it.points))))))), untried.length > 30 ? h("p", {class: "muted small"}, count(untried.length - 30) + " more") : null);
}

applyTheme();
summary();
findings();
trace();
flame();
sources();
space();
unchecked();
document.getElementById("footer").append("powerfail " + R.powerfail, T.schedules ? " · " + plural(T.schedules, "recording") + " of the workload" : "", " · the page needs no network");
})();
