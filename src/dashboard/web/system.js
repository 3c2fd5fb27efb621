// The machine that serves this page: processors, memory, disk, over the last ten minutes.
import { colour, fact, h, number } from "./dom.js";
import { ask, listen, paletteColour } from "./state.js";

const uPlot = window.uPlot;
const EVERY = 2000;
const METERS = [
  ["Processors busy, %", (answer) => answer.cpu.map((share) => 100 * share), () => 100],
  ["Load, 1 min", (answer) => answer.load, () => null],
  ["Memory used, GB", (answer) => answer.memory_used_gb, (answer) => answer.memory_total_gb.at(-1)],
  ["Disk free, GB", (answer) => answer.disk_free_gb, () => null],
];

const gpuMeters = (answer) => answer.gpus.flatMap((_, i) => [
  [`GPU ${i} busy, %`, (now) => now.gpus[i].busy.map((share) => 100 * share), () => 100],
  [`GPU ${i} memory, GB`, (now) => now.gpus[i].memory_used_gb, (now) => now.gpus[i].memory_total_gb.at(-1)],
]);

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

export function systemView(main) {
  const facts = h("div", { class: "facts" });
  const grid = h("div", { class: "grid" });
  main.append(facts, grid);
  let meters = [], charts = [];

  function build(wanted) {
    for (const chart of charts) chart.plot?.destroy();
    meters = wanted;
    charts = meters.map(() => ({ box: h("div", { class: "plot" }), value: h("div", { class: "values" }), plot: null }));
    grid.replaceChildren(...meters.map(([title], i) => h("figure", { class: "card chart", style: { margin: "0" } }, h("header", {}, h("h3", {}, title)), charts[i].value, charts[i].box)));
  }

  function make(chart, place, data, top) {
    chart.plot?.destroy();
    const axis = { stroke: colour("--faint"), font: `11px ${colour("--sans")}`, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const tint = paletteColour(place);
    chart.plot = new uPlot({
      width: Math.max(80, chart.box.clientWidth), height: Math.max(80, chart.box.clientHeight), legend: { show: false }, padding: [8, 6, 0, 0],
      series: [{}, { stroke: tint, width: 1.6, fill: `${tint}1f`, points: { show: false } }],
      scales: { y: { range: (_, low, high) => [0, top ?? Math.max(high * 1.15, 1)] } },
      axes: [{ ...axis, size: 26, space: 80, grid: { show: false }, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 46 }],
      cursor: { sync: { key: "meters" }, drag: { x: false, y: false }, y: false },
    }, data, chart.box);
  }

  async function load(anew) {
    const answer = await ask("system").catch(() => null);
    if (!answer || !grid.isConnected || answer.time.length === 0) return;
    if (meters.length !== METERS.length + 2 * answer.gpus.length) build([...METERS, ...gpuMeters(answer)]);
    meters.forEach(([, values, top], i) => {
      const data = [answer.time, values(answer)];
      if (!charts[i].plot || anew) make(charts[i], i, data, top(answer));
      else charts[i].plot.setData(data);
      charts[i].value.textContent = number(data[1].at(-1));
    });
    facts.replaceChildren(fact("Processors", `${number(100 * answer.cpu.at(-1))} %`), fact("Memory", `${number(answer.memory_used_gb.at(-1))} of ${number(answer.memory_total_gb.at(-1))} GB`),
      fact("Disk free", `${number(answer.disk_free_gb.at(-1))} GB`), fact("Load", number(answer.load.at(-1))));
  }
  const timer = setInterval(() => load(false), EVERY);
  const sizes = new ResizeObserver(() => charts.forEach((chart) => chart.plot?.setSize({ width: chart.box.clientWidth, height: chart.box.clientHeight })));
  sizes.observe(grid);
  const stop = listen((what) => what === "look" && load(true));
  load(true);
  return {
    leave() {
      clearInterval(timer);
      sizes.disconnect();
      stop();
      for (const chart of charts) chart.plot?.destroy();
    },
  };
}
