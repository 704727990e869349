// Plots of features, rates, bins and the sky.
const errorBars = (array, name, more = {}) => ({ type: "data", array, color: color(name), thickness: 1.2, width: 0, ...more });
const few = (labels) => labels.length <= 60;

// On as points, scaled Off as steps with a band of its error
function onOff(one, stage) {
  const { edges, log } = one;
  const { on, off, off_error } = one[stage];
  const middle = edges.slice(1).map((edge, i) => (log ? Math.sqrt(edge * edges[i]) : (edge + edges[i]) / 2));
  const side = (values) => { const { x, y } = outline(edges, values); return { x: x.slice(1, -1), y: y.slice(1, -1) }; };
  const none = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  const hover = on.map((n, i) => `${edges[i].toPrecision(3)} to ${edges[i + 1].toPrecision(3)}: On ${n}, scaled Off ${off[i].toFixed(1)} ± ${off_error[i].toFixed(1)}`);
  return [[
    { ...outline(edges, off), mode: "lines", name: "scaled Off", line: { color: color("off"), width: 1.5 }, fill: "tozeroy", fillcolor: color("off-fill"), hoverinfo: "skip" },
    { ...side(off.map((v, i) => Math.max(v - off_error[i], 0))), ...none, name: "scaled Off − error" },
    { ...side(off.map((v, i) => v + off_error[i])), ...none, name: "scaled Off + error", fill: "tonexty", fillcolor: color("off-fill") },
    { x: middle, y: on, mode: "markers", name: "On", marker: { color: color("on"), size: 6 }, error_y: errorBars(on.map(Math.sqrt), "on"), text: hover, hovertemplate: "%{text}<extra></extra>" },
  ], layout(plain(one.name), "events", { xaxis: { type: log ? "log" : "linear", nticks: 6, dtick: log && edges[edges.length - 1] / edges[0] > 30 ? 1 : undefined }, yaxis: { rangemode: "tozero" } })];
}

function rate(model, by) {
  const { labels, rate: y, error, hours, mean } = model.rates[by];
  return [[{ x: labels.map(plain), y, mode: "markers", name: "excess per hour", marker: { color: color("off"), size: few(labels) ? 7 : 4 }, error_y: errorBars(error, "off", { width: few(labels) ? 4 : 0 }),
    customdata: hours, hovertemplate: "%{x}: %{y:.1f} per hour (%{customdata:.2f} h)<extra></extra>" }],
  layout(few(labels) ? by : `${labels.length} ${by}s in order`, "excess / h", { xaxis: { type: "category", automargin: true, showticklabels: few(labels) }, yaxis: { rangemode: "tozero" }, showlegend: false,
    shapes: [line({ xref: "paper", x0: 0, x1: 1, yref: "y", y0: mean, y1: mean })] })];
}

const quantities = {
  significance: { label: "significance / σ", digits: 2, diverging: true },
  excess: { label: "excess / events", digits: 1, diverging: true },
  counts: { label: "events", digits: 0, diverging: false },
};

Object.assign(plots, {
  before(model) { return onOff(model.features[model.feature ?? 0], "before"); },
  after(model) { return onOff(model.features[model.feature ?? 0], "after"); },
  rate_group(model) { return rate(model, "group"); },
  rate_night(model) { return rate(model, "night"); },
  binned(model) {
    const { column, labels, excess, error, cut, likelihood } = model.binned;
    const axis = { gridcolor: color("grid"), linecolor: color("line"), zerolinecolor: color("line"), fixedrange: true };
    const x = labels.map(plain);
    const bars = (values, name, fill) => ({ type: "bar", yaxis: "y2", x, y: values, name, marker: { color: color(fill) }, hovertemplate: `%{x}, ${name}: %{y:.2f} σ<extra></extra>` });
    const traces = [{ x, y: excess, mode: "markers", name: "excess", marker: { color: color("on"), size: 7 }, error_y: errorBars(error, "on", { width: 4 }), hovertemplate: "%{x}: %{y:.1f}<extra></extra>" }, bars(cut, "cut", "off")];
    if (likelihood.some((value) => value !== null)) traces.push(bars(likelihood, "likelihood", "other"));
    return [traces, layout(plain(column), "excess / events", { barmode: "group", xaxis: { type: "category", anchor: "y2", automargin: true }, yaxis: { domain: [0.5, 1], rangemode: "tozero" },
      yaxis2: { ...axis, domain: [0, 0.42], title: { text: "significance / σ", standoff: 6 } } })];
  },
  sky(model) {
    const { half_width, n_pixels, region_radius, off_centers } = model.sky;
    const [stage, what] = (model.shownSky ?? firstSky(model)).split(" ");
    const layer = skyLayers(model)[stage];
    const { label, digits, diverging } = quantities[what];
    const axis = Array.from({ length: n_pixels }, (_, i) => -half_width + (2 * half_width * i) / (n_pixels - 1));
    const z = axis.map((_, row) => layer[what].slice(row * n_pixels, (row + 1) * n_pixels));
    const largest = Math.max(1, ...layer[what].filter((value) => value !== null).map(Math.abs));
    const circle = ([x, y], name, dash) => ({ type: "circle", x0: x - region_radius, x1: x + region_radius, y0: y - region_radius, y1: y + region_radius, line: { color: color(name), width: 2, dash } });
    const scale = diverging ? { zmin: -largest, zmax: largest, colorscale: [[0, color("off")], [0.5, color("paper")], [1, color("on")]] }
      : { zmin: 0, colorscale: [[0, color("paper")], [1, color("off")]] };
    return [[{ type: "heatmap", name: what, x: axis, y: axis, z, ...scale, colorbar: { thickness: narrow.matches ? 10 : 16, outlinewidth: 0 },
      hoverongaps: false, hovertemplate: `%{x:.2f}° east, %{y:.2f}° north: %{z:.${digits}f}<extra></extra>` }],
    layout("east of the source / deg", "north of the source / deg", { xaxis: { range: [half_width, -half_width], constrain: "domain", showgrid: false, zeroline: false }, yaxis: { range: [-half_width, half_width], scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false },
      shapes: [...off_centers.map((center) => circle(center, "muted", "dot")), circle([0, 0], "text", "solid")], margin: { l: narrow.matches ? 44 : 60, r: 10, t: 34, b: 48 },
      height: print.matches ? 384 : Math.round(Math.min(544, 0.92 * document.documentElement.clientWidth)),
      title: { text: `${label}, ${stage} events`, font: { size: 13 }, x: 0.5, y: 0.985, yanchor: "top" } })];
  },
});
const skyLayers = (model) => ({ ...(data.sky ? { all: data.sky } : {}), ...model.sky.layers });
const firstSky = (model) => `${"selected" in skyLayers(model) ? "selected" : "all"} significance`;
