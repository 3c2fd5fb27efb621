// The grid of linked charts: one cursor and one range for all, several runs in each.
import { duration, fact, h, number, segments } from "./dom.js";
import { ask, chosenRuns, focusRun, listen, remember, runColour, state, tell } from "./state.js";
import { LinkedChart } from "./chart.js";
import { GROUPS, titleOf } from "./metrics.js";

const AT_ONCE = 12, AT_FIRST = 6;  // charts a question; the first one is small, so that something is there soon
const MOST_BANDS = 6;              // of more runs only the focus has its band: twenty would be a fog, and slow to draw

// Validations are few, and each is a mean over many samples already.
const smoothingOf = (metric) => (/^val[-/]/.test(metric) ? 0 : state.smoothing);

export function chartsView(main) {
  const facts = h("div", { class: "facts" });
  const groups = h("div", {});
  const charts = new Map();  // metric -> LinkedChart
  const visible = new Set(), stale = new Set();
  let asking = false, left = false, first = true;

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const { metric } = entry.target.dataset;
      if (entry.isIntersecting) visible.add(metric);
      else visible.delete(metric);
    }
    refresh();
  }, { rootMargin: "300px" });

  const smoothing = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: state.smoothing, "aria-label": "Smoothing",
    oninput: () => setSmoothing(Number(smoothing.value)) });
  const smoothingText = h("span", { class: "num", style: { width: "30px" } }, state.smoothing.toFixed(2));
  const find = h("input", { class: "field", type: "search", placeholder: "Find a metric", value: state.find, "aria-label": "Find a metric", "data-find": true,
    oninput: () => { state.find = find.value; build(); } });
  const whole = h("button", { class: "button", type: "button", hidden: true, onclick: () => setRange(null) }, "Whole range");
  let xs, which;
  const tools = h("div", { class: "tools" });
  function drawTools() {
    xs = segments("Horizontal axis", [["step", "Steps"], ["time", "Time"]], state.x, setX);
    which = segments("Metrics", [[false, "Key"], [true, "All"]], state.all, setAll);
    tools.replaceChildren(which, xs, h("label", {}, "Smoothing", smoothing, smoothingText), whole, h("span", { class: "grow" }), find);
  }
  drawTools();
  main.append(facts, tools, groups);

  function setSmoothing(value) {
    state.smoothing = Math.min(0.99, Math.max(0, value));
    smoothing.value = state.smoothing;
    smoothingText.textContent = state.smoothing.toFixed(2);
    remember("smoothing", state.smoothing);
    everythingStale();
  }
  function setX(x) {
    state.x = x;
    setRange(null);
  }
  function setAll(all) {
    state.all = all;
    build();
  }
  function setRange(range) {
    state.range = range;
    whole.hidden = range === null;
    everythingStale();
  }

  function everythingStale() {
    for (const metric of charts.keys()) stale.add(metric);
    refresh();
  }

  // Key metrics in their groups, or all of them by what stands before the slash.
  function wanted() {
    const there = new Set(chosenRuns().flatMap((run) => run.metrics));
    const matches = (metric) => `${metric} ${titleOf(metric)}`.toLowerCase().includes(state.find.trim().toLowerCase());
    const searching = state.find.trim() !== "";
    if (!state.all && !searching) {
      const core = [...there].filter((metric) => metric.startsWith("val-core/") && metric.includes("/mean@"));
      return GROUPS.map(([name, metrics]) => [name, metrics.flatMap((metric) => metric === "val-core" ? core.slice(0, 4) : there.has(metric) ? [metric] : [])])
        .filter(([, metrics]) => metrics.length > 0);
    }
    const byPrefix = new Map();
    for (const metric of there) {
      if (!matches(metric)) continue;
      const prefix = metric.includes("/") ? metric.slice(0, metric.indexOf("/")) : "other";
      byPrefix.set(prefix, [...(byPrefix.get(prefix) ?? []), metric]);
    }
    return [...byPrefix];
  }

  function build() {
    for (const chart of charts.values()) {
      seen.unobserve(chart.element);
      chart.destroy();
    }
    charts.clear();
    visible.clear();
    stale.clear();
    const sections = wanted().map(([name, metrics]) => h("section", { class: "group" },
      h("h2", {}, name, h("small", {}, String(metrics.length))),
      h("div", { class: "grid" }, metrics.map((metric) => {
        const chart = new LinkedChart(metric, titleOf(metric), { onrange: setRange, onwide: () => { stale.add(metric); refresh(); } });
        chart.element.dataset.metric = metric;
        charts.set(metric, chart);
        return chart.element;
      }))));
    groups.replaceChildren(...sections);
    if (sections.length === 0) groups.append(h("div", { class: "empty" }, state.find ? "No metric of that name." : "Choose a run at the side."));
    for (const [metric, chart] of charts) {
      stale.add(metric);
      seen.observe(chart.element);
    }
    // The first ones are at the top: what they show is on its way before the page has been laid out.
    for (const metric of [...charts.keys()].slice(0, AT_FIRST)) visible.add(metric);
    refresh();
  }

  // Only what is on the screen is asked for, a screenful at a time.
  async function refresh() {
    if (asking || left) return;
    const waiting = [...visible].filter((metric) => stale.has(metric));
    const next = waiting.filter((metric) => smoothingOf(metric) === smoothingOf(waiting[0])).slice(0, first ? AT_FIRST : AT_ONCE);
    if (next.length === 0) return;
    asking = true;
    first = false;
    for (const metric of next) stale.delete(metric);
    const runs = chosenRuns();
    const pieces = runs.length > 10 ? 160 : runs.length > MOST_BANDS ? 240 : 420;
    const band = runs.length > MOST_BANDS ? [state.focus] : null;
    try {
      const answer = await ask("series", { metric: next, run: runs.map((run) => run.id), band, pieces,
        smoothing: smoothingOf(next[0]), x: state.x, begin: state.range?.[0], end: state.range?.[1] });
      for (const metric of next) {
        if (left) return;
        if (answer[metric]) charts.get(metric)?.update(answer[metric], runs);
        await new Promise(requestAnimationFrame);  // a chart a frame: the page stays quick
      }
    } catch { /* the next change asks again */ }
    asking = false;
    if (!left) refresh();
  }

  async function drawFacts() {
    const run = focusRun();
    if (!run) return facts.replaceChildren();
    const last = await ask("rows", { run: run.id, prefix: "", most: 1 }).catch(() => null);
    if (!last || left) return;
    const value = (...names) => names.map((name) => last.columns[name]?.[0]).find((v) => v !== undefined && v !== null);
    const validation = Object.entries(last.columns).find(([name, [v]]) => name.startsWith("val-core/") && name.includes("/mean@") && v !== null);
    const rows = [["Step", number(run.last_step)], ["Reward", value("critic/score/mean")], ["Loss", value("train/loss")],
      ["Validation", validation?.[1][0]], ["Response tokens", value("response_length/mean")], ["Tokens / s", value("perf/throughput")],
      ["Seconds / step", value("perf/time_per_step", "timing_s/step")], ["Trained for", duration(run.seconds)]];
    facts.replaceChildren(h("div", { class: "fact name" }, h("small", {}, "Run"), h("b", { class: "swatch", style: { "--run": runColour(run.id) } }, run.id)),
      ...rows.filter(([, v]) => v !== undefined).map(([name, v]) => fact(name, typeof v === "string" ? v : number(v))));
  }

  let shown = "";
  const stop = listen((what) => {
    if (what === "clock") return;
    const now = wanted().flat(2).join("\n");
    if (now !== shown || what === "chosen" || what === "runs") {
      shown = now;
      build();
    } else {
      if (what === "look") for (const chart of charts.values()) chart.restyle();
      everythingStale();
    }
    drawFacts();
  });
  shown = wanted().flat(2).join("\n");
  build();
  drawFacts();

  return {
    leave() {
      left = true;
      stop();
      seen.disconnect();
      for (const chart of charts.values()) chart.destroy();
    },
    onKey(key) {
      if (key === "[" || key === "]") setSmoothing(Math.round((state.smoothing + (key === "]" ? 0.05 : -0.05)) * 100) / 100);
      else if (key === "x") {
        setX(state.x === "step" ? "time" : "step");
        drawTools();
      } else if (key === "a") {
        setAll(!state.all);
        drawTools();
      } else if (key === "Escape" && state.range) setRange(null);
      else return false;
      return true;
    },
  };
}
