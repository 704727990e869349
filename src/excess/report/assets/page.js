// The slider, hover, tabs, sorted and searched tables, and downloads. Every number is a text that Python wrote: nothing is computed here.
"use strict";
(() => {
const all = (selector, node = document) => [...node.querySelectorAll(selector)];
const make = (tag, properties, ...children) => { const node = Object.assign(document.createElement(tag), properties); node.append(...children); return node; };
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.querySelector(".tip");

// models as tabs
const tabs = all("[role=tab]"), articles = all("article");
function choose(number) {
  tabs.forEach((tab, i) => { tab.setAttribute("aria-selected", i === number); tab.tabIndex = i === number ? 0 : -1; });
  articles.forEach((article, i) => article.classList.toggle("chosen", i === number));
}
tabs.forEach((tab, number) => {
  tab.addEventListener("click", () => choose(number));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { const next = (number + step + tabs.length) % tabs.length; choose(next); tabs[next].focus(); }
  });
});

// a point of the page in the coordinates of an SVG
function inside(svg, event) {
  const box = svg.getBoundingClientRect(), { width, height } = svg.viewBox.baseVal;
  return [(event.clientX - box.left) * width / box.width, (event.clientY - box.top) * height / box.height];
}
const nearest = (points, x) => points.reduce((best, [at], i) => (Math.abs(at - x) < Math.abs(points[best][0] - x) ? i : best), 0);

articles.forEach((article, number) => {
  const { stops, start, tuned, pooled } = data.models[number];
  const sky = article.querySelector("[data-action=sky]");
  sky?.addEventListener("change", () => all(".map", article).forEach((map, i) => map.classList.toggle("shown", i === sky.selectedIndex)));
  if (!stops) return;
  const slider = article.querySelector("input[type=range]"), svg = article.querySelector(`#threshold_curve-${number} svg`);
  const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  dot.setAttribute("class", "dot");
  const rows = all("[data-table=groups] tbody tr", article), cells = rows.map((row) => all("td", row).slice(0, 4).map((one) => one.textContent));
  const keys = ["n_on", "n_off", "excess", "significance"];
  const show = (name, text) => { article.querySelector(`.explorer [data-value=${name}]`).textContent = text; };
  function go(at) { // a stop of the slider; null is the tuned cut
    slider.value = at ?? start;
    for (const key of keys) show(key, at === null ? tuned[key] : stops[key][at]);
    show("threshold", at === null ? "as tuned" : stops.threshold[at]);
    show("state", at === null ? "Tuned cut" : "Exploration");
    show("explanation", at === null ? `These are the numbers of the cut${pooled ? " (pooled)" : ""}.`
      : "Not a result: the significance is too large if the threshold is chosen by looking at these events.");
    slider.setAttribute("aria-valuetext", at === null ? "as tuned" : `${stops.threshold[at]}: ${stops.significance[at]} sigma, On ${stops.n_on[at]}, Off ${stops.n_off[at]}, exploration`);
    article.querySelector(".explorer").classList.toggle("exploring", at !== null);
    if (stops.groups) rows.forEach((row, i) => {
      const own = stops.groups[i], texts = at === null ? cells[i] : [own.significance[at], own.n_on[at], own.n_off[at], own.excess[at]];
      texts.forEach((text, j) => { row.cells[j + 1].textContent = text; });
    });
    if (at === null) return dot.remove();
    for (const [name, value] of Object.entries({ cx: stops.dots[at][0], cy: stops.dots[at][1], r: 3.5 })) dot.setAttribute(name, value);
    svg.append(dot);
  }
  slider.addEventListener("input", () => go(Number(slider.value)));
  svg.addEventListener("click", (event) => go(nearest(stops.dots, inside(svg, event)[0])));
  article.querySelector("[data-action=reset]").addEventListener("click", () => { go(null); slider.focus(); });
});

