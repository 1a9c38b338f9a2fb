// The program and the passes; tabs, keys, colours and paper; and the start of all that.

// ---- the program

function drawProgram() {
  const most = Math.max(1e-12, ...data.program.map((x) => x[3]));
  const large = Math.max(1, ...data.program.map((x) => x[6]));
  const width = 26 + Math.min(400, Math.max(0, ...data.program.map((x) => x[2].replace(/<[^>]*>/g, "").length)));
  new List(document.querySelector("#program .list"), data.program.length, (row, k) => {
    const [name, number, html, seconds, back, about, bytes] = data.program[k];
    const cost = row.appendChild(make("span", "cost")), cell = (cls) => cost.appendChild(make("span", cls));
    if (!number) {
      row.classList.add("skip");
      cell("time"); cell("bytes"); cell("line").textContent = "⋮";
      if (!k || data.program[k - 1][0].split(":")[0] !== name) row.append(name);
      return;
    }
    const t = cell("time"), m = cell("bytes");
    if (seconds) {
      const bar = (part, cls, from) => {
        const i = t.appendChild(make("i", cls));
        i.style.width = `${80 * part / most}%`;
        i.style.right = `${80 * from / most}%`;
      };
      bar(seconds - back, "", 0);
      bar(back, "back", seconds - back);
      t.append(make("b", "", (about ? "~" : "") + time(seconds)));
      row.title = `${name}: ${about ? "about " : ""}${time(seconds)} a call, ${Math.round(100 * back / seconds)}% in reverse`;
    }
    if (bytes) {
      m.appendChild(make("i")).style.width = `${80 * bytes / large}%`;
      m.append(make("b", "", amount(bytes, "B")));
    }
    cell("line").textContent = number;
    row.appendChild(make("span")).innerHTML = html;  // escaped where it was coloured
  }, (k) => ["line", k], width, "Lines of the program");
}

// ---- passes

function drawPasses() {
  const bar = document.querySelector("#passes .steps"), { lines, passes } = data.stages;
  const show = (k) => {
    [...bar.children].forEach((b, j) => b.setAttribute("aria-selected", j === k));
    const [name, , , sides] = passes[k] || ["", 0, 0, []];
    links.lists = links.lists.filter((x) => !x.passes);
    ["before", "after"].forEach((id, side) => {
      const [own, other] = sides[side] || [[], []], is = new Set(other), word = side ? "made" : "gone";
      const title = $(id).querySelector("h2");
      title.textContent = side ? `After ${name}` : `Before ${name}`;
      title.append(make("small", "", sides.length ? `${is.size} lines ${word}` : "nothing changed"));
      const rows = own.map((n) => lines[n]);
      const found = list($(id).querySelector(".list"), rows, "line", title.textContent, (j) => is.has(j) ? [word] : []);
      found.passes = true;
      const first = other[0];
      if (first !== undefined) found.show(first);
    });
  };
  passes.forEach(([name, before, after, sides], k) => {
    const text = sides.length ? `${name} ${before === after ? "" : `${before} → ${after}`}` : name;
    const b = bar.appendChild(make("button", sides.length ? "" : "same", text.trim()));
    b.setAttribute("role", "option");
    b.tabIndex = -1;
    b.onclick = () => show(current = k);
  });
  let current = Math.max(0, passes.findIndex((x) => x[3].length));
  bar.onkeydown = (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by || !passes.length) return;
    show(current = (current + by + passes.length) % passes.length);
    bar.children[current].scrollIntoView({ block: "nearest" });
  };
  if (passes.length) show(current);
  step = (by) => bar.onkeydown({ key: by > 0 ? "ArrowRight" : "ArrowLeft" });
}
let step = () => {};

// ---- the page

function tip(found) {
  const el = $("tip");
  el.classList.toggle("on", !!found);
  if (!found) return;
  el.textContent = found[1];
  el.style.left = `${Math.min(found[0].clientX + 14, innerWidth - el.offsetWidth - 8)}px`;
  el.style.top = `${Math.min(found[0].clientY + 16, innerHeight - el.offsetHeight - 8)}px`;
}

const drawn = {}, DRAW = { passes: drawPasses, graph: drawGraph, memory: drawMemory, speed: drawSpeed, machine: drawMachine, why: drawWhy };
const panels = [...document.querySelectorAll('[role="tabpanel"]')];
function open(id) {
  for (const p of panels) p.hidden = p.id !== id;
  for (const b of document.querySelectorAll("nav button")) {
    b.setAttribute("aria-selected", b.dataset.id === id);
    b.tabIndex = b.dataset.id === id ? 0 : -1;
  }
  if (DRAW[id] && !drawn[id]) { drawn[id] = true; DRAW[id](); }
  for (const l of links.lists) {
    l.fill();
    if (l.el?.closest("[role=tabpanel]")?.id === id) l.reveal();  // what was chosen while this was hidden
  }
  changed();
}

