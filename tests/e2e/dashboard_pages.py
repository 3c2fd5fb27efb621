"""The dashboard's pages in a headless Chromium: load, live, samples, comparison, keyboard, phone, and how fast it paints."""
import json
import os
import random
import time

from browser import Browser
from driver import expect, start

LINE_COUNT = "document.querySelectorAll('.uplot').length"


def write_runs(folder, runs, steps):
    """Runs as they are on disk, longer than a test could train; every fourth has the same numbers, to be written quickly."""
    names = ("critic/score/mean", "critic/rewards/mean", "actor/entropy", "actor/kl_loss", "actor/ppo_kl", "actor/pg_clipfrac",
             "actor/grad_norm", "actor/pg_loss", "response_length/mean", "perf/throughput", "timing_s/step", "timing_s/gen")
    texts = []
    for seed in range(4):
        draw = random.Random(seed).random
        texts.append("".join(json.dumps({"step": step, **{name: step / steps + draw() for name in names}}) + "\n"
                             for step in range(1, steps + 1)))
    for number in range(runs):
        os.makedirs(f"{folder}/run-{number:02d}")
        with open(f"{folder}/run-{number:02d}/metrics.jsonl", "w", encoding="utf-8") as file:
            file.write(texts[number % 4])


def many_runs(chromium, served_type):
    """20 runs of 10,000 steps are on the screen within a second, and no task holds the page longer than 200 ms."""
    write_runs("many", 20, 10_000)
    with served_type("many") as served:
        browser = Browser(chromium)
        try:
            browser.go(served.url + "icon.svg")
            browser.wait(f"fetch('{served.url}api/runs').then(a => a.json()).then(a => a.runs.length === 20 && a.runs.every(r => r.rows === 10000))", timeout=60)
            browser.call("Page.addScriptToEvaluateOnNewDocument", source="""
              window.longest = 0;
              new PerformanceObserver(list => list.getEntries().forEach(e => window.longest = Math.max(window.longest, e.duration))).observe({type: 'longtask', buffered: true});
              const look = () => { if (document.querySelectorAll('.uplot').length >= 6) window.painted ??= performance.now(); else requestAnimationFrame(look); };
              requestAnimationFrame(look);""")
            browser.go(served.url + "#charts")
            painted = browser.wait("window.painted", "the first charts")
            browser.wait(f"{LINE_COUNT} >= 9", "a screen of charts")
            browser.eval("window.scrollTo(0, document.body.scrollHeight)")
            time.sleep(0.5)
            for _ in range(4):
                browser.key("]")
            time.sleep(1)
            return painted, browser.eval("window.longest")
        finally:
            browser.close()


def look(chromium, served_type, settings):
    with served_type("runs") as served:
        browser = Browser(chromium)
        try:
            charts(browser, served.url)
            samples(browser, served.url)
            other_views(browser, served.url)
            live(browser, served.url, settings)
            phone(browser, served.url)
            expect(browser.complaints() == [], "the console is silent", "\n".join(browser.complaints()))
        finally:
            browser.close()
    painted, longest = many_runs(chromium, served_type)
    print(f"20 runs of 10,000 steps: charts after {painted:.0f} ms, longest task {longest:.0f} ms")


def charts(browser, url):
    browser.go(url)
    browser.wait(f"{LINE_COUNT} >= 4", "charts")
    shown = browser.eval("[...document.querySelectorAll('.chart h3')].map(e => e.textContent)")
    expect("Reward" in shown and "Response length" in shown and "Gradient norm" in shown, "the key charts", str(shown))
    chosen = "document.querySelectorAll('.run.on').length"
    values = "document.querySelector('.chart .values').querySelectorAll('span').length"
    browser.wait(f"{chosen} >= 2 && {values} >= 2", "two runs compared")
    compared = browser.eval(values)
    browser.eval("document.querySelector('.run[data-run=second] input').click()")
    browser.wait(f"{values} === {compared - 1} && !document.querySelector('.run[data-run=second]').classList.contains('on')", "one run fewer")
    browser.eval("document.querySelector('.run[data-run=second] input').click()")
    browser.wait(f"{values} === {compared}", "all again")
    before = browser.eval(LINE_COUNT)
    browser.key("a")
    browser.wait("document.querySelectorAll('.chart').length > 30", "all metrics")
    browser.eval("(f => { f.value = 'grad_norm'; f.dispatchEvent(new Event('input')); })(document.querySelector('main [data-find]'))")
    browser.wait("[...document.querySelectorAll('.chart code')].every(e => e.textContent.includes('grad_norm'))", "the metric searched for")
    browser.eval("(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(document.querySelector('main [data-find]'))")
    browser.key("a")
    browser.wait(f"{LINE_COUNT} >= {before}", "the key metrics again")
    # Dragging over one chart zooms all of them; Esc shows everything.
    box = browser.eval("(r => [r.x, r.y, r.width, r.height])(document.querySelector('.u-over').getBoundingClientRect())")
    ends = [box[0] + box[2] * share for share in (0.3, 0.8)]
    middle = box[1] + box[3] / 2
    for kind, x, buttons in (("mouseMoved", ends[0], 0), ("mousePressed", ends[0], 1), ("mouseMoved", ends[1], 1), ("mouseReleased", ends[1], 0)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=middle, buttons=buttons, clickCount=1, **({} if kind == "mouseMoved" else {"button": "left"}))
    whole = "[...document.querySelectorAll('.button')].find(b => b.textContent === 'Whole range')"
    browser.wait(f"{whole} && !{whole}.hidden", "the range")
    browser.key("Escape")
    browser.wait(f"{whole}.hidden", "the whole range")


