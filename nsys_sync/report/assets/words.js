"use strict";

/** The page's data, and what all its parts share: words for numbers, elements, decoding of columns. */
const data = JSON.parse(document.getElementById("data").textContent);
const missing = "–";
const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

const formats = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((decimals) =>
  new Intl.NumberFormat("en-US", {minimumFractionDigits: decimals, maximumFractionDigits: decimals}));

function fixed(value, decimals) {
  return formats[Math.min(9, decimals)].format(value);
}

/** A time in ns with its unit, three digits. */
function duration(ns) {
  if (ns === null || ns === undefined) return missing;
  const [per, unit] = units.find(([size]) => Math.abs(ns) >= size) || units[3];
  const value = ns / per;
  const decimals = per === 1 || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${fixed(value, decimals)} ${unit}`;
}

function integer(number) {
  return formats[0].format(number);
}

function often(number) {
  if (number === null) return missing;
  return Number.isInteger(number) ? String(number) : number >= 0.05 ? number.toFixed(1) : "<0.1";
}

function size(bytes) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (bytes >= 1024 && step < names.length - 1) { bytes /= 1024; step += 1; }
  return `${step ? bytes.toFixed(1) : bytes} ${names[step]}`;
}

function plural(number, noun) {
  return `${integer(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** An element: element("p.quiet", {title: "…"}, "text", child, …). Strings become text, never markup. */
function element(kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

/** A table with small type: rows of strings, the first row as heading. */
function smallTable([head, ...rows]) {
  return element("table.small", null,
    element("thead", null, element("tr", null, head.map((cell) => element("th", {scope: "col"}, cell)))),
    element("tbody", null, rows.map((row) => element("tr", null, row.map((cell) => element("td", null, cell))))));
}

/** A column as it was embedded: a list, or one value for all rows. */
function column(values, length) {
  return Array.isArray(values) ? values : new Array(length).fill(values);
}
