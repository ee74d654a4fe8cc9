/** The table of sites: sorting, filters, search, and, where the page holds details, rows that open. */
function siteTable(showOccurrence) {
  const table = document.getElementById("table");
  if (!table) return {open() {}};
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const details = new Map();
  const haystacks = new Map();

  /** All text of a site, for the search; made when first searched. */
  function haystack(row) {
    if (!haystacks.has(row)) {
      const site = data.sites ? textOf(data.sites[row.dataset.index]) : "";
      haystacks.set(row, `${row.textContent}\n${site}`.toLowerCase());
    }
    return haystacks.get(row);
  }

  function textOf(site) {
    const frames = site.stack.map((frame) => data.frames[frame].join(" "));
    const code = site.source.map(([, text]) => text);
    return [site.rule, site.basis, ...site.native, ...frames, ...code].join("\n");
  }

  function sortBy(heading) {
    const text = heading.dataset.kind === "text";
    const down = heading.ariaSort ? heading.ariaSort === "ascending" : !text;
    const key = heading.dataset.sort;
    const place = [...heading.parentNode.cells].indexOf(heading);
    const value = (row) => text ? row.cells[place].textContent.trim().toLowerCase() : Number(row.dataset[key]);
    const compare = (a, b) => text ? a.localeCompare(b, "en", {numeric: true}) : a - b;
    const sorted = rows.map((row) => [value(row), row]).sort(([a], [b]) => down ? compare(b, a) : compare(a, b));
    for (const cell of heading.parentNode.cells) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...sorted.flatMap(([, row]) => details.has(row) ? [row, details.get(row)] : [row]));
  }

  const controls = {
    search: document.getElementById("search"),
    file: document.getElementById("file"),
    process: document.getElementById("process"),
    clear: document.getElementById("clear"),
  };
  const chosen = new Set();

  function filter() {
    const words = controls.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const file = controls.file.value;
    const pid = controls.process ? controls.process.value : "";
    let shown = 0;
    for (const row of rows) {
      const fits = words.every((word) => haystack(row).includes(word))
        && (!file || row.dataset.file === file)
        && (!pid || row.dataset.pids.split(" ").includes(pid))
        && (!chosen.size || chosen.has(row.dataset.class));
      row.hidden = !fits;
      if (details.has(row)) details.get(row).hidden = !fits;
      shown += fits;
    }
    document.getElementById("shown").textContent = `${integer(shown)} of ${plural(rows.length, "site")}`;
    document.getElementById("none").hidden = shown > 0;
    controls.clear.hidden = !(words.length || file || pid || chosen.size);
  }

  function clear() {
    controls.search.value = controls.file.value = "";
    if (controls.process) controls.process.value = "";
    chosen.clear();
    for (const button of document.querySelectorAll("#classes button")) button.setAttribute("aria-pressed", "false");
    filter();
  }

  function toggle(row, open = !details.has(row)) {
    if (open === details.has(row)) return;
    row.classList.toggle("open", open);
    row.querySelector("button").setAttribute("aria-expanded", String(open));
    if (open) {
      const cell = element("td", {colspan: row.cells.length}, siteDetails(row.dataset.index, showOccurrence));
      details.set(row, element("tr.detail", null, cell));
      row.after(details.get(row));
    } else {
      details.get(row).remove();
      details.delete(row);
    }
  }

  function prepare() {
    for (const heading of table.tHead.rows[0].cells) {
      const button = element("button", {type: "button", onclick: () => sortBy(heading)}, ...heading.childNodes);
      heading.append(button);
    }
    for (const row of data.sites ? rows : []) {
      const button = element("button", {type: "button", "aria-expanded": "false"}, ...row.cells[0].childNodes);
      row.cells[0].append(button);
      row.addEventListener("click", () => { if (!String(window.getSelection())) toggle(row); });
    }
    const classes = [...new Set(rows.map((row) => row.dataset.class))];
    for (const name of Object.keys(data.classes).filter((known) => classes.includes(known))) {
      const flip = (event) => {
        if (!chosen.delete(name)) chosen.add(name);
        event.currentTarget.setAttribute("aria-pressed", String(chosen.has(name)));
        filter();
      };
      const attributes = {type: "button", "aria-pressed": "false", title: data.classes[name], onclick: flip};
      document.getElementById("classes").append(element("button", attributes, name));
    }
    const files = [...new Set(rows.map((row) => row.dataset.file).filter(Boolean))].sort();
    controls.file.append(...files.map((file) => element("option", {value: file}, file)));
    document.getElementById("file-label").hidden = files.length < 2;
    for (const control of [controls.search, controls.file, controls.process]) {
      if (control) control.addEventListener("input", filter);
    }
    controls.clear.addEventListener("click", clear);
  }

  /** Open a site's row and bring it into view. */
  function open(index) {
    const row = document.getElementById(`site-${index}`);
    if (row.hidden) clear();
    toggle(row, true);
    row.scrollIntoView({block: "start"});
    row.querySelector("button").focus({preventScroll: true});
  }

  prepare();
  for (const link of document.querySelectorAll("a[data-site]")) {
    link.addEventListener("click", (event) => { event.preventDefault(); open(Number(link.dataset.site)); });
  }
  return {open};
}