const KEYS = [["1 … 7", "what is shown"], ["↑ ↓ Enter", "go along lines; keep one marked"], ["Esc", "mark nothing"], ["Tab", "to the next list"],
  ["[ ]", "the pass before, the next one"], ["+ − 0", "in the graph: closer, farther, all of it"], ["t", "dark or light"], ["?", "these keys"]];
function keys() {
  $("keys").querySelector("dl").replaceChildren(...KEYS.flatMap(([k, text]) => [make("dt", "", k), make("dd", "", text)]));
  $("keys").showModal();
}
const isDark = () => document.documentElement.dataset.theme === "dark";
function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  changed();
}

async function unpacked() {
  const bytes = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
let data;
async function start() {
  theme(matchMedia("(prefers-color-scheme: dark)").matches);
  data = await unpacked();
  const push = (table, key, value) => (table[key] ??= []).push(value);
  Object.assign(data, { callsOfLine: {}, stepsOfCall: {}, rowsOfStep: {}, text: {} });
  data.calls.forEach((line, call) => { if (line >= 0) push(data.callsOfLine, line, call); });
  data.steps.forEach((calls, s) => calls.forEach((c) => push(data.stepsOfCall, c, s)));
  data.source.forEach(([, steps], row) => steps.forEach((s) => push(data.rowsOfStep, s, row)));
  let kernel = -1;
  const names = data.machine.kernels.map((x) => `def ${x[0]}(`);
  data.kernelOfRow = data.source.map(([text]) => {
    if (/^(def |# )/.test(text)) kernel = names.findIndex((x) => text.startsWith(x));
    return kernel;
  });
  for (const [text, call] of data.tape) if (call >= 0) data.text[call] = text.trim();
  const { seconds, bandwidth, peak, nbytes, flops } = data.speed;
  const facts = [[time(seconds), "a call"], [`${data.calls.length}`, "calls on the tape"],
    [`${data.kernels}`, data.kernels === 1 ? "kernel" : "kernels"], [amount(data.memory.peak, "B"), data.memory.played ? "at the peak, played" : "at the peak, compiled"],
    [percent(nbytes / seconds / bandwidth), "of the bandwidth"]];
  if (flops !== null) facts.push([percent(flops / seconds / peak), "of peak operations"]);
  for (const [value, label] of facts) {
    const div = $("facts").appendChild(make("div"));
    div.append(make("dt", "", label), make("dd", "", value));
  }
  const nav = document.querySelector("nav");
  panels.forEach((p) => {
    const b = nav.appendChild(make("button", "", p.dataset.title));
    b.dataset.id = p.id;
    b.setAttribute("role", "tab");
    b.setAttribute("aria-controls", p.id);
    b.onclick = () => open(p.id);
  });
  drawProgram();
  list(document.querySelector("#tape .list"), data.tape, "call", "Tape");
  const none = [["There is no plan: this is played by NumPy.", -1]];
  list(document.querySelector("#plan .list"), data.plan.length ? data.plan : none, "step", "Plan");
  list(document.querySelector("#source .list"), data.source.length ? data.source : [["There is no source.", []]], (k) => ["row", data.source.length ? k : -1], "Source");
  open("code");
  $("theme").onclick = () => theme(!isDark());
  $("help").onclick = keys;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
    if (e.key === "Escape") choose(null);
    else if (e.key === "t") theme(!isDark());
    else if (e.key === "?") keys();
    else if (e.key === "[" || e.key === "]") { open("passes"); step(e.key === "]" ? 1 : -1); }
    else if (panels[+e.key - 1]) open(panels[+e.key - 1].id);
    else if (e.target.closest("nav") && (e.key === "ArrowRight" || e.key === "ArrowLeft")) {
      const k = panels.findIndex((p) => !p.hidden) + (e.key === "ArrowRight" ? 1 : -1);
      const to = panels[(k + panels.length) % panels.length];
      open(to.id);
      document.querySelector(`nav [data-id="${to.id}"]`).focus();
    }
  });
  const divider = $("divider"), widen = (px) => document.body.style.setProperty("--program", `${Math.max(180, Math.min(innerWidth - 320, px))}px`);
  divider.onpointerdown = (e) => { divider.setPointerCapture(e.pointerId); divider.onpointermove = (m) => widen(m.clientX - 14); };
  divider.onpointerup = () => { divider.onpointermove = null; };
  divider.onkeydown = (e) => { const by = { ArrowLeft: -40, ArrowRight: 40 }[e.key]; if (by) widen($("program").offsetWidth + by); };
  addEventListener("beforeprint", () => {
    theme(false);
    for (const p of panels) { p.hidden = false; if (DRAW[p.id] && !drawn[p.id]) { drawn[p.id] = true; DRAW[p.id](); } }
    links.printing(true);
    links.printed = PRINTED;
    for (const l of links.lists) l.fill();
  });
  addEventListener("afterprint", () => { links.printed = 0; links.printing(false); open("code"); });
  document.documentElement.dataset.ready = "yes";
}
start().catch((error) => {
  console.error(error);
  document.body.prepend(make("p", "note", `This page can't be shown: ${error}. It takes a browser of 2023 or later.`));
});
