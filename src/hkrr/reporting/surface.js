"use strict";

// A surface over two directions, drawn on a canvas. The points are rotated, and the patches between them are painted
// from far to near. Coordinates are scaled to a cube from -1 to 1: a and b are horizontal, h is the height.
class RotatingSurface {
  constructor(canvas, ramp) {
    this.canvas = canvas;
    this.ramp = ramp.map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
    this.home();
    this.showDots = true;
  }

  home() {
    this.turn = -0.7;
    this.tilt = 0.5;
  }

  rotate(turn, tilt) {
    this.turn += turn;
    this.tilt = Math.min(1.5, Math.max(-0.2, this.tilt + tilt));
    this.draw();
  }

  show(surface, target) {
    this.surface = surface;
    this.target = target;
    this.draw();
  }

  // Scale the cube to fill the canvas in the current view, with room for the labels.
  fit() {
    [this.scale, this.middle] = [1, [0, 0]];
    const corners = [-1, 1].flatMap((a) => [-1, 1].flatMap((b) => [-1, 1].map((h) => this.project([1.1 * a, 1.1 * b, h]))));
    const ends = (k) => [Math.min(...corners.map((p) => p[k])), Math.max(...corners.map((p) => p[k]))];
    const [x, y] = [ends(0), ends(1)];
    this.scale = Math.min((this.size.width - 30) / (x[1] - x[0]), (this.size.height - 44) / (y[1] - y[0]));
    this.middle = [this.size.width / 2 - (this.scale * (x[0] + x[1])) / 2, this.size.height / 2 - (this.scale * (y[0] + y[1])) / 2];
  }

  // Return the position of a point of the cube on the canvas, and its distance from the viewer.
  project([a, b, h]) {
    const [s, c] = [Math.sin(this.turn), Math.cos(this.turn)];
    const [across, deep] = [a * c - b * s, a * s + b * c];
    const [t, u] = [Math.sin(this.tilt), Math.cos(this.tilt)];
    const distance = deep * u - h * t * 0.75;
    const scale = (this.scale * 5) / (5 + distance);
    return [this.middle[0] + across * scale, this.middle[1] - (h * 0.75 * u + deep * t) * scale, distance];
  }

  colour(share, light, alpha) {
    const place = Math.min(Math.max(share, 0), 1) * (this.ramp.length - 1);
    const i = Math.min(Math.floor(place), this.ramp.length - 2);
    const mix = (k) => Math.round((this.ramp[i][k] + (this.ramp[i + 1][k] - this.ramp[i][k]) * (place - i)) * light);
    return `rgba(${mix(0)},${mix(1)},${mix(2)},${alpha})`;
  }

  draw() {
    if (!this.surface) return;
    const box = this.canvas.getBoundingClientRect();
    if (box.width === 0) return;
    const dense = window.devicePixelRatio || 1;
    this.size = { width: box.width, height: Math.min(box.width * (box.width < 500 ? 0.95 : 0.68), 540) };
    this.canvas.width = Math.round(this.size.width * dense);
    this.canvas.height = Math.round(this.size.height * dense);
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(dense, dense);
    const style = getComputedStyle(document.documentElement);
    this.ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const { across, along, value, near, range, dots } = this.surface;
    const [low, high] = range[1] > range[0] ? range : [range[0] - 1, range[0] + 1];
    const unit = (x, ends) => (2 * (x - ends[0])) / (ends[ends.length - 1] - ends[0]) - 1;
    // Maximum height: the surface is clipped at the heights -top and top, and dots outside these heights are omitted.
    const top = 1.25;
    const height = (v) => (2 * (v - low)) / (high - low) - 1;
    const up = (v) => Math.min(top, Math.max(-top, height(v)));
    this.fit();
    this.drawFloor(across, along, [low, high]);

    const point = (i, j) => [unit(across[i], across), unit(along[j], along), up(value[i][j])];
    const patches = [];
    for (let i = 0; i + 1 < across.length; i++) {
      for (let j = 0; j + 1 < along.length; j++) {
        const corners = [point(i, j), point(i + 1, j), point(i + 1, j + 1), point(i, j + 1)];
        const [p, q, , s] = corners;
        // Shade the patch by its slope, with light from the upper left.
        const slope = (q[2] - p[2]) / (q[0] - p[0]) - (s[2] - p[2]) / (s[1] - p[1]);
        const light = 1 - 0.16 * Math.tanh(slope / 3);
        const close = (near[i][j] + near[i + 1][j] + near[i][j + 1] + near[i + 1][j + 1]) / 4;
        const mean = corners.reduce((sum, corner) => sum + corner[2], 0) / 4;
        const flat = corners.map((corner) => this.project(corner));
        const far = flat.reduce((sum, corner) => sum + corner[2], 0) / 4;
        patches.push({ far, flat, colour: this.colour((mean + 1) / 2, light, 0.12 + 0.88 * close), close });
      }
    }
    const inside = (x, ends) => x >= ends[0] && x <= ends[ends.length - 1];
    for (const [a, b, v] of this.showDots ? dots : []) {
      if (!inside(a, across) || !inside(b, along) || Math.abs(height(v)) > top) continue;
      const at = this.project([unit(a, across), unit(b, along), up(v)]);
      patches.push({ far: at[2] - 0.03, at });
    }
    patches.sort((one, other) => other.far - one.far);
    for (const patch of patches) patch.at ? this.drawDot(patch.at) : this.drawPatch(patch);
  }

