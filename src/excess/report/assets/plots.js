// Plots of one model, by name: each takes the model and the stop of the slider, and returns traces and layout.
const plots = {
  curve(model, at) {
    const { explore } = model;
    const x = explore.threshold.map(Number);
    const traces = [
      { x: explore.curve.start, y: explore.curve.significance, mode: "lines", line: { color: color("off"), width: 2, shape: "hv" }, name: "hold-out events",
        hovertemplate: "threshold %{x:.4f}: %{y:.2f} σ<extra></extra>" },
    ];
    if (model.thresholds.length) {
      traces.push({ x: model.thresholds, y: model.thresholds.map(() => 0), mode: "markers", name: "tuned thresholds",
        marker: { symbol: "line-ns", size: 14, line: { width: 2, color: color("text") } }, hovertemplate: "tuned to %{x:.4f}<extra></extra>" });
    }
    if (at !== null) {
      traces.push({ x: [x[at]], y: [explore.height[at]], mode: "markers", name: "slider", marker: { color: color("on"), size: 13 }, hoverinfo: "skip" });
    }
    return [traces, layout("threshold on the score", "significance / σ", {
      xaxis: { range: [x[0], x[x.length - 1]] },
      shapes: [line({ xref: "paper", x0: 0, x1: 1, yref: "y", y0: model.cut_significance, y1: model.cut_significance, line: { color: color("found"), width: 1.5, dash: "dot" } })],
      annotations: [{ xref: "paper", x: 1, xanchor: "right", y: model.cut_significance, yanchor: "bottom", showarrow: false, text: `tuned cut: ${model.tuned.significance} σ`, font: { color: color("found") } }],
    })];
  },
  likelihood(model) {
    const { ticks, on, off, signal, significance, selected, texts } = model.likelihood;
    const x = on.map((_, i) => i);
    const edges = [...x.map((i) => i - 0.5), on.length - 0.5];
    const total = off.map((n, i) => n + signal[i]);
    const heights = [...on, ...off].filter((n) => n > 0);
    const log = heights.length > 0 && Math.max(...heights) > 10 * Math.min(...heights);
    const floor = log ? Math.min(...heights) / 2 : 0;
    const top = 1.1 * Math.max(1, ...total, ...on.map((n) => n + Math.sqrt(n)));
    const hover = { text: texts, hovertemplate: "%{text}<extra></extra>" };
    const steps = outline(edges, total.map((n) => Math.max(n, floor)));
    const bars = (wanted, fill) => ({ type: "bar", yaxis: "y2", showlegend: false, x: x.filter((i) => selected[i] === wanted), y: significance.filter((_, i) => selected[i] === wanted),
      marker: { color: fill, line: { color: color("other"), width: 1.5 } }, width: 0.8, text: texts.filter((_, i) => selected[i] === wanted), textposition: "none", hovertemplate: "%{text}<extra></extra>" });
    const axis = { gridcolor: color("grid"), linecolor: color("line"), zerolinecolor: color("line"), fixedrange: true };
    return [[
      { type: "bar", x, y: off, name: model.off_name, width: 1, marker: { color: color("off-fill"), line: { color: color("off"), width: 1.2 } }, ...hover, textposition: "none" },
      { x: steps.x.slice(1, -1), y: steps.y.slice(1, -1), mode: "lines", name: "+ fitted signal", line: { color: color("other"), width: 2 }, hoverinfo: "skip" },
      { x, y: on, mode: "markers", name: "On", marker: { color: color("on"), size: 7 }, error_y: { type: "data", array: on.map(Math.sqrt), color: color("on"), thickness: 1.2, width: 0 }, ...hover },
      bars(true, color("other")), bars(false, "rgba(0,0,0,0)"),
    ], layout("signal ratio (signal / background density)", "events", {
      barmode: "overlay",
      xaxis: { anchor: "y2", range: [-0.5, on.length - 0.5], tickvals: ticks.at, ticktext: ticks.text, ticks: "outside", tickangle: 0, showgrid: false, zeroline: false, tickfont: { size: narrow.matches ? 9 : 11 } },
      yaxis: { domain: [0.44, 1], type: log ? "log" : "linear", dtick: log ? 1 : undefined, range: log ? [Math.log10(floor), Math.log10(top)] : [0, top] },
      yaxis2: { ...axis, domain: [0, 0.38], title: { text: "significance / σ", standoff: 6 } },
    })];
  },
  light(model) {
    const { groups, strength, low, high } = model.light;
    const many = groups.length > 60;
    return [[{ x: groups.map(plain), y: strength, mode: "markers", marker: { color: color("other"), size: many ? 4 : 8 },
      error_y: { type: "data", symmetric: false, array: high.map((v, i) => v - strength[i]), arrayminus: low.map((v, i) => strength[i] - v), color: color("other"), thickness: 1.4, width: many ? 0 : 4 },
      customdata: low.map((v, i) => [v, high[i]]), hovertemplate: "%{x}: %{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})<extra></extra>" }],
    layout(many ? `${groups.length} groups in order` : "group", "strength / mean", { xaxis: { type: "category", automargin: true, showticklabels: !many }, yaxis: { rangemode: "tozero" }, showlegend: false,
      shapes: [line({ xref: "paper", x0: 0, x1: 1, yref: "y", y0: 1, y1: 1 })] })];
  },
  theta(model, at) {
    const { edges, scale, cut } = model.theta;
    const counts = at === null ? model.theta : { on: model.explore.theta.on[at], off: model.explore.theta.off[at] };
    const off = counts.off.map((n) => scale * n);
    const on = { x: middles(edges), y: counts.on, mode: "markers", name: "On", marker: { color: color("on"), size: 6 },
      error_y: { type: "data", array: counts.on.map(Math.sqrt), color: color("on"), thickness: 1.2, width: 0 }, hovertemplate: "%{x:.4f} deg²: On %{y}<extra></extra>" };
    return [[
      { ...outline(edges, off), mode: "lines", name: model.off_name, line: { color: color("off"), width: 1.5 }, fill: "tozeroy", fillcolor: color("off-fill"), hoverinfo: "skip" },
      on,
    ], layout("θ² / deg²", "events", { xaxis: { range: [0, edges[edges.length - 1]] }, yaxis: { rangemode: "tozero" }, shapes: [line({ x0: cut, x1: cut })],
      annotations: [{ x: cut, xanchor: "left", yref: "paper", y: 1, yanchor: "top", showarrow: false, text: ` θ² < ${cut}`, font: { color: color("muted") } }] })];
  },
  groups(model, at) {
    const rows = model.groups;
    const texts = at === null || !model.explore.groups ? null : model.explore.groups[at];
    const number = (text) => Number(text.replaceAll(",", ""));
    const value = texts ? texts.excess.map(number) : rows.map((row) => row.bar);
    const error = texts ? texts.excess_error.map(number) : rows.map((row) => row.bar_error);
    return [[{ type: "bar", x: rows.map((row) => plain(row.group)), y: value, marker: { color: color("off") }, name: "excess",
      error_y: { type: "data", array: error, color: color("text"), thickness: 1.2, width: rows.length > 60 ? 0 : 4, visible: rows.length <= 120 }, hovertemplate: "%{x}: %{y:.1f}<extra></extra>" }],
    layout(rows.length > 60 ? `${rows.length} groups in order` : "group", "excess / events", { xaxis: { type: "category", automargin: true, showticklabels: rows.length <= 60 }, showlegend: false, bargap: rows.length > 60 ? 0 : 0.4 })];
  },
  scores(model) {
    const { edges, on, off, scale } = model.scores;
    const scaled = off.map((n) => scale * n);
    const counts = [...on, ...scaled].filter((n) => n > 0);
    const log = Math.max(...counts) > 100 * Math.min(...counts);
    const floor = log ? Math.min(...counts) / 2 : 0;
    const shown = (values) => { const { x, y } = outline(edges, values); return { x, y: y.map((v) => Math.max(v, floor)) }; };
    return [[
      { ...shown(scaled), mode: "lines", name: model.off_name, line: { color: color("off"), width: 1.5 }, fill: log ? "none" : "tozeroy", fillcolor: color("off-fill"), hoverinfo: "skip" },
      { ...shown(on), mode: "lines", name: "On", line: { color: color("on"), width: 2 }, hoverinfo: "skip" },
    ], layout("score", "events", { yaxis: { type: log ? "log" : "linear", dtick: log ? 1 : undefined },
      shapes: model.thresholds.map((t) => line({ x0: t, x1: t, line: { color: color("muted"), width: 1, dash: "dot" } })) })];
  },
  time(model) {
    const { exposure, significance, unit } = model.time;
    const last = exposure.length - 1;
    const root = exposure.map((t) => significance[last] * Math.sqrt(t / exposure[last]));
    return [[
      { x: [0, ...exposure], y: [0, ...significance], mode: "lines", line: { color: color("off"), width: 2 }, name: "significance", hovertemplate: "%{x:.2f}: %{y:.2f} σ<extra></extra>" },
      { x: [0, ...exposure], y: [0, ...root], mode: "lines", line: { color: color("muted"), width: 1.5, dash: "dash" }, name: "∝ √t", hoverinfo: "skip" },
    ], layout(unit === "h" ? "observation time / h" : "hold-out events", "significance / σ", { xaxis: { rangemode: "tozero" } })];
  },
  importances(model) {
    const { names, values } = model.importances;
    return [[{ type: "bar", orientation: "h", x: values, y: names.map(plain), marker: { color: color("other") }, hovertemplate: "%{y}: %{x:.3f}<extra></extra>" }],
      layout("importance", "", { margin: { l: 20, r: 20, t: 10, b: 44 }, height: 80 + 18 * names.length, yaxis: { automargin: true, autorange: "reversed", type: "category", dtick: 1, tickfont: { size: narrow.matches ? 9 : 11 } }, showlegend: false })];
  },
  null(model) {
    const { regions, significances } = model.null;
    const band = (size, opacity) => ({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: -size, y1: size, fillcolor: color("off"), opacity, line: { width: 0 }, layer: "below" });
    return [[
      { x: regions, y: significances, mode: "markers", name: "Off regions", marker: { color: color("off"), size: 11 }, hovertemplate: "%{x}: %{y:.2f} σ<extra></extra>" },
      { x: ["On"], y: [model.significance], mode: "markers", name: model.strategy === "pooled" ? "On, pooled" : "On", marker: { color: color("on"), size: 13, symbol: "diamond" }, hovertemplate: "On: %{y:.2f} σ<extra></extra>" },
    ], layout("region", "significance / σ", { xaxis: { type: "category" }, shapes: [band(2, 0.1), band(1, 0.14)] })];
  },
  comparison() {
    const { names, cut, likelihood, n_uncut } = data.compared;
    const bars = (values, name, fill, more = {}) => ({ type: "bar", orientation: "h", name, offsetgroup: name, x: values, y: names.map(plain), marker: { color: fill }, ...more,
      text: values.map((v) => (v === null ? "" : ` ${v.toFixed(1)}`)), textposition: "outside", cliponaxis: false, hovertemplate: `%{y}, ${name}: %{x:.2f} σ<extra></extra>` });
    const some = (wanted) => cut.map((v, i) => (i < n_uncut) === wanted ? v : null);
    const traces = [bars(some(true), "no cut", color("muted"), { offsetgroup: "cut", showlegend: false }), bars(some(false), "cut", color("off"))];
    if (likelihood) traces.unshift(bars(likelihood, "likelihood", color("other")));
    return [traces, layout(`${data.models.every((model) => model.strategy === "pooled") ? "pooled " : ""}significance / σ`, "", { margin: { l: 20, r: 50, t: likelihood ? 34 : 10, b: 44 }, height: 90 + (likelihood ? 52 : 38) * names.length,
      yaxis: { automargin: true, autorange: "reversed", type: "category" }, showlegend: likelihood !== null, bargap: likelihood ? 0.3 : 0.45, bargroupgap: 0.08 })];
  },
};

