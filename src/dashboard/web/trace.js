// A traced step: lanes of spans on one clock, drawn on a canvas; wheel or + and - zoom, dragging moves.
import { colour, duration, h, number, segments, sharp, tip } from "./dom.js";
import { ask, isDark, listen } from "./state.js";
import { phaseColour } from "./phases.js";

const ORDER = ["phases", "scheduler", "work", "collectives", "kernels"];  // of a rank's lanes
const ROW = 20, LANE_GAP = 12, NAME = 92, AXIS = 22;

export function traceView(place, run) {
  place.replaceChildren();
  if (run.traces.length === 0) {
    place.append(h("p", { class: "faint" }, "No step of this run was traced. ", h("code", {}, "trainer.profile.steps=[3,4]"), " writes every phase, scheduler pass and micro-batch of steps 3 and 4."));
    return;
  }
  const body = h("div", {});
  const shown = run.traces.slice(-8);
  const load = async (step) => {
    const trace = await ask("trace", { run: run.id, step }).catch(() => null);
    body.replaceChildren(trace ? traceCanvas(trace) : h("p", { class: "bad" }, "This trace cannot be read."));
    save.href = `api/trace?${new URLSearchParams({ run: run.id, step })}`;
    save.download = `trace_step_${step}.json`;
  };
  const save = h("a", {}, "Save for Perfetto");
  place.append(h("section", { class: "card panel" },
    h("header", {}, h("h2", {}, "Traced step"), segments("Step", shown.map((step) => [step, String(step)]), shown.at(-1), load), h("span", { class: "faint" }, "scroll to zoom, drag to move"), h("span", { style: { flex: "1" } }), save), body));
  load(shown.at(-1));
}

function lanesOf(trace) {
  const names = new Map(), lanes = new Map();
  for (const event of trace.traceEvents)
    if (event.ph === "M" && event.name === "thread_name") names.set(`${event.pid}/${event.tid}`, event.args.name);
  const ranks = new Set();
  for (const event of trace.traceEvents) {
    if (event.ph !== "X" && event.ph !== "i") continue;
    const key = `${event.pid}/${event.tid}`;
    ranks.add(event.pid);
    if (!lanes.has(key)) lanes.set(key, { rank: event.pid, name: names.get(key) ?? key, events: [], depth: 1 });
    lanes.get(key).events.push({ name: event.name, begin: event.ts, end: event.ts + (event.dur ?? 0), args: event.args ?? {}, instant: event.ph === "i" });
  }
  for (const lane of lanes.values()) {
    lane.events.sort((a, b) => a.begin - b.begin || b.end - a.end);
    const open = [];
    for (const event of lane.events) {
      while (open.length && open.at(-1).end <= event.begin + 0.5) open.pop();
      event.depth = open.length;
      if (!event.instant) open.push(event);
      lane.depth = Math.max(lane.depth, event.depth + 1);
    }
    lane.place = ORDER.indexOf(lane.name) < 0 ? ORDER.length : ORDER.indexOf(lane.name);
    if (ranks.size > 1) lane.name = `${lane.rank} ${lane.name}`;
  }
  return [...lanes.values()].sort((a, b) => a.rank - b.rank || a.place - b.place);
}

// Within "step", where no other phase is open.
function gapsOf(lanes) {
  const phases = lanes.find((lane) => lane.name.endsWith("phases"));
  const step = phases?.events.find((event) => event.name === "step");
  if (!step) return [];
  const gaps = [];
  let at = step.begin;
  for (const event of phases.events) {
    if (event === step || event.begin >= step.end || event.end <= step.begin) continue;
    if (event.begin > at) gaps.push([at, event.begin]);
    at = Math.max(at, event.end);
  }
  if (step.end > at) gaps.push([at, step.end]);
  return gaps;
}

