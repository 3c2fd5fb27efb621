// Before the first paint, so that a dark page never flashes light.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("tandem-theme");
  } catch { /* storage may be off */ }
  document.documentElement.dataset.theme =
    chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
