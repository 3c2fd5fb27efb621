// A phase has one name and one colour wherever it is drawn.
import { colour } from "./dom.js";
import { paletteColour } from "./state.js";

export const ORDER = ["gen", "gen_max", "reward", "ref", "values", "adv", "update_critic", "update_actor", "data_wait", "testing", "save_checkpoint"];
const PLACES = { gen: 0, gen_max: 4, reward: 1, ref: 2, values: 8, adv: 9, update_critic: 7, update_actor: 3, update: 3, data_wait: 6, testing: 5, save_checkpoint: 4,
  prefill: 7, decode: 0, response: 0 };
const NAMES = { gen: "sampling", gen_max: "greedy baseline", reward: "waiting for rewards", ref: "reference", values: "values", adv: "advantages",
  update_critic: "critic's update", update_actor: "policy's update", data_wait: "waiting for data", testing: "validation", save_checkpoint: "checkpoint", idle: "between phases" };

export const phaseName = (phase) => NAMES[phase] ?? phase;

export function phaseColour(phase) {
  if (phase === "idle" || phase === "step") return colour("--line-strong");
  const of = phase.endsWith(" micro-batch") ? phase.slice(0, -" micro-batch".length) : phase;
  return paletteColour(PLACES[of] ?? [...of].reduce((sum, sign) => sum + sign.charCodeAt(0), 0));
}