def samples(browser, url):
    browser.key("2")
    browser.eval("document.querySelector('.run[data-run=first] b').click()")
    browser.wait("document.querySelectorAll('.sample').length > 10 && document.querySelector('#response') !== null", "samples")
    browser.wait("document.querySelector('#samples-count').textContent.startsWith('96 of 96')", "the run's samples")
    browser.wait("document.querySelectorAll('#response .token').length > 0", "coloured tokens")
    text = browser.eval("document.querySelector('#response').textContent")
    browser.eval("(f => { f.value = '3'; f.dispatchEvent(new Event('input')); })(document.querySelector('[name=first_step]'))")
    browser.eval("(f => { f.value = '3'; f.dispatchEvent(new Event('input')); })(document.querySelector('[name=last_step]'))")
    browser.wait("document.querySelector('#samples-count').textContent.startsWith('16 of 96')", "samples of step 3")
    expect(browser.eval("[...document.querySelectorAll('.sample .top')].every(e => e.textContent.includes('step 3'))"), "only step 3")
    first = browser.eval("document.querySelector('.sample[aria-current=true]').dataset.index")
    browser.eval("document.activeElement.blur()")
    browser.key("j")
    browser.wait(f"document.querySelector('.sample[aria-current=true]').dataset.index !== '{first}'", "the next sample")
    # The page may draw the sample anew between two questions, so one question asks and clicks.
    browser.wait("""(() => {
      const diff = document.querySelector('#diff');
      if (diff && !diff.hidden) return true;
      document.querySelector('.steps button')?.click();
      return false;
    })()""", "the comparison with the same prompt elsewhere")
    expect(text, "a response")


def other_views(browser, url):
    browser.key("3")
    browser.wait("document.querySelector('.legend span') && document.querySelectorAll('canvas').length >= 2", "the timeline with its trace")
    expect(browser.eval("document.querySelector('.legend').textContent.includes('sampling')"), "the phases are named")
    browser.key("4")
    browser.wait("document.querySelectorAll('.validation .of').length > 0 && document.querySelector('table').textContent.includes('val-core')", "validation")
    browser.key("5")
    browser.wait("[...document.querySelectorAll('td.key')].some(e => e.textContent === 'actor_rollout_ref.actor.optim.lr')", "the difference")
    expect(browser.eval("![...document.querySelectorAll('td.key')].some(e => e.textContent === 'data.train_batch_size')"), "only differences")
    browser.key("6")
    browser.wait(f"{LINE_COUNT} >= 4", "meters")
    browser.key("7")
    browser.wait("document.querySelectorAll('.entry').length >= 4", "the log")
    browser.key("t")
    dark = browser.eval("document.documentElement.dataset.theme")
    browser.key("t")
    expect(browser.eval("document.documentElement.dataset.theme") != dark, "light and dark")
    browser.key("?")
    browser.wait("document.querySelector('dialog').open", "help")
    browser.key("Escape")


def live(browser, url, settings):
    """A run that begins while the page is open appears and grows."""
    browser.key("1")
    process = start(*settings("runs/grows", steps=400, pause=0.003))
    try:
        step = "Number(document.querySelector('.run[data-run=grows] small')?.textContent.match(/step ([0-9,]+)/)?.[1].replace(',', '') ?? 0)"
        seen = browser.wait(step, "the new run", timeout=60)
        browser.wait(f"{step} > {seen}", "its next steps")
        expect("running" in browser.eval("document.querySelector('.run[data-run=grows] small').textContent"), "it is said to run")
        browser.eval("document.querySelector('.run[data-run=grows] b').click()")
        fact = "document.querySelector('.facts').textContent"
        browser.wait(f"{fact}.includes('grows')", "its facts")
        before = browser.eval(fact)
        browser.wait(f"{fact} !== {json.dumps(before)}", "facts that move")
    finally:
        process.kill()
        process.communicate()


def phone(browser, url):
    browser.size(390, 844, mobile=True, scale=2)
    browser.go(url + "#charts")
    browser.wait(f"{LINE_COUNT} >= 1", "charts on a phone")
    for view in ("charts", "samples", "timeline", "validation", "config", "system", "log"):
        browser.eval(f"location.hash = '{view}'")
        browser.wait("document.querySelector('main').children.length > 0")
        time.sleep(0.3)
        wide = browser.eval("document.documentElement.scrollWidth")
        expect(wide <= 390, f"{view} is {wide} wide on a phone of 390")
    browser.eval("document.querySelector('#menu').click()")
    browser.wait("document.querySelector('aside').getBoundingClientRect().x >= 0", "the runs on a phone")
