// The explorer: controls, canvases and words that agree with one state.
(() => {
  const store = document.getElementById("explorer-data");
  if (!store) return;
  const data = JSON.parse(store.textContent);
  const [rows, columns] = data.grid;
  const [height, width] = data.size;
  const first = data.prefix.length; // the token of the first patch
  const tokens = first + rows * columns;
  const $ = (id) => document.getElementById(id);

  const state = {
    image: 0,
    block: data.blocks - 1,
    head: data.heads > 1 ? MEAN : 0,
    query: data.start,
    patch: Math.floor(rows / 2) * columns + Math.floor(columns / 2), // the patch that looks, or that would
    pointed: null, // the patch that is read, or none
    what: "weights",
    opacity: 0.65,
    lifted: false, // whether colours are of square roots
  };
  const unpacked = new Map(); // promises of Maps by image
  let chosen = 0; // the image that was chosen last; state.image is the one that is shown, once it is unpacked
  let maps = null; // of the image that is shown
  let picture = null; // it as grey pixels, on a canvas

  // ---- the numbers ------------------------------------------------------------------------------------------------

  /** Return what the query takes from each token, in a block and head. */
  function rowOf(block, head) {
    return maps.row(state.what, block, head, state.query);
  }

  function colour(value, most) {
    let share = most > 0 ? value / most : 0;
    if (state.lifted) share = Math.sign(share) * Math.sqrt(Math.abs(share));
    if (state.what === "weights") return data.sequential[Math.round(255 * share)];
    return data.diverging[127 + Math.round(127 * share)];
  }

  // ---- words ------------------------------------------------------------------------------------------------------

  function patchName(patch) {
    return `patch (${Math.floor(patch / columns)}, ${patch % columns})`;
  }

  function tokenName(token) {
    return token < first ? data.prefix[token] : patchName(token - first);
  }

  function queryName() {
    return state.query === RECEIVED ? "all patches" : tokenName(state.query);
  }

  function headName() {
    if (data.averaged || state.head === MEAN) return "mean of heads";
    return `head ${state.head}`;
  }

  function number(value) {
    if (state.what === "weights") {
      const percent = 100 * value;
      return `${percent === 0 ? "0" : percent >= 0.01 ? percent.toPrecision(3) : "below 0.01"} %`;
    }
    const size = Math.abs(value);
    const digits = size === 0 ? "0" : size >= 0.001 && size < 1000 ? size.toPrecision(3) : size.toExponential(2);
    return (value < 0 ? "−" : value > 0 ? "+" : "") + digits;
  }

  function describe(row) {
    const best = largest(row, first, tokens);
    const pointed = state.pointed === null ? best : first + state.pointed;
    const place = `block ${state.block}, ${headName()}`;
    $("pointed").textContent = `${place}, ${queryName()} → ${tokenName(pointed)}: ${number(row[pointed])}`;
    const outside = data.prefix.map((name, token) => `${name} ${number(row[token])}`);
    const zero = row[best] === 0;
    const looks = state.what === "weights"
      ? `Most goes to ${tokenName(best)}: ${number(row[best])}.`
      : zero
        ? "No gradient flows through this row: nothing that is read here depends on it."
        : `The strongest is ${tokenName(best)}: ${number(row[best])}.`;
    $("looks").textContent = looks + (outside.length && !zero ? ` Not on the image: ${outside.join(", ")}.` : "");
  }

  function answer() {
    const entry = data.images[state.image];
    const top = entry.top.map(([name, share]) => `${name} (${share})`);
    const parts = [];
    if (top.length) parts.push(`The model says: ${top.join(", ")}.`);
    if (entry.truth !== null) parts.push(`It is: ${entry.truth}.`);
    $("answer").textContent = parts.join(" ");
    $("gradients").disabled = entry.gradients === null;
    $("gradients-name").textContent = entry.gradients === null
      ? "no gradient: the model has no head"
      : `gradient of the logit of ${entry.top[0][0]}`;
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------

  const map = $("map");
  const zoom = Math.max(1, Math.round(896 / Math.max(height, width)));
  map.width = width * zoom;
  map.height = height * zoom;
  const [tall, wide] = [map.height / rows, map.width / columns]; // of a patch

  /** Fill the patches with their colours, in a rectangle of a canvas. */
  function paint(context, row, most, x, y, stepX, stepY) {
    for (let patch = 0; patch < rows * columns; patch++) {
      const left = Math.round(x + (patch % columns) * stepX);
      const top = Math.round(y + Math.floor(patch / columns) * stepY);
      const right = Math.round(x + ((patch % columns) + 1) * stepX);
      const bottom = Math.round(y + (Math.floor(patch / columns) + 1) * stepY);
      context.fillStyle = `rgb(${colour(row[first + patch], most)})`;
      context.fillRect(left, top, right - left, bottom - top);
    }
  }

  function outline(context, patch, inner, outer, dash) {
    const [x, y] = [(patch % columns) * wide, Math.floor(patch / columns) * tall];
    context.setLineDash(dash);
    for (const [style, thick] of [[outer, 10], [inner, 5]]) {
      context.strokeStyle = style;
      context.lineWidth = Math.min(thick, wide / 3, tall / 3);
      const inset = context.lineWidth / 2;
      context.strokeRect(x + inset, y + inset, wide - 2 * inset, tall - 2 * inset);
    }
    context.setLineDash([]);
  }

  function drawMap(row) {
    const context = map.getContext("2d");
    const most = Math.abs(row[largest(row, first, tokens)]);
    context.globalAlpha = 1;
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, map.width, map.height);
    context.globalAlpha = state.opacity;
    paint(context, row, most, 0, 0, wide, tall);
    context.globalAlpha = 1;
    if (state.pointed !== null) outline(context, state.pointed, "#ffffff", "#000000", [12, 8]);
    if (state.query >= first) outline(context, state.query - first, "#ffffff", "#d55e00", []);
    $("least").textContent = state.what === "weights" ? "0" : number(-most);
    $("most").textContent = number(most);
    $("most").value = String(most);
    const scale = $("scale").getContext("2d");
    for (let i = 0; i < 256; i++) {
      scale.fillStyle = `rgb(${state.what === "weights" ? colour(i, 255) : colour(i - 127.5, 127.5)})`;
      scale.fillRect(i, 0, 1, 1);
    }
  }

  const heads = data.heads > 1 ? [...Array(data.heads).keys(), MEAN] : [0];
  const overview = new Overview($("all"), data, heads);
  $("explore").classList.toggle("broad", heads.length > 5); // many heads have a line of their own

  function drawAll() {
    overview.draw(state, (context, block, head, x, y, stepX, stepY) => {
      const row = rowOf(block, head);
      paint(context, row, Math.abs(row[largest(row, first, tokens)]), x, y, stepX, stepY);
    });
  }

  /** Make every control, map and word agree with the state. */
  function show() {
    if (!maps) return;
    const row = rowOf(state.block, state.head);
    $("picture").value = String(chosen);
    answer();
    $("block").value = String(state.block);
    $("block-number").value = String(state.block);
    $("block").setAttribute("aria-valuetext", `block ${state.block} of 0 to ${data.blocks - 1}`);
    $("head").value = String(state.head);
    $("token").value = state.query >= first ? "patch" : String(state.query);
    $("lifted").checked = state.lifted;
    $("token").querySelector('[value="patch"]').textContent = patchName(state.patch);
    $(state.what).checked = true;
    drawMap(row);
    drawAll();
    describe(row);
  }

  let waiting = false;
  function change(values) {
    Object.assign(state, values);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      show();
    });
  }

  // ---- what people do ---------------------------------------------------------------------------------------------

  /** Show an image as soon as it is unpacked, unless another has been chosen by then: the last choice holds. */
  async function choose(index) {
    chosen = index;
    const image = new Image();
    image.src = data.images[index].picture;
    if (!unpacked.has(index)) unpacked.set(index, Maps.unpack(data, data.images[index]));
    let found;
    try {
      [found] = await Promise.all([unpacked.get(index), image.decode()]);
    } catch (error) {
      unpacked.delete(index);
      if (chosen !== index) return;
      chosen = state.image;
      $("picture").value = String(chosen);
      $("pointed").textContent = `The maps cannot be unpacked: a browser of 2023 or later can. (${error})`;
      return;
    }
    if (chosen !== index) return;
    maps = found;
    picture = document.createElement("canvas");
    picture.width = image.naturalWidth;
    picture.height = image.naturalHeight;
    const context = picture.getContext("2d");
    context.drawImage(image, 0, 0);
    context.globalCompositeOperation = "saturation"; // grey, so that colours are the map's alone
    context.fillStyle = "#808080";
    context.fillRect(0, 0, picture.width, picture.height);
    change({ image: index, what: maps.kinds.gradients ? state.what : "weights" });
  }

  function patchAt(event) {
    const box = map.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    return clamp(row, rows) * columns + clamp(column, columns);
  }

  function clamp(value, count) {
    return Math.max(0, Math.min(count - 1, value));
  }

  function lookFrom(patch) {
    change({ patch, query: first + patch });
  }

  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  function key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      change({ query: data.start, pointed: null });
      return;
    }
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault(); // the page stays where it is
    const from = event.shiftKey && state.pointed !== null ? state.pointed : state.patch;
    const to = clamp(Math.floor(from / columns) + step[0], rows) * columns + clamp((from % columns) + step[1], columns);
    if (event.shiftKey) change({ pointed: to });
    else lookFrom(to);
  }

  function option(select, value, text) {
    const made = document.createElement("option");
    made.value = String(value);
    made.textContent = text;
    select.append(made);
  }

  data.images.forEach((entry, i) => option($("picture"), i, entry.name));
  data.prefix.forEach((name, token) => option($("token"), token, name));
  option($("token"), "patch", patchName(state.patch));
  option($("token"), RECEIVED, "all patches: what each receives");
  if (data.heads > 1) option($("head"), MEAN, "mean of heads");
  for (let i = 0; i < data.heads; i++) option($("head"), i, data.averaged ? "mean of heads" : `head ${i}`);
  $("block").max = String(data.blocks - 1);

  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("picture").addEventListener("change", () => choose(Number($("picture").value)));
  $("token").addEventListener("change", () => {
    const value = $("token").value;
    change({ query: value === "patch" ? first + state.patch : Number(value) });
  });
  $("block").addEventListener("input", () => change({ block: Number($("block").value) }));
  $("head").addEventListener("change", () => change({ head: Number($("head").value) }));
  $("opacity").addEventListener("input", () => change({ opacity: Number($("opacity").value) / 100 }));
  $("lifted").addEventListener("change", () => change({ lifted: $("lifted").checked }));
  for (const what of ["weights", "gradients"]) $(what).addEventListener("change", () => change({ what }));
  map.addEventListener("click", (event) => lookFrom(patchAt(event)));
  map.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse") change({ pointed: patchAt(event) });
  });
  map.addEventListener("pointerleave", () => change({ pointed: null }));
  map.addEventListener("keydown", key);
  $("all").addEventListener("click", (event) => change(overview.at(event)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change({}));

  $("explore").hidden = false;
  choose(0);
})();
