/** The timeline: lanes of bars in a plotly figure, drawn again for each view so that no bar is thinner than a pixel. */

const kinds = ["kernel", "memcpy", "memset", "graph"];
const causeNames = ["sync_wait", "sync_refill", "sync_overhead", "host", "device", "alloc", "tail", "unknown"];
const callColours = ["other", "launch", "sync_wait", "alloc", "wait"];
const callWords = ["call", "launch", "blocking call", "allocation", "wait on the device"];
const thinnest = 1.5;
const heights = {ranges: 18, syncs: 22, calls: 16, gaps: 34, ops: 20};

/** One lane with its columns as arrays; times in ns from the start of the window. */
class Lane {
  constructor(raw, top) {
    Object.assign(this, {kind: raw.kind, group: raw.group, title: raw.title});
    this.top = top;
    this.bottom = top + heights[raw.kind];
    const n = this.n = raw.start.length;
    const lengths = column(raw.length, n);
    this.start = new Float64Array(n);
    this.end = new Float64Array(n);
    this.lastEnd = new Float64Array(n);
    let at = 0, last = -Infinity;
    for (let i = 0; i < n; i += 1) {
      at += raw.start[i];
      this.start[i] = at;
      this.end[i] = at + lengths[i];
      this.lastEnd[i] = last = Math.max(last, this.end[i]);
    }
    for (const [name, values] of Object.entries(raw)) {
      if (name === "causes") this.causes = values.map((cause) => column(cause, n));
      else if (!(name in this)) this[name] = column(values, n);
    }
  }

  /** Bars [first, last) that may touch [from, to). */
  within(from, to) {
    return [search(this.lastEnd, from, this.n), search(this.start, to, this.n)];
  }

  colour(i) {
    if (this.kind === "ops") return kinds[this.category[i]];
    if (this.kind === "ranges") return this.category[i] ? "step" : "range";
    return callColours[this.category[i]];
  }

  /** How much of a bar is filled, 0..1. */
  filledOf(i) {
    return this.count[i] === 1 ? this.end[i] - this.start[i] : this.filled[i];
  }
}

/** First index whose value is at least x, in ascending values. */
function search(values, x, n) {
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
}

/** Bars of a lane for a view: long ones as they are, runs of shorter ones as one {start, end, count, filled, …}. */
function barsFor(lane, from, to, pixel) {
  const [first, last] = lane.within(from, to);
  const bars = [];
  let run = null;
  for (let i = first; i < last; i += 1) {
    const length = lane.end[i] - lane.start[i];
    const slot = Math.floor(lane.start[i] / pixel);
    if (length >= pixel) {
      run = null;
      bars.push({first: i, last: i + 1, start: lane.start[i], end: lane.end[i], longest: i});
    } else if (run && run.slot === slot) {
      run.last = i + 1;
      run.end = Math.max(run.end, lane.end[i]);
      if (length > lane.end[run.longest] - lane.start[run.longest]) run.longest = i;
    } else {
      run = {slot, first: i, last: i + 1, start: lane.start[i], end: lane.end[i], longest: i};
      bars.push(run);
    }
  }
  return bars;
}

/** Rectangles of one colour as one path: what plotly draws fastest. */
class Shape {
  constructor() { this.x = []; this.y = []; }
  add(x0, x1, y0, y1) {
    this.x.push(x0, x1, x1, x0, x0, null);
    this.y.push(y0, y0, y1, y1, y0, null);
  }
}

/** Seconds, milliseconds …: the unit in which a view of this length reads well. */
function axisUnit(length) {
  return units.find(([per]) => length >= per * 2) || units[3];
}