/** Everything that is known about one site. */
function siteDetails(index, showOccurrence) {
  const site = data.sites[index];
  const left = [sourceOf(site), stackOf(site), figuresOf(site)];
  const right = [fixOf(site), whatIfOf(site), occurrencesOf(index, showOccurrence)];
  return element("div.detail-grid", null, element("div", null, left), element("div", null, right));
}

function part(title, ...children) {
  return element("div", null, element("h3", null, title), ...children);
}

function sourceOf(site) {
  if (!site.source.length) return null;
  const words = {
    captured: "as it was when the trace was taken",
    found_unverified: "as found here; the trace cannot tell whether it has changed",
    changed: "this file has changed since the capture: the lines may be off",
    missing: "",
  };
  const lines = site.source.map(([number, text]) => element(number === site.line ? "div.here" : "div", null,
    element("span.number", null, String(number)), text));
  return part(`Source of ${site.place}`, element("div.listing", {tabindex: 0, role: "group", "aria-label": "Source"}, lines),
    element(site.status === "changed" ? "p.warn" : "p.quiet", null, words[site.status]));
}

function stackOf(site) {
  const origin = Object.entries(site.origins).map(([name, count]) => `${name} ${integer(count)}`).join(", ");
  const frames = site.stack.map((frame) => {
    const [name, file, line] = data.frames[frame];
    const user = file === site.file && line === site.line;
    return element(user ? "li.user" : "li", null, `${file}${line ? `:${line}` : ""}  ${name}`);
  });
  const native = site.native.map((name) => element("li", null, name));
  return part("Stack, innermost first",
    element("p.quiet", null, `${data.origins[site.origin]}${origin ? ` (${origin})` : ""}.`),
    frames.length ? element("ol.frames", null, frames) : null,
    native.length ? element("details", frames.length ? null : {open: true},
      element("summary", null, `Native stack, ${plural(native.length, "symbol")}`), element("ol.frames", null, native)) : null);
}

function fixOf(site) {
  const listing = (label, lines) => !lines.length ? null : [element("p.quiet", null, label), element("div.listing",
    {tabindex: 0, role: "group", "aria-label": label}, lines.map((line) => element("div", null, line)))];
  const graph = site.blocksGraph
    ? element("p.warn", null, "A sync here makes the capture of a CUDA graph fail.") : null;
  const basis = element("p.quiet", null, `${site.class}: ${(site.basis || data.classes[site.class]).replace(/\.$/, "")}. Rule ${site.rule}.`);
  if (!site.fix) return part(site.title, basis, graph);
  const docs = site.fix.docs
    ? element("p", null, element("a", {href: site.fix.docs, rel: "noreferrer noopener", target: "_blank"}, "Documentation"))
    : null;
  return part(site.title, basis, element("p", null, site.fix.text),
    listing("Before", site.fix.before), listing("After", site.fix.after), graph, docs);
}

function whatIfOf(site) {
  const guess = site.whatIf;
  if (!guess) return null;
  return part("If this site no longer blocked",
    element("p", null, `A step would take ${duration(guess.low)} to ${duration(guess.high)} instead of ${duration(guess.now)}`
      + ` (GPU work alone: ${duration(guess.bound)}); confidence ${guess.confidence}.`),
    guess.reasons.length ? element("p.quiet", null, guess.reasons.join(" · ")) : null);
}

function occurrencesOf(index, show) {
  if (!show) return null;
  const number = show.count(index);
  const of = data.sites[index].events;
  const at = element("span.quiet", {"aria-live": "polite"},
    number < of ? ` ${integer(number)} of ${integer(of)} drawn one by one` : ` ${plural(of, "sync")}`);
  let current = -1;
  const go = (step) => () => {
    current = (current + step + number) % number;
    at.textContent = ` ${integer(current + 1)} of ${integer(number)}`;
    show.go(index, current);
  };
  const button = (label, step) => element("button", {type: "button", disabled: !number, onclick: go(step)}, label);
  return part("On the timeline", element("p", null, button("‹ Previous", -1), " ", button("Next ›", 1), at));
}

function figuresOf(site) {
  const rows = [
    ["API calls", site.apis.map(([name, calls]) => `${name} × ${integer(calls)}`).join(", ")],
    ["Syncs", `${integer(site.events)}, on ${plural(site.threads, "thread")}`],
    ["Calls a step", often(site.perStep)],
    ["Wait", `${duration(site.wait[0])} in all; median ${duration(site.wait[1])}, longest ${duration(site.wait[2])}`],
    ["Recoverable", duration(site.recoverable)],
    ["Copying inside the call", duration(site.copy)],
    ["Copied", size(site.bytes)],
    ["GIL held", duration(site.gil)],
  ].filter(([name, value]) => value !== missing || name === "Recoverable");
  const facts = element("dl.facts", null, rows.flatMap(([name, value]) => [element("dt", null, name), element("dd", null, value)]));
  const devices = site.byDevice.length ? smallTable([
    ["Idle caused", ...data.causes.slice(0, 3).map(([label]) => label)],
    ...site.byDevice.map(([device, ...causes]) => [`GPU ${device}`, ...causes.map(duration)]),
  ]) : null;
  const processes = site.byProcess.length > 1 ? smallTable([
    ["Process", "calls", "wait", "recoverable"],
    ...site.byProcess.map(([pid, calls, wait, recoverable]) =>
      [data.processes[pid] || `pid ${pid}`, integer(calls), duration(wait), duration(recoverable)]),
  ]) : null;
  return part("Figures", facts, devices, processes);
}
