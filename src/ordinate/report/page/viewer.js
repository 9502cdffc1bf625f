// Attention maps: one entry per method and cell, in it one set of maps per length.
const { entries, colours } = JSON.parse($("maps").textContent);
const palette = Uint8Array.from(colours.match(/../g), (pair) => parseInt(pair, 16));

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// The weights of a set, k maps of rows × columns, in shades of the largest of their row.
async function opened(set) {
  if (set.parts) return set;
  const content = await inflated(set.data), k = set.which.length;
  set.parts = new Uint8Array(content, 0, k * set.rows * set.columns);
  set.tops = new Float32Array(content.slice(set.parts.length));
  // What is coarser is in steps of the root.
  const power = set.shades < 255 ? 2 : 1;
  set.values = Float64Array.from({ length: set.shades + 1 }, (_, i) => (i / set.shades) ** power);
  return set;
}

const weight = (set, map, row, column) =>
  set.tops[map * set.rows + row] * set.values[set.parts[(map * set.rows + row) * set.columns + column]];

function drawn(canvas, set, map, byRow) {
  canvas.width = set.columns;
  canvas.height = set.rows;
  const context = canvas.getContext("2d"), picture = context.createImageData(set.columns, set.rows);
  const tops = set.tops.subarray(map * set.rows, (map + 1) * set.rows);
  const most = tops.reduce((a, b) => Math.max(a, b), 1e-30);
  for (let row = 0, at = map * set.rows * set.columns, to = 0; row < set.rows; row++) {
    const factor = byRow ? 1 : tops[row] / most;
    for (let column = 0; column < set.columns; column++, at++, to += 4) {
      // By the root, so that what is weak is seen too.
      const from = 3 * Math.round(255 * Math.sqrt(set.values[set.parts[at]] * factor));
      picture.data[to] = palette[from];
      picture.data[to + 1] = palette[from + 1];
      picture.data[to + 2] = palette[from + 2];
      picture.data[to + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
  return most;
}

if (entries.length) {
  const now = { method: entries[0].method, cell: entries[0].cell, length: 0, layer: 0, head: 0, zoom: 0, row: -1, column: 0 };
  const number = (x) => (x === 0 ? "0" : x >= 1e-3 ? x.toFixed(4) : x.toExponential(1));
  let set, entry, map = 0, turn = 0, most = 1;

  const listed = (values) => [...new Set(values)];
  function fill(select, values, chosen, label = String) {
    select.replaceChildren(...values.map((v) => make("option", { value: v, textContent: label(v) })));
    select.value = values.includes(chosen) ? chosen : values[0];
    select.parentElement.hidden = values.length < 2;
    return values.includes(chosen) ? chosen : values[0];
  }

  async function update() {
    const mine = ++turn;
    now.method = fill($("v-method"), listed(entries.map((e) => e.method)), now.method);
    const own = entries.filter((e) => e.method === now.method);
    now.cell = fill($("v-cell"), listed(own.map((e) => e.cell)), now.cell);
    entry = own.find((e) => e.cell === now.cell);
    now.length = fill($("v-length"), entry.sets.map((s) => s.length), now.length, (n) => `${n} tokens`);
    const next = await opened(entry.sets.find((s) => s.length === now.length));
    if (mine !== turn) return;
    set = next;
    now.layer = fill($("v-layer"), listed(set.which.map((w) => w[0])), now.layer, (x) => x + 1);
    now.head = fill($("v-head"), set.which.filter((w) => w[0] === now.layer).map((w) => w[1]), now.head, (x) => x + 1);
    thumbnails();
    show();
  }

  function thumbnails() {
    const heads = listed(set.which.map((w) => w[1])).sort((a, b) => a - b), box = $("v-heads");
    const layers = listed(set.which.map((w) => w[0]));
    box.style.gridTemplateColumns = `1.8rem repeat(${heads.length}, minmax(1.6rem, ${heads.length > 8 ? 2 : 3.4}rem))`;
    if (box.of !== set || box.byRow !== byRow()) {
      const cells = [make("span", { className: "tag" }), ...heads.map((h) => make("span", { className: "tag", textContent: h + 1 }))];
      for (const layer of layers) {
        cells.push(make("span", { className: "tag", textContent: layer + 1 }));
        for (const head of heads) {
          const at = set.which.findIndex((w) => w[0] === layer && w[1] === head);
          if (at < 0) { cells.push(make("span")); continue; }
          const canvas = make("canvas"), button = make("button", { type: "button", title: `layer ${layer + 1}, head ${head + 1}` }, canvas);
          drawn(canvas, set, at, byRow());
          button.setAttribute("aria-label", button.title);
          Object.assign(button.dataset, { layer, head });
          cells.push(button);
        }
      }
      box.replaceChildren(...cells);
      Object.assign(box, { of: set, byRow: byRow() });
    }
    for (const button of box.querySelectorAll("button")) {
      const mine = +button.dataset.layer === now.layer && +button.dataset.head === now.head;
      button.setAttribute("aria-pressed", mine);
      button.tabIndex = mine ? 0 : -1;
    }
  }

  const byRow = () => $("v-scale").value === "row";
  // Whole screen pixels per weight, so that no row is wider than another.
  const fitting = () => {
    const room = $("v-stage").parentElement.clientWidth - 4, tall = Math.max(280, innerHeight * 0.78);
    return Math.max(1, Math.floor((Math.min(room, tall, 640) * devicePixelRatio) / set.columns));
  };
  const scale = () => Math.max(1, Math.min(64, fitting() + now.zoom)) / devicePixelRatio;

  function show() {
    map = set.which.findIndex((w) => w[0] === now.layer && w[1] === now.head);
    most = drawn($("v-map"), set, map, byRow());
    if (now.row < 0) {
      // The first thing read is the largest weight.
      now.row = set.tops.subarray(map * set.rows, (map + 1) * set.rows).indexOf(most);
      now.column = set.parts.subarray((map * set.rows + now.row) * set.columns).indexOf(set.shades);
    }
    now.row = Math.min(now.row, set.rows - 1);
    now.column = Math.min(now.column, set.columns - 1);
    $("v-top").textContent = byRow() ? "the largest of each query" : number(most);
    $("v-half").textContent = byRow() ? "a quarter" : number(most / 4);
    const said = [];
    if (set.block > 1) said.push(`To keep the page small, each square is the largest of ${set.block} × ${set.block} weights.`);
    if (set.shades < 255) said.push(`Weights are rounded to ${set.shades + 1} shades per query.`);
    if (set.which.length < set.whole) said.push(`${set.which.length} of ${set.whole} heads were kept at this length.`);
    $("v-note").textContent = said.join(" ");
    $("v-map").setAttribute("aria-label", `Attention map of ${now.method}, layer ${now.layer + 1}, head ${now.head + 1}, ${set.length} tokens`);
    size();
    read();
  }

  function size() {
    const k = scale(), canvas = $("v-map"), trained = entry.trained / set.block;
    canvas.style.width = `${set.columns * k}px`;
    canvas.style.height = `${set.rows * k}px`;
    $("v-plate").style.width = canvas.style.width;
    for (const [id, side] of [["v-right", "Right"], ["v-down", "Bottom"]]) {
      const edge = $(id);
      edge.hidden = trained >= set.columns;
      edge.style.cssText = `left:0;top:0;width:${trained * k}px;height:${trained * k}px;border${side}Width:1px`
        .replace("borderRight", "border-right-").replace("borderBottom", "border-bottom-").replace("Width", "width");
    }
    $("v-beyond").hidden = trained >= set.columns;
  }

  function token(place) {
    const first = place * set.block, last = Math.min(first + set.block, set.length) - 1;
    if (first === last) return `${first} (token ${set.tokens[first]})`;
    return `${first}–${last}`;
  }

  function read() {
    const k = scale(), spot = $("v-spot");
    spot.style.cssText = `left:${now.column * k - 1}px;top:${now.row * k - 1}px;width:${k + 2}px;height:${k + 2}px`;
    const w = weight(set, map, now.row, now.column), top = set.tops[map * set.rows + now.row];
    $("v-read").textContent = `Query ${token(now.row)}, key ${token(now.column)}: weight ${number(w)}; ` +
      `the largest of this query is ${number(top)}.`;
  }

  function point(event) {
    const box = $("v-map").getBoundingClientRect();
    const at = (x, length, n) => Math.max(0, Math.min(n - 1, Math.floor((x / length) * n)));
    now.column = at(event.clientX - box.left, box.width, set.columns);
    now.row = at(event.clientY - box.top, box.height, set.rows);
    read();
  }

  function steps(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (by) event.preventDefault();
    return by;
  }

  $("v-map").addEventListener("pointermove", point);
  $("v-map").addEventListener("pointerdown", point);
  $("v-stage").addEventListener("keydown", (event) => {
    const by = steps(event), far = event.shiftKey ? 10 : 1;
    if (!by) return;
    now.row = Math.max(0, Math.min(set.rows - 1, now.row + far * by[0]));
    now.column = Math.max(0, Math.min(set.columns - 1, now.column + far * by[1]));
    read();
    $("v-spot").scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  $("v-heads").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    [now.layer, now.head] = [+button.dataset.layer, +button.dataset.head];
    update();
  });
  $("v-heads").addEventListener("keydown", (event) => {
    const by = steps(event);
    if (!by) return;
    const to = set.which.find((w) => w[0] === now.layer + by[0] && w[1] === now.head + by[1]);
    if (!to) return;
    [now.layer, now.head] = to;
    update().then(() => $("v-heads").querySelector("[aria-pressed=true]").focus());
  });
  for (const [id, key, read] of [["v-method", "method", String], ["v-cell", "cell", String], ["v-length", "length", Number], ["v-layer", "layer", Number], ["v-head", "head", Number]])
    $(id).addEventListener("change", () => { now[key] = read($(id).value); update(); });
  $("v-scale").addEventListener("change", update);
  for (const [id, by] of [["v-in", 1], ["v-out", -1]])
    $(id).addEventListener("click", () => {
      const fit = fitting(), step = by * Math.max(1, Math.round((fit + now.zoom) / 3));
      now.zoom = Math.max(1, Math.min(64, fit + now.zoom + step)) - fit;
      size();
      read();
    });
  addEventListener("resize", () => { size(); read(); });

  $("v-save").addEventListener("click", () => {
    const escaped = (s) => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const title = `${now.method}, layer ${now.layer + 1}, head ${now.head + 1}, ${set.length} tokens`;
    const side = 480, edge = (side * entry.trained) / set.length, text = 'font-family="DejaVu Sans, Arial, sans-serif" fill="#1b1e22"';
    const marked = edge >= side ? "" : `<path d="M${30 + edge} 40V${40 + edge}H30" fill="none" stroke="#fff" stroke-dasharray="4 3"/>`;
    save(`attention-${title.replace(/[^\w.-]+/g, "-")}`,
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 540 560" width="540" height="560">` +
      `<title>${escaped(title)}</title><text x="30" y="20" font-size="14" font-weight="bold" ${text}>${escaped(title)}</text>` +
      `<image x="30" y="40" width="${side}" height="${side}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${$("v-map").toDataURL("image/png")}"/>` +
      `${marked}<text x="${30 + side / 2}" y="538" font-size="12" text-anchor="middle" ${text}>key →</text>` +
      `<text x="18" y="${40 + side / 2}" font-size="12" text-anchor="middle" ${text} transform="rotate(-90 18 ${40 + side / 2})">← query</text>` +
      `<text x="30" y="554" font-size="11" ${text}>from dark, 0, to light, by the square root: ${byRow() ? "the largest of each query" : number(most)}</text></svg>`);
  });

  const bar = $("v-bar"), strip = bar.getContext("2d").createImageData(256, 1);
  bar.width = 256;
  bar.height = 1;
  for (let i = 0; i < 256; i++) strip.data.set([palette[3 * i], palette[3 * i + 1], palette[3 * i + 2], 255], 4 * i);
  bar.getContext("2d").putImageData(strip, 0, 0);
  $("viewer").hidden = false;
  update();
}
