// Where the time goes: each step's phases as columns, and a traced step in full, lane by lane.
import { colour, duration, h, number, sharp, tip } from "./dom.js";
import { ask, focusRun, listen } from "./state.js";
import { ORDER, phaseColour, phaseName } from "./phases.js";
import { traceView } from "./trace.js";

const STEPS = 400;
const OUTSIDE = new Set(["testing", "save_checkpoint"]);  // not part of a step's own time
// 1, 2 or 5 times a power of ten.
function roundUp(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= least);
}

export function timelineView(main) {
  const canvas = h("canvas", { role: "img", "aria-label": "Seconds of each phase by step" });
  const legend = h("div", { class: "legend" });
  const heading = h("span", { class: "faint" });
  const traces = h("div", {});
  main.append(h("section", { class: "card panel" }, h("header", {}, h("h2", {}, "Phases of each step"), heading), canvas, legend), traces);
  let data = null, left = false, geometry = null, tracedRun = null, tracedSteps = "";

  async function load() {
    const run = focusRun();
    if (!run) return;
    const answer = await ask("rows", { run: run.id, prefix: "timing_s/", most: STEPS }).catch(() => null);
    if (!answer || left) return;
    data = columns(answer);
    draw();
    if (tracedRun !== run.id || tracedSteps !== run.traces.join()) {
      tracedRun = run.id;
      tracedSteps = run.traces.join();
      traceView(traces, run);
    }
  }

  function columns(answer) {
    const named = Object.entries(answer.columns).map(([name, values]) => [name.slice("timing_s/".length), values.map((v) => v ?? 0)]);
    const step = named.find(([name]) => name === "step")?.[1] ?? [];
    const phases = named.filter(([name]) => name !== "step");
    const place = (name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
    phases.sort((a, b) => place(a[0]) - place(b[0]) || a[0].localeCompare(b[0]));
    const idle = answer.steps.map((_, i) => Math.max(0, (step[i] ?? 0) - phases.reduce((sum, [name, values]) => sum + (OUTSIDE.has(name) ? 0 : values[i]), 0)));
    const at = phases.findIndex(([name]) => OUTSIDE.has(name));
    phases.splice(at < 0 ? phases.length : at, 0, ["idle", idle]);
    const shown = phases.filter(([, values]) => values.some((v) => v > 0));
    return { steps: answer.steps, phases: shown.map(([name, values]) => ({ name, values, total: values.reduce((a, b) => a + b, 0) })) };
  }

  function draw() {
    const width = canvas.parentElement.clientWidth - 32, height = 250, foot = 20, margin = 44;
    if (!data || width < 50) return;
    const context = sharp(canvas, width, height);
    context.clearRect(0, 0, width, height);
    const sums = data.steps.map((_, i) => data.phases.reduce((sum, phase) => sum + phase.values[i], 0));
    const most = Math.max(...sums, 1e-9), per = (width - margin) / Math.max(1, data.steps.length), gap = per > 6 ? 2 : per > 3 ? 1 : 0;
    const bar = Math.min(per, 44);
    context.font = `11px ${colour("--sans")}`;
    for (const share of [0, 0.5, 1]) {
      const y = (height - foot) * (1 - share * 0.94);
      context.fillStyle = colour("--faint");
      context.fillText(share === 0 ? "0" : duration(most * share), 0, y - (share === 0 ? 2 : -4));
      context.fillStyle = colour("--line");
      context.fillRect(margin, Math.round(y), width - margin, 1);
    }
    data.steps.forEach((step, i) => {
      let y = height - foot;
      for (const phase of data.phases) {
        const tall = (phase.values[i] / most) * (height - foot) * 0.94;
        context.fillStyle = phaseColour(phase.name);
        context.fillRect(margin + i * per, y - tall, Math.max(0.6, bar - gap), Math.max(0, tall - (tall > 3 ? 0.5 : 0)));
        y -= tall;
      }
    });
    context.fillStyle = colour("--faint");
    const mark = (text, x) => context.fillText(text, Math.min(x, width - context.measureText(text).width), height - 5);
    const every = roundUp(data.steps.length / Math.max(1, (width - margin) / 70));
    data.steps.forEach((step, i) => (step % every === 0 || i === 0 && every > data.steps.length) && mark(String(step), margin + i * per));
    geometry = { margin, per, sums };
    const whole = sums.reduce((a, b) => a + b, 0) || 1;
    heading.textContent = data.steps.length ? `steps ${data.steps[0]} to ${data.steps.at(-1)} · ${duration(whole)}` : "no timings yet";
    legend.replaceChildren(...data.phases.map((phase) => h("span", { style: { "--run": phaseColour(phase.name) } },
      h("b", {}, `${phaseName(phase.name)} `), `${(100 * phase.total / whole).toFixed(1)} % · ${duration(phase.total / data.steps.length)} a step`)));
  }

  canvas.addEventListener("mousemove", (event) => {
    if (!geometry) return;
    const i = Math.floor((event.offsetX - geometry.margin) / geometry.per);
    if (!(i >= 0 && i < data.steps.length)) return tip(null);
    const lines = data.phases.filter((phase) => phase.values[i] > 0).map((phase) => `${phaseName(phase.name)}: ${duration(phase.values[i])}`);
    tip(`step ${number(data.steps[i])}: ${duration(geometry.sums[i])}\n${lines.join("\n")}`, event);
  });
  canvas.addEventListener("mouseleave", () => tip(null));
  const sizes = new ResizeObserver(draw);
  sizes.observe(canvas.parentElement);
  const stop = listen((what) => (what === "look" ? draw() : what !== "clock" && load()));
  load();
  return {
    leave() {
      left = true;
      tip(null);
      stop();
      sizes.disconnect();
    },
  };
}