function plain(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function timelineFigure(openSite) {
  const source = data.timeline;
  const frame = document.getElementById("timeline");
  if (!source || !frame) return null;
  const lanes = [], headings = [];
  let height = 0;
  for (const raw of source.lanes) {
    if (!lanes.length || lanes[lanes.length - 1].group !== raw.group) {
      headings.push({y: height + 12, top: height, text: raw.group});
      height += 20;
    }
    lanes.push(new Lane(raw, height));
    height += heights[raw.kind] + 2;
  }
  height += 6;
  const whole = [0, Math.max(1, source.length)];
  const left = 178, right = 14, top = 8, bottom = 34;
  const gapLanes = lanes.filter((lane) => lane.kind === "gaps");
  const syncLanes = lanes.filter((lane) => lane.kind === "syncs");
  const state = {view: [...whole], selected: null, drag: "zoom", gap: -1, step: null};
  const tip = element("div", {id: "tip", hidden: true});
  document.body.append(tip);

  const gaps = [];
  for (const lane of gapLanes) {
    for (let i = 0; i < lane.n; i += 1) if (lane.count[i] === 1) gaps.push({lane, i});
  }
  const fromSyncs = ({lane, i}) => lane.causes[0][i] + lane.causes[1][i];
  const occurrences = data.sites.map(() => []);
  const syncs = [];
  for (const lane of syncLanes) {
    const seen = new Map();
    for (let i = 0; i < lane.n; i += 1) {
      if (lane.count[i] !== 1) continue;
      const known = seen.get(lane.event[i]);
      if (known && lane.event[i] >= 0) { known.last = i; known.end = Math.max(known.end, lane.end[i]); continue; }
      const sync = {lane, i, last: i, event: lane.event[i], site: lane.site[i], start: lane.start[i], end: lane.end[i]};
      seen.set(lane.event[i], sync);
      syncs.push(sync);
    }
  }
  syncs.sort((a, b) => a.start - b.start);
  for (const sync of syncs) if (sync.site >= 0) occurrences[sync.site].push(sync);

  // --- drawing

  const probe = element("span", {hidden: true});
  document.body.append(probe);
  function colour(name) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }

  function plotWidth() {
    return Math.max(200, frame.clientWidth - left - right);
  }

  function figure() {
    const [from, to] = state.view;
    const length = to - from, pixel = length / plotWidth() * thinnest;
    const shapes = new Map();
    const shape = (name) => { if (!shapes.has(name)) shapes.set(name, new Shape()); return shapes.get(name); };
    const labels = {x: [], y: [], text: [], colour: []};
    const margin = state.drag === "pan" ? length : 0;
    let beyond = false;
    for (const lane of lanes) {
      const size = lane.bottom - lane.top;
      for (const bar of barsFor(lane, from - margin, to + margin, pixel)) {
        const end = Math.max(bar.end, bar.start + pixel);
        if (lane.kind === "gaps") addGap(shape, lane, bar, end, size);
        else addBar(shape, lane, bar, end, size);
        const drawn = (bar.end - bar.start) / pixel;
        const merged = bar.last - bar.first === 1 && lane.count[bar.first] > 1;
        if (merged && drawn > 8) { shape("merged").add(bar.start, end, lane.top, lane.bottom); beyond = true; }
        if (drawn > 30 && !merged) addLabel(labels, lane, bar, from, to, length);
      }
    }
    const warning = document.getElementById("beyond");
    if (warning) warning.hidden = !beyond;
    return {data: traces(shapes, labels), layout: layout(from, to)};
  }

  function addBar(shape, lane, bar, end, size) {
    let filled = 0;
    for (let i = bar.first; i < bar.last; i += 1) filled += lane.filledOf(i);
    const share = bar.last - bar.first === 1 && lane.count[bar.first] === 1 ? 1
      : Math.min(1, Math.max(0.2, filled / (end - bar.start)));
    const gap = lane.kind === "ranges" ? (end - bar.start) * 0.002 : 0;
    const name = lane.kind === "syncs" && state.selected && state.selected.site >= 0
      && lane.site[bar.longest] === state.selected.site ? "chosen" : lane.colour(bar.longest);
    shape(name).add(bar.start, end - gap, lane.bottom - share * size, lane.bottom);
  }

  function addGap(shape, lane, bar, end, size) {
    let base = lane.bottom;
    lane.causes.forEach((cause, place) => {
      let ns = 0;
      for (let i = bar.first; i < bar.last; i += 1) ns += cause[i];
      if (!ns) return;
      const part = Math.min(1, ns / (end - bar.start)) * size;
      shape(causeNames[place]).add(bar.start, end, base - part, base);
      base -= part;
    });
  }

  function addLabel(labels, lane, bar, from, to, length) {
    if (labels.text.length > 300 || lane.kind === "gaps") return;
    const start = Math.max(bar.start, from), end = Math.min(bar.end, to);
    const room = Math.floor(((end - start) / length * plotWidth() - 8) / 6.4);
    if (room < 3) return;
    const full = nameOf(lane, bar.longest);
    const line = lane.kind === "syncs" && full.length > room && /:\d+$/.exec(full);
    const text = line ? line[0] : full;
    if (text.length > room && room < 5) return;
    labels.x.push(start + 4 * length / plotWidth());
    labels.y.push((lane.top + lane.bottom) / 2);
    labels.text.push(plain(text.length > room ? `${text.slice(0, room - 1)}…` : text));
    labels.colour.push(["ranges", "calls"].includes(lane.kind) ? "strong" : "ground");
  }

  function nameOf(lane, i) {
    const site = lane.kind === "syncs" && lane.site[i] >= 0 ? data.sites[lane.site[i]] : null;
    return site ? site.place : lane.name[i] >= 0 ? source.names[lane.name[i]] : lane.kind === "ops" ? kinds[lane.category[i]] : "";
  }

  function traces(shapes, labels) {
    const order = ["step", "range", "other", "launch", "wait", "alloc", ...kinds, ...causeNames, "chosen", "merged"];
    const drawn = [...new Set(order)].filter((name) => shapes.has(name)).map((name) => ({
      type: "scatter", mode: "none", fill: "toself", hoverinfo: "skip", line: {simplify: false},
      x: shapes.get(name).x, y: shapes.get(name).y, showlegend: false,
      fillcolor: colour(name === "chosen" ? "accent" : name),
      ...(name === "merged" ? {fillcolor: "rgba(0,0,0,0)", fillpattern: {shape: "/", size: 6, fgcolor: colour("ground"), bgcolor: "rgba(0,0,0,0)", fgopacity: 0.6}} : {}),
    }));
    drawn.push({
      type: "scatter", mode: "text", hoverinfo: "skip", showlegend: false, cliponaxis: true, textposition: "middle right",
      x: labels.x, y: labels.y, text: labels.text,
      textfont: {size: 11, color: labels.colour.map(colour)},
    });
    return drawn;
  }

  function layout(from, to) {
    const text = colour("text"), quiet = colour("quiet"), line = colour("line");
    const ticks = [...headings.map(({y, text: name}) => [y, `<b>${plain(name)}</b>`]),
      ...lanes.map((lane) => [(lane.top + lane.bottom) / 2, plain(lane.title.slice(0, 26))])];
    return {
      width: frame.clientWidth, height: height + top + bottom, margin: {l: left, r: right, t: top, b: bottom},
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: state.drag, hovermode: false,
      font: {family: "system-ui, sans-serif", size: 11.5, color: text},
      xaxis: {range: [from, to], ...timeTicks(from, to), showgrid: true, gridcolor: line, zeroline: false, tickfont: {color: quiet}},
      yaxis: {range: [height, 0], fixedrange: true, showgrid: false, zeroline: false, tickvals: ticks.map(([y]) => y), ticktext: ticks.map(([, name]) => name)},
      shapes: [...headings.slice(1).map(({top: y}) => rule(y, line)), ...highlights()],
    };
  }

  function rule(y, line) {
    return {type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: {color: line, width: 1}};
  }

  function timeTicks(from, to) {
    const [per, unit] = axisUnit(to - from);
    const rough = (to - from) / Math.max(3, plotWidth() / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const decimals = Math.max(0, -Math.floor(Math.log10(step / per) + 1e-9));
    const values = [], words = [];
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      values.push(tick);
      words.push(`${fixed(tick / per, decimals)} ${unit}`);
    }
    return {tickvals: values, ticktext: words};
  }

  /** The selected sync, the gaps it caused and the launches that ended them. */
  function highlights() {
    const chosen = state.selected;
    if (!chosen) return [];
    const accent = colour("accent"), found = [];
    const box = (x0, x1, y0, y1, fill) => found.push({type: "rect", layer: fill ? "below" : "above", x0, x1, y0, y1,
      line: {color: accent, width: fill ? 1 : 2}, fillcolor: fill ? colour("accent-ground") : "rgba(0,0,0,0)"});
    if (chosen.sync) box(chosen.sync.start, chosen.sync.end, chosen.sync.lane.top - 1, chosen.sync.lane.bottom + 1, false);
    for (const {lane, i} of chosen.gaps) {
      const group = lanes.filter((other) => other.group === lane.group);
      box(lane.start[i], lane.end[i], group[0].top, group[group.length - 1].bottom, true);
      box(lane.start[i], lane.end[i], lane.top, lane.bottom, false);
      const launching = lanes[lane.launchLane[i]];
      if (launching) {
        box(lane.launchStart[i], lane.launchEnd[i], launching.top - 1, launching.bottom + 1, false);
        found.push({type: "line", x0: Math.min(lane.launchEnd[i], lane.end[i]), x1: lane.end[i], y0: launching.bottom + 1, y1: lane.top,
          line: {color: accent, width: 1.5, dash: "dot"}});
      }
    }
    return found;
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const {data: bars, layout: place} = figure();
      Plotly.react(frame, bars, place, {displayModeBar: false, scrollZoom: false, doubleClick: false, showTips: false});
      if (!document.documentElement.dataset.drawn) document.documentElement.dataset.drawn = String(Math.round(performance.now()));
      const [from, to] = state.view;
      document.getElementById("view").textContent = `${duration(from)} to ${duration(to)}, ${duration(to - from)} in view`;
    });
  }

  // --- moving

  function show(from, to) {
    const length = Math.min(whole[1], Math.max(20, to - from));
    const start = Math.min(Math.max(0, from), whole[1] - length);
    state.view = [start, start + length];
    draw();
  }

  function zoom(factor, at = (state.view[0] + state.view[1]) / 2) {
    show(at - (at - state.view[0]) * factor, at + (state.view[1] - at) * factor);
  }

  function pan(share) {
    const by = share * (state.view[1] - state.view[0]);
    show(state.view[0] + by, state.view[1] + by);
  }

  function around(start, end) {
    const length = Math.max(end - start, 200);
    show(start - length, end + length);
  }

  // --- choosing

  const said = document.getElementById("selected");

  function gapsOf(sync) {
    if (!sync || sync.event < 0) return [];
    return gaps.filter(({lane, i}) => lane.event[i] === sync.event);
  }

  function describeGap({lane, i}) {
    const causes = causeNames.map((_, place) => [data.causes[place][0], lane.causes[place][i]]).filter(([, ns]) => ns);
    causes.sort((a, b) => b[1] - a[1]);
    return `${lane.group} idle for ${duration(lane.end[i] - lane.start[i])}: ${causes.map(([label, ns]) => `${label} ${duration(ns)}`).join(", ")}`;
  }

  function chooseSync(sync) {
    const found = gapsOf(sync);
    state.selected = {sync, site: sync.site, gaps: found};
    const site = data.sites[sync.site];
    const gapWords = found.length ? found.map(describeGap).join("; ") : "no idle gap drawn here is mainly its doing";
    say(`Sync at ${site ? site.place : nameOf(sync.lane, sync.i)}, blocked for ${duration(sync.end - sync.start)}; ${gapWords}.`, sync.site);
  }

  function chooseGap(gap, prefix) {
    const event = gap.lane.event[gap.i];
    const sync = event >= 0 ? syncs.find((one) => one.event === event) : null;
    const site = gap.lane.site[gap.i];
    state.selected = {sync, site, gaps: sync ? [...new Set([gap, ...gapsOf(sync).filter((one) => one.i !== gap.i || one.lane !== gap.lane)])] : [gap]};
    say(`${prefix || ""}${describeGap(gap)}${site >= 0 ? `; caused by ${data.sites[site].place}` : ""}.`, site);
  }

  function say(text, site) {
    said.textContent = text;
    if (site >= 0) said.append(element("button", {type: "button", onclick: () => openSite(site)}, "Show the site"));
    draw();
  }

  function clear() {
    state.selected = null;
    state.gap = -1;
    said.textContent = "";
    draw();
  }

  const gapChoice = document.getElementById("gap-choice"), gapOrder = document.getElementById("gap-order");
  function gapList() {
    const some = gapChoice.value === "syncs" ? gaps.filter((gap) => fromSyncs(gap) > 0) : [...gaps];
    const weight = gapChoice.value === "syncs" ? fromSyncs : ({lane, i}) => lane.end[i] - lane.start[i];
    return gapOrder.value === "length" ? some.sort((a, b) => weight(b) - weight(a))
      : some.sort((a, b) => a.lane.start[a.i] - b.lane.start[b.i]);
  }

  function nextGap(step) {
    const list = gapList();
    if (!list.length) { said.textContent = "No such gap is drawn."; return; }
    if (gapOrder.value === "time" && state.gap < 0) {
      const middle = (state.view[0] + state.view[1]) / 2;
      const after = list.findIndex(({lane, i}) => lane.start[i] >= middle);
      state.gap = step > 0 ? (after < 0 ? 0 : after) : (after < 0 ? list.length : after) - 1;
    } else {
      state.gap = state.gap < 0 ? (step > 0 ? 0 : list.length - 1) : state.gap + step;
    }
    state.gap = (state.gap + list.length) % list.length;
    const gap = list[state.gap], {lane, i} = gap;
    chooseGap(gap, `Gap ${integer(state.gap + 1)} of ${integer(list.length)}: `);
    around(lane.causedStart[i] >= 0 ? Math.min(lane.causedStart[i], lane.start[i]) : lane.start[i], lane.end[i]);
  }

  function nextSync(step) {
    if (!syncs.length) return;
    const now = state.selected && state.selected.sync ? syncs.indexOf(state.selected.sync) : -1;
    const middle = (state.view[0] + state.view[1]) / 2;
    const near = syncs.findIndex((sync) => sync.start >= middle);
    const place = now >= 0 ? now + step : near < 0 ? syncs.length - 1 : near;
    goToSync(syncs[(place + syncs.length) % syncs.length]);
  }

  function goToSync(sync) {
    chooseSync(sync);
    const ends = state.selected.gaps.map(({lane, i}) => lane.end[i]);
    around(sync.start, Math.max(sync.end, ...ends));
  }

  // --- steps

  const stepNumbers = column(source.steps[0], source.steps[1].length);
  const stepInput = document.getElementById("step");
  const numbers = [...new Set(stepNumbers)].sort((a, b) => a - b);
  document.getElementById("step-tools").hidden = !numbers.length;
  if (numbers.length) {
    Object.assign(stepInput, {min: numbers[0], max: numbers[numbers.length - 1]});
    document.getElementById("step-of").textContent = ` ${numbers[0]}–${numbers[numbers.length - 1]}`;
    stepInput.addEventListener("input", () => showStep(Number(stepInput.value)));
  }

  function showStep(number) {
    const rows = stepNumbers.flatMap((step, row) => step === number && stepInput.value !== "" ? [row] : []);
    if (!rows.length) return;
    const start = Math.min(...rows.map((row) => source.steps[1][row]));
    const end = Math.max(...rows.map((row) => source.steps[2][row]));
    const margin = (end - start) * 0.03;
    show(start - margin, end + margin);
  }

  // --- pointer

  function find(event) {
    const box = frame.getBoundingClientRect();
    const x = event.clientX - box.left - left, y = event.clientY - box.top - top;
    const width = plotWidth();
    if (x < 0 || x > width) return null;
    const [from, to] = state.view;
    const at = from + x / width * (to - from), pixel = (to - from) / width;
    const lane = lanes.find((one) => y >= one.top - 1 && y <= one.bottom + 1);
    if (!lane) return null;
    const slack = pixel * 2.5;
    let best = null;
    for (const bar of barsFor(lane, at - slack, at + slack, pixel * thinnest)) {
      if (bar.start - slack > at || bar.end + slack < at) continue;
      const distance = at < bar.start ? bar.start - at : at > bar.end ? at - bar.end : 0;
      if (!best || distance < best.distance || (distance === best.distance && bar.end - bar.start < best.bar.end - best.bar.start)) best = {lane, bar, distance};
    }
    return best;
  }

  function tooltip({lane, bar}) {
    let count = 0, filled = 0;
    for (let i = bar.first; i < bar.last; i += 1) count += lane.count[i];
    const i = bar.longest, times = [["from", duration(bar.start)], ["length", duration(bar.end - bar.start)]];
    if (lane.kind === "gaps") {
      const parts = lane.causes.map((cause, place) => {
        let ns = 0;
        for (let j = bar.first; j < bar.last; j += 1) ns += cause[j];
        return [data.causes[place][0], ns];
      }).filter(([, ns]) => ns).map(([label, ns]) => [label, duration(ns)]);
      const site = count === 1 && lane.site[i] >= 0 ? element("div", null, `mainly from ${data.sites[lane.site[i]].place}`) : null;
      return [element("b", null, count === 1 ? `${lane.group} idle` : `${integer(count)} gaps`), site, pairs([...times, ...parts])];
    }
    if (count > 1) {
      for (let j = bar.first; j < bar.last; j += 1) filled += lane.filledOf(j);
      const what = {ranges: "ranges", syncs: "blocking calls", calls: "calls", ops: "operations"}[lane.kind];
      const share = Math.min(100, Math.round(100 * filled / Math.max(1, bar.end - bar.start)));
      return [element("b", null, `${integer(count)} ${what}, ${share} % of the time`), element("div", null, `longest: ${nameOf(lane, i)}`), pairs(times)];
    }
    const site = lane.kind === "syncs" ? data.sites[lane.site[i]] : null;
    const name = lane.name[i] >= 0 ? source.names[lane.name[i]] : nameOf(lane, i);
    const code = site && site.source.find(([number]) => number === site.line);
    const kind = lane.kind === "ops" ? kinds[lane.category[i]] : lane.kind === "ranges" ? (lane.category[i] ? "step" : "range") : callWords[lane.category[i]];
    return [element("b", null, name), ` ${kind}`, site ? element("div", null, `${site.place} ${site.function || ""}`) : null,
      code ? element("code", null, code[1].trim()) : null, pairs(times)];
  }

  function pairs(rows) {
    return element("table", null, rows.map(([name, value]) => element("tr", null, element("td", null, name), element("td", null, value))));
  }

  let pressed = null;
  frame.addEventListener("pointermove", (event) => {
    const found = event.buttons ? null : find(event);
    tip.hidden = !found;
    if (!found) return;
    tip.replaceChildren(...tooltip(found).filter(Boolean));
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - box.width - 8)}px`;
    tip.style.top = `${event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
  });
  frame.addEventListener("pointerleave", () => { tip.hidden = true; });
  frame.addEventListener("pointerdown", (event) => { pressed = [event.clientX, event.clientY]; tip.hidden = true; frame.focus({preventScroll: true}); }, true);
  window.addEventListener("pointerup", (event) => {
    if (!pressed || Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 4) { pressed = null; return; }
    pressed = null;
    const found = find(event);
    if (!found) { clear(); return; }
    const {lane, bar} = found, i = bar.longest;
    if (lane.kind === "gaps" && lane.count[i] === 1) chooseGap(gaps.find((gap) => gap.lane === lane && gap.i === i));
    else if (lane.kind === "syncs" && lane.count[i] === 1) chooseSync(syncs.find((sync) => sync.lane === lane && sync.i <= i && i <= sync.last && (sync.event === lane.event[i] || sync.i === i)));
  }, true);
  frame.addEventListener("dblclick", () => show(...whole));
  frame.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const x = (event.clientX - frame.getBoundingClientRect().left - left) / plotWidth();
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), state.view[0] + x * (state.view[1] - state.view[0]));
  }, {passive: false});

  // --- keys and buttons

  const actions = {
    left: () => pan(-0.25), right: () => pan(0.25), in: () => zoom(0.5), out: () => zoom(2), reset: () => show(...whole),
    drag: () => {
      state.drag = state.drag === "zoom" ? "pan" : "zoom";
      const button = document.querySelector("[data-do=drag]");
      button.textContent = `Drag: ${state.drag === "zoom" ? "zoom" : "move"}`;
      button.setAttribute("aria-pressed", String(state.drag === "pan"));
      draw();
    },
    "next-gap": () => nextGap(1), "previous-gap": () => nextGap(-1),
    "next-sync": () => nextSync(1), "previous-sync": () => nextSync(-1),
    open: () => { if (state.selected && state.selected.site >= 0) openSite(state.selected.site); },
    clear,
  };
  const keys = {ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "reset", d: "drag", n: "next-gap",
    p: "previous-gap", "]": "next-sync", "[": "previous-sync", Enter: "open", Escape: "clear"};
  frame.addEventListener("keydown", (event) => {
    const action = actions[keys[event.key]];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());
  for (const choice of [gapChoice, gapOrder]) choice.addEventListener("change", () => { state.gap = -1; });
  document.getElementById("gap-tools").hidden = !gaps.length;

  function legend() {
    const words = {step: "step", range: "NVTX range", other: "API call", launch: "launch", wait: "wait on the device", kernel: "kernel", memcpy: "copy", memset: "memset", graph: "graph"};
    const used = new Set(lanes.filter((lane) => lane.kind !== "gaps").flatMap((lane) => [...new Set(lane.category)].map((category) => {
      return lane.kind === "ops" ? kinds[category] : lane.kind === "ranges" ? (category ? "step" : "range") : callColours[category];
    })));
    const causes = causeNames.filter((_, place) => gapLanes.some((lane) => lane.causes[place].some(Boolean)));
    const items = [...Object.keys(words).filter((name) => used.has(name)).map((name) => [name, words[name]]),
      ...(used.has("sync_wait") ? [["sync_wait", "blocking call"]] : []),
      ...causes.map((name) => [name, `idle: ${data.causes[causeNames.indexOf(name)][0]}`])];
    document.getElementById("key").replaceChildren(...items.map(([name, label]) =>
      element("li", null, element("i", {style: `background:var(--${name})`}), label)));
  }

  document.getElementById("drawing").remove();
  legend();
  draw();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    frame.on("plotly_relayout", (change) => {
      if ("xaxis.range[0]" in change) show(change["xaxis.range[0]"], change["xaxis.range[1]"]);
    });
  }));
  new ResizeObserver(draw).observe(frame);

  return {
    draw,
    occurrences: {
      count: (site) => occurrences[site].length,
      go: (site, place) => {
        goToSync(occurrences[site][place]);
        document.getElementById("timeline-section").scrollIntoView({block: "start"});
      },
    },
  };
}