// texts near the pointer: points of the light curve, pixels of the sky
function textAt({ hover, layer, box, half_width: half, n_pixels: n }, [x, y]) {
  if (hover) return Math.abs(hover[nearest(hover, x)][0] - x) < 20 ? hover[nearest(hover, x)][2] : null;
  const [left, top, right, bottom] = box, column = Math.floor((right - x) / (right - left) * n), row = Math.floor((bottom - y) / (bottom - top) * n);
  if (column < 0 || column >= n || row < 0 || row >= n) return null;
  const degrees = (i) => ((2 * i / (n - 1) - 1) * half).toFixed(2), at = (what) => data.layers[layer][what][row * n + column];
  return at("significance") === null ? null : `${degrees(column)}° east, ${degrees(row)}° north: ${at("significance")} σ, excess ${at("excess")}, ${at("counts")} events`;
}
for (const [id, one] of Object.entries(data.figures)) {
  if (!one.layer && !one.hover.length) continue;
  const svg = document.querySelector(`#${id} svg`);
  svg.addEventListener("pointermove", (event) => {
    tip.textContent = textAt(one.layer ? { ...one, hover: null } : one, inside(svg, event)) ?? "";
    tip.hidden = !tip.textContent;
    tip.style.top = `${event.pageY + 14}px`;
    tip.style.left = `${Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 4)}px`;
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
}

// tables are sorted by a click on a head, and long ones can be searched
const numberIn = (text) => { const found = text.replaceAll(",", "").replaceAll("−", "-").replaceAll("∞", "Infinity").match(/^-?(\d+\.?\d*(e[+-]?\d+)?|Infinity)/); return found ? Number(found[0]) : null; };
function compare(one, other) { // numbers by their size, texts by the numbers in them; empty cells last
  if (!one || !other) return Boolean(other) - Boolean(one);
  const [a, b] = [numberIn(one), numberIn(other)];
  return a !== null && b !== null && a !== b ? a - b : one.localeCompare(other, "en", { numeric: true });
}
function addSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = make("button", { type: "button", className: "sort" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((one, other) => sign * compare(one.cells[column].textContent, other.cells[column].textContent)));
    });
  });
}
function searchField(table) {
  const input = make("input", { type: "search", placeholder: "find rows", ariaLabel: "Find rows of the table" });
  input.addEventListener("input", () => {
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(input.value.trim().toLowerCase());
  });
  return input;
}

// downloads: all of it is on the page
const fileName = (...parts) => parts.filter(Boolean).map((part) => part.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "")).filter(Boolean).join("_") || "report";
function save(content, type, name) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
const saveCsv = (text, name) => save(`\ufeff${text}`, "text/csv;charset=utf-8", `${name}.csv`);
const asCsv = (rows) => rows.map((row) => row.map((text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")).join("\r\n") + "\r\n";
function tableRows(table) { // "value ± error" becomes two columns, and numbers lose their separators
  const rows = [...table.rows].map((row) => [...row.cells].map((one) => one.textContent.trim()));
  const clean = (text) => (/^[−-]?[\d,]+(\.\d+)?(e[+-]?\d+)?$/.test(text) ? text.replaceAll(",", "").replace("−", "-") : text);
  const double = rows[0].map((_, i) => rows.slice(1).some((row) => row[i].includes(" ± ")));
  return rows.map((row, line) => row.flatMap((text, i) => (!double[i] ? [clean(text)] : line ? [...text.split(" ± "), ""].slice(0, 2).map(clean) : [text, `${text} error`])));
}
function skyRows({ layer, half_width: half, n_pixels: n }) {
  const { significance, excess, counts } = data.layers[layer], degrees = (i) => ((2 * i / (n - 1) - 1) * half).toFixed(4);
  return [["east", "north", "significance", "excess", "counts"], ...counts.map((count, i) => [degrees(i % n), degrees(Math.floor(i / n)), ...[significance[i], excess[i], count].map((one) => String(one ?? ""))])];
}
function onWhite(svg) { // with the colours of paper, also from a page in dark mode
  const copy = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", 4 * width);
  copy.setAttribute("height", 4 * height);
  all(".dot", copy).forEach((dot) => dot.remove());
  return new XMLSerializer().serializeToString(copy).replace(/var\(--[\w-]+, (#[0-9a-f]{6})\)/g, "$1").replace(">", '><rect width="100%" height="100%" fill="#ffffff"/>');
}
async function savePng(svg, name) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(onWhite(svg))}`;
  await image.decode();
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  canvas.toBlob((blob) => save(blob, "image/png", `${name}.png`));
}
const tools = (label, actions) => make("p", { className: "tools" }, ...Object.entries(actions).map(([name, action]) => { const button = make("button", { type: "button", textContent: name, ariaLabel: `Download ${label} as ${name}` }); button.addEventListener("click", action); return button; }));
const modelOf = (node) => data.models[articles.indexOf(node.closest("article"))]?.name;
for (const figure of all("figure")) {
  const svg = figure.querySelector("svg"), one = data.figures[figure.id], name = fileName(data.title, modelOf(figure), figure.id.replace(/-\d+$/, ""));
  figure.append(tools(svg.parentNode.getAttribute("aria-label"), { PNG: () => savePng(svg, name), SVG: () => save(onWhite(svg), "image/svg+xml", `${name}.svg`), CSV: () => saveCsv(one.csv ?? asCsv(skyRows(one)), name) }));
}
for (const box of all(".scroll")) {
  const table = box.querySelector("table"), label = box.getAttribute("aria-label").toLowerCase();
  const added = tools(label, { CSV: () => saveCsv(asCsv(tableRows(table)), fileName(data.title, modelOf(table), label.replace("table of ", ""))) });
  if (table.tBodies[0].rows.length > 12) added.prepend(searchField(table));
  addSorting(table);
  box.before(added);
}
addEventListener("beforeprint", () => all("details").forEach((node) => { node.open = true; }));
document.documentElement.dataset.ready = "yes";
})();
