// One chart of several runs: for each a band from the least to the greatest value of a piece, and the smoothed line.
import { colour, duration, h, number } from "./dom.js";
import { isDark, runColour, state } from "./state.js";

const uPlot = window.uPlot;
const SYNC = uPlot.sync("charts");
const MOST_VALUES = 6;

const axisNumber = (value) => {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e4) return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
  if (size < 1e-3) return value.toExponential(0);
  return String(Number(value.toPrecision(4)));
};

// uPlot parses no colour-mix: a hex colour and its alpha as eight digits.
const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

export class LinkedChart {
  constructor(metric, title, { onrange, onwide }) {
    this.metric = metric;
    this.onrange = onrange;
    this.log = false;
    this.values = h("div", { class: "values" });
    this.box = h("div", { class: "plot" });
    const logButton = h("button", { type: "button", "aria-pressed": "false", title: "Logarithmic", onclick: () => {
      this.log = !this.log;
      logButton.setAttribute("aria-pressed", String(this.log));
      this.restyle();
    } }, "log");
    const wideButton = h("button", { type: "button", "aria-pressed": "false", title: "Over the whole width", onclick: () => {
      wideButton.setAttribute("aria-pressed", String(this.element.classList.toggle("wide")));
      onwide();
    } }, "wide");
    this.element = h("figure", { class: "card chart", style: { margin: "0" }, role: "group", "aria-label": title },
      h("header", {}, h("h3", {}, title), h("code", { title: metric }, metric), logButton, wideButton), this.values, this.box);
    // Asking the element itself would lay the page out for every chart.
    this.sizes = new ResizeObserver(([{ contentRect: { width, height } }]) => {
      this.known = { width: Math.max(80, Math.floor(width)), height: Math.max(80, Math.floor(height)) };
      if (this.plot && (this.plot.width !== this.known.width || this.plot.height !== this.known.height)) this.plot.setSize(this.known);
    });
    this.sizes.observe(this.box);
  }

  size() {
    return this.known ?? { width: Math.max(80, this.box.clientWidth), height: Math.max(80, this.box.clientHeight) };
  }

  update(answer, runs) {
    const there = runs.filter((run) => answer.runs[run.id]);
    // The focus is drawn last, over the others.
    there.sort((a, b) => (a.id === state.focus) - (b.id === state.focus));
    const data = [answer.x];
    this.smooth = new Map();  // run -> where its line stands in the data
    for (const run of there) {
      const { low, high, smooth } = answer.runs[run.id];
      if (low) data.push(low, high);
      this.smooth.set(run.id, data.push(smooth) - 1);
    }
    const look = [there.map((run) => `${run.id} ${run.id === state.focus}`).join("\n"), isDark(), state.x, this.log].join("\n");
    this.runs = there;
    this.data = data;
    if (this.plot && this.look === look) {
      this.plot.setData(data);
    } else {
      this.look = look;
      this.make();
    }
    this.showValues(null);
  }

  restyle() {
    this.look = null;
    if (this.data) this.make();
  }

  make() {
    this.plot?.destroy();
    const faint = colour("--faint"), grid = colour("--grid");
    const font = `11px ${colour("--sans")}`;
    const byTime = state.x === "time";
    const many = this.runs.length > 5;
    const axis = { stroke: faint, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, border: { show: false } };
    const series = [{}], bands = [];
    for (const run of this.runs) {
      const stroke = runColour(run.id), focus = run.id === state.focus;
      const edge = { stroke: faded(stroke, many ? 0.08 : this.runs.length > 2 ? 0.2 : 0.32), width: 1, points: { show: false }, spanGaps: true };
      if (this.smooth.get(run.id) - series.length === 2) {
        bands.push({ series: [series.length + 1, series.length], fill: faded(stroke, many ? 0.06 : 0.13) });
        series.push(edge, { ...edge });
      }
      series.push({ stroke: faded(stroke, many && !focus ? 0.75 : 1), width: focus ? 2 : many ? 1 : 1.4, spanGaps: true, points: { size: 5, fill: stroke } });
    }
    this.plot = new uPlot({
      ...this.size(),
      series, bands,
      legend: { show: false },
      padding: [8, 6, 0, 0],
      scales: { x: { time: false }, y: { distr: this.log ? 3 : 1, range: this.log ? undefined : padded } },
      axes: [
        { ...axis, size: 26, space: 64, grid: { show: false }, values: (_, ticks) => ticks.map(byTime ? duration : axisNumber) },
        { ...axis, size: 50, space: 34, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : axisNumber(tick))) },
      ],
      cursor: { sync: { key: SYNC.key, scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, points: { size: 6 }, focus: { prox: -1 } },
      hooks: {
        setCursor: [(plot) => this.showValues(plot.cursor.idx)],
        setSelect: [(plot) => {
          if (plot.select.width < 4) return;
          const range = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          // Every chart of the cursor's group hears of it; the one below the pointer speaks.
          if (this.box.matches(":hover")) this.onrange(range);
        }],
      },
    }, this.data, this.box);
  }

  // At the cursor, or the newest ones.
  showValues(index) {
    if (!this.data) return;
    const x = index === null || index === undefined ? null : this.data[0][index];
    const spans = [];
    for (let i = this.runs.length - 1; i >= 0 && spans.length < MOST_VALUES; --i) {
      const smooth = this.data[this.smooth.get(this.runs[i].id)];
      const value = x === null ? smooth.findLast((v) => v !== null) : smooth[index];
      if (value === null || value === undefined) continue;
      spans.push(h("span", { style: { "--run": runColour(this.runs[i].id) }, title: this.runs[i].id }, number(value)));
    }
    if (x !== null && x !== undefined) spans.push(h("em", { class: "faint", style: { "font-style": "normal" } }, state.x === "time" ? duration(x) : `step ${number(x)}`));
    this.values.replaceChildren(...spans);
  }

  destroy() {
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

function padded(_, low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === high) return low === 0 ? [-0.5, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  const room = (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}
