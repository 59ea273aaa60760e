/** A tile for every block, from top to bottom, and every head, from left to right. */
class Overview {
  constructor(canvas, data, heads) {
    this.canvas = canvas;
    this.blocks = data.blocks;
    this.heads = heads;
    this.alone = data.averaged; // one column, the mean of heads that the page does not have
    this.grid = data.grid;
    const [height, width] = data.size;
    const room = Math.max(16, Math.min(56, Math.floor(560 / heads.length)));
    this.tile = { x: Math.round(room * Math.min(1, width / height)), y: Math.round(room * Math.min(1, height / width)) };
    this.step = { x: this.tile.x + 4, y: this.tile.y + 4 };
    this.margin = { x: 24, y: 20 };
    this.width = this.margin.x + heads.length * this.step.x;
    this.height = this.margin.y + this.blocks * this.step.y;
    this.ratio = Math.min(3, window.devicePixelRatio || 1);
    canvas.width = this.width * this.ratio;
    canvas.height = this.height * this.ratio;
    canvas.style.width = `${this.width}px`;
  }

  /** Draw all tiles by `paint`, the numbers beside them, and a frame around the one that is shown large. */
  draw(state, paint) {
    const context = this.canvas.getContext("2d");
    const ink = getComputedStyle(document.body).color;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let block = 0; block < this.blocks; block++) {
      this.heads.forEach((head, j) => {
        const x = this.margin.x + j * this.step.x;
        const y = this.margin.y + block * this.step.y;
        paint(context, block, head, x, y, this.tile.x / this.grid[1], this.tile.y / this.grid[0]);
        if (block !== state.block || head !== state.head) return;
        context.strokeStyle = ink;
        context.lineWidth = 2;
        context.strokeRect(x - 1.5, y - 1.5, this.tile.x + 3, this.tile.y + 3);
      });
    }
    context.fillStyle = ink;
    context.textAlign = "center";
    this.heads.forEach((head, j) => {
      context.fillText(this.name(head), this.margin.x + j * this.step.x + this.tile.x / 2, 10);
    });
    context.textAlign = "right";
    for (let block = 0; block < this.blocks; block++) {
      context.fillText(String(block), this.margin.x - 6, this.margin.y + block * this.step.y + this.tile.y / 2);
    }
  }

  name(head) {
    if (!this.alone && head !== MEAN) return String(head);
    return this.tile.x > 28 ? "mean" : "μ";
  }

  /** Return the block and head of the tile that was clicked. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const shrunk = this.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * shrunk - this.margin.x) / this.step.x);
    const row = Math.floor(((event.clientY - box.top) * shrunk - this.margin.y) / this.step.y);
    if (column < 0 || row < 0) return {};
    return { block: Math.min(row, this.blocks - 1), head: this.heads[Math.min(column, this.heads.length - 1)] };
  }
}