  drawPatch({ flat, colour, close }) {
    const pen = this.pen;
    pen.beginPath();
    flat.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.fillStyle = colour;
    pen.fill();
    if (close < 1) return;
    // An outline in the colour of the patch hides the seams between patches.
    pen.strokeStyle = colour;
    pen.lineWidth = 0.7;
    pen.stroke();
  }

  drawDot([x, y]) {
    const pen = this.pen;
    pen.beginPath();
    pen.arc(x, y, 2.3, 0, 2 * Math.PI);
    pen.fillStyle = this.ink("paper");
    pen.fill();
    pen.lineWidth = 1;
    pen.strokeStyle = this.ink("ink");
    pen.stroke();
  }

  drawFloor(across, along, heights) {
    const pen = this.pen;
    const path = (...points) => {
      pen.beginPath();
      points.map((one) => this.project(one)).forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.stroke();
    };
    pen.lineWidth = 1;
    pen.strokeStyle = this.ink("line");
    for (const k of [-0.5, 0, 0.5]) {
      path([k, -1, -1], [k, 1, -1]);
      path([-1, k, -1], [1, k, -1]);
    }
    pen.strokeStyle = this.ink("soft");
    path([-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, -1]);
    // The names of the directions are at the edges nearest to the viewer. The height scale is at the leftmost corner.
    const corners = [[-1, -1], [1, -1], [1, 1], [-1, 1]];
    const nearest = (edges) => edges.reduce((a, b) => (this.project([...a, -1])[2] < this.project([...b, -1])[2] ? a : b));
    const size = Math.max(11, Math.min(14, this.size.width / 40));
    pen.font = `${size}px system-ui, sans-serif`;
    pen.fillStyle = this.ink("ink");
    const write = (text, [a, b], outward) => {
      const [x, y] = this.project([a * outward, b * outward, -1]);
      const width = pen.measureText(text).width;
      pen.textAlign = "left";
      pen.fillText(text, Math.min(Math.max(4, x - width / 2), this.size.width - width - 4), Math.min(y + size, this.size.height - 4));
    };
    const [bSide, aSide] = [nearest([[0, -1], [0, 1]]), nearest([[-1, 0], [1, 0]])];
    write(this.surface.names[0], bSide, 1.16);
    write(this.surface.names[1], aSide, 1.16);
    pen.fillStyle = this.ink("soft");
    for (const end of [-1, 1]) {
      write(short((end < 0 ? across[0] : across[across.length - 1])), [end * 0.7, bSide[1]], 1.06);
      write(short((end < 0 ? along[0] : along[along.length - 1])), [aSide[0], end * 0.7], 1.06);
    }
    const post = corners.reduce((a, b) => (this.project([...a, -1])[0] < this.project([...b, -1])[0] ? a : b));
    path([...post, -1], [...post, 1]);
    pen.textAlign = "right";
    for (const h of [-1, 1]) {
      const [x, y] = this.project([...post, h]);
      const text = short(heights[0] + ((h + 1) / 2) * (heights[1] - heights[0]));
      pen.fillText(text, Math.max(x - 6, pen.measureText(text).width + 2), y + (h < 0 ? -4 : 4));
    }
    pen.fillStyle = this.ink("ink");
    pen.textAlign = "left";
    const [x, y] = this.project([...post, 1]);
    pen.fillText(cut(this.target, 40), Math.max(4, x - 30), Math.max(size + 2, y - 12));
  }
}

const short = (value) => String(Number(value.toPrecision(3))).replace("-", "−");
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