// one feature of observed and simulated events
function panel(one) {
  const { edges, log, observed, observed_error, simulated, simulated_error, sample } = one;
  const [points, steps] = sample === "signal" ? [color("on"), color("other")] : [color("off"), color("muted")];
  const side = (values) => { const { x, y } = outline(edges, values); return { x: x.slice(1, -1), y: y.slice(1, -1) }; };
  const low = side(simulated.map((v, i) => v - simulated_error[i]));
  const high = side(simulated.map((v, i) => v + simulated_error[i]));
  const middle = edges.slice(1).map((edge, i) => (log ? Math.sqrt(edge * edges[i]) : (edge + edges[i]) / 2));
  // few round numbers below a logarithmic axis
  const roundNumbers = (factors) => Array.from({ length: 40 }, (_, i) => 10 ** (i - 20)).flatMap((unit) => factors.map((f) => Number((f * unit).toPrecision(2))))
    .filter((tick) => tick >= edges[0] && tick <= edges[edges.length - 1]);
  const ticks = [[1, 2, 3, 5], [1, 2, 5], [1, 3], [1]].map(roundNumbers).find((found, i) => found.length <= (narrow.matches ? 3 : 4) || i === 3);
  const axis = log ? { type: "log", tickvals: ticks, ticktext: ticks.map(String) } : { type: "linear", nticks: 5 };
  const none = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  return [[
    { ...low, ...none }, { ...high, ...none, fill: "tonexty", fillcolor: color("off-fill") },
    { ...side(simulated), mode: "lines", name: one.simulated_name, line: { color: steps, width: 1.5 }, hoverinfo: "skip" },
    { x: middle, y: observed, mode: "markers", name: one.observed_name, marker: { color: points, size: 5 },
      error_y: { type: "data", array: observed_error, color: points, thickness: 1.2, width: 0 }, hovertemplate: "%{x:.4g}: %{y:.3f}<extra></extra>" },
  ], layout("", "", { margin: { l: 42, r: 10, t: 6, b: 28 }, showlegend: false, xaxis: { ...axis, tickangle: 0 }, yaxis: { nticks: 4 } })];
}