function traceCanvas(trace) {
  const lanes = lanesOf(trace), gaps = gapsOf(lanes);
  const begin = Math.min(...lanes.flatMap((lane) => lane.events.map((event) => event.begin)), 0);
  const end = Math.max(...lanes.flatMap((lane) => lane.events.map((event) => event.end)), begin + 1);
  const height = AXIS + lanes.reduce((sum, lane) => sum + lane.depth * ROW + LANE_GAP, 0);
  const canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": "Spans of the step by lane" });
  const idle = gaps.reduce((sum, [a, b]) => sum + b - a, 0);
  const largest = [...gaps].sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, 3);
  const words = h("p", { class: "faint", style: { "margin-top": "8px", "font-size": "12.5px" } },
    gaps.length ? `Between phases: ${duration(idle / 1e6)} of ${duration((end - begin) / 1e6)}; the longest gaps: ${largest.map(([a, b]) => `${duration((b - a) / 1e6)} at ${duration(a / 1e6)}`).join(", ")}.` : "");
  let view = [begin, end], boxes = [], width = 0;

  function draw() {
    width = canvas.parentElement?.clientWidth ?? 0;
    if (width < 60) return;
    const context = sharp(canvas, width, height);
    const toX = (time) => NAME + ((time - view[0]) / (view[1] - view[0])) * (width - NAME);
    boxes = [];
    context.clearRect(0, 0, width, height);
    context.font = `11px ${colour("--sans")}`;
    context.textBaseline = "middle";
    for (let i = 0; i <= 5; ++i) {
      context.fillStyle = colour("--faint");
      const time = view[0] + ((view[1] - view[0]) * i) / 5;
      context.textAlign = i === 0 ? "left" : i === 5 ? "right" : "center";
      context.fillText(duration((time - begin) / 1e6), toX(time), 9);
      context.fillStyle = colour("--line");
      context.fillRect(Math.round(toX(time)), AXIS - 4, 1, height);
    }
    context.textAlign = "left";
    let y = AXIS;
    for (const lane of lanes) {
      context.fillStyle = colour("--soft");
      context.fillText(lane.name, 0, y + ROW / 2, NAME - 8);
      context.save();
      context.beginPath();
      context.rect(NAME, y, width - NAME, lane.depth * ROW);
      context.clip();
      if (lane.name.endsWith("phases")) {
        context.fillStyle = colour("--grid");
        for (const [a, b] of gaps) context.fillRect(toX(a), y + ROW, toX(b) - toX(a), Math.max(1, lane.depth - 1) * ROW - 1);
      }
      for (const event of lane.events) {
        const x = toX(event.begin), wide = Math.max(event.instant ? 2 : 1, toX(event.end) - x - 0.6);
        if (x > width || x + wide < NAME) continue;
        const top = y + event.depth * ROW;
        context.fillStyle = phaseColour(event.name);
        context.globalAlpha = event.instant ? 0.8 : 1;
        context.fillRect(x, top, wide, ROW - 2);
        context.globalAlpha = 1;
        boxes.push([x, top, Math.max(wide, 3), event]);
        if (wide > 34) {
          context.fillStyle = event.name === "step" ? colour("--text") : isDark() ? "#101114" : "#fff";
          context.save();
          context.beginPath();
          context.rect(x, top, wide - 3, ROW);
          context.clip();
          context.fillText(event.name.replace(/^.* (?=micro-batch)/, ""), Math.max(x, NAME) + 5, top + ROW / 2 - 1);
          context.restore();
        }
      }
      context.restore();
      y += lane.depth * ROW + LANE_GAP;
    }
  }

  const zoom = (factor, share) => {
    const at = view[0] + (view[1] - view[0]) * share, span = Math.min(end - begin, Math.max(20, (view[1] - view[0]) * factor));
    move(at - span * share, span);
  };
  const move = (from, span) => {
    const first = Math.max(begin, Math.min(from, end - span));
    view = [first, first + span];
    draw();
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(0, (event.offsetX - NAME) / (width - NAME)));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const span = view[1] - view[0];
    if (event.key === "+" || event.key === "=") zoom(0.7, 0.5);
    else if (event.key === "-") zoom(1.4, 0.5);
    else if (event.key === "ArrowLeft") move(view[0] - span / 8, span);
    else if (event.key === "ArrowRight") move(view[0] + span / 8, span);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => {
    dragged = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => (dragged = null));
  canvas.addEventListener("pointermove", (event) => {
    if (dragged !== null) {
      const span = view[1] - view[0];
      move(view[0] - ((event.offsetX - dragged) / (width - NAME)) * span, span);
      dragged = event.offsetX;
    }
    const hit = boxes.findLast(([x, top, wide]) => event.offsetX >= x && event.offsetX <= x + wide && event.offsetY >= top && event.offsetY < top + ROW)?.[3];
    if (!hit) return tip(null);
    const more = Object.entries(hit.args).map(([name, value]) => `${name}: ${number(value)}`);
    tip([hit.name, hit.instant ? `at ${duration(hit.begin / 1e6)}` : `${duration((hit.end - hit.begin) / 1e6)}, from ${duration(hit.begin / 1e6)}`, ...more].join("\n"), event);
  });
  canvas.addEventListener("pointerleave", () => tip(null));
  const holder = h("div", {}, canvas, words);
  new ResizeObserver(draw).observe(holder);
  const stop = listen((what) => (holder.isConnected ? what === "look" && draw() : stop()));
  return holder;
}
