// Elements and words. Text only ever becomes text: samples hold whatever a model wrote.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return value.toLocaleString("en");
  if (size >= 1e6) return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return value.toPrecision(size >= 1 ? 4 : 3);
}

export function duration(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}

export function ago(unixSeconds) {
  const seconds = Date.now() / 1000 - unixSeconds;
  if (!(unixSeconds > 0)) return "";
  return seconds < 5 ? "now" : `${duration(Math.round(seconds)).replace(/ (\d+ (s|min|h))$/, "")} ago`;
}

export function segments(label, options, chosen, onchoose) {
  const buttons = options.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text));
  const group = h("span", { class: "segments", role: "group", "aria-label": label }, buttons);
  function choose(value) {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(options[i][0] === value)));
    onchoose(value);
  }
  return group;
}

export function fact(name, value, props = {}) {
  return h("div", { class: `fact ${props.class ?? ""}` }, h("small", {}, name), h("b", {}, value));
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A canvas as sharp as the screen; returns its context in CSS pixels.
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

let tipElement = null;
export function tip(text, event) {
  if (!text) {
    tipElement?.remove();
    tipElement = null;
    return;
  }
  tipElement ??= document.body.appendChild(h("div", { class: "tip", role: "tooltip" }));
  tipElement.textContent = text;
  const { offsetWidth: width, offsetHeight: height } = tipElement;
  tipElement.style.left = `${Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tipElement.style.top = `${event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
}
