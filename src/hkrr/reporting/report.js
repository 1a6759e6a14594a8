document.documentElement.classList.add("js");
const data = JSON.parse(document.getElementById("data").textContent);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The theme follows the system until the button is pressed. The chosen theme lasts until the page is closed.
function startTheme(onChange) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} mode`);
    onChange();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  system.addEventListener("change", label);
  label();
}

// Turn panels into tabs. The arrow keys move between tabs, as the ARIA tab pattern requires.
function startTabs(box, number, onShow) {
  const panels = [...box.querySelectorAll(":scope > .panel")];
  if (panels.length < 2) return;
  const list = make("div", { role: "tablist", "aria-label": box.dataset.tabs, class: "tablist" });
  const tabs = panels.map((panel, i) => {
    panel.id = `panel-${number}-${i}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `tab-${number}-${i}`);
    const tab = make("button", { type: "button", role: "tab", id: `tab-${number}-${i}`, "aria-controls": panel.id }, panel.dataset.tab);
    tab.addEventListener("click", () => select(i));
    list.append(tab);
    return tab;
  });
  const select = (chosen) => {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", i === chosen);
      tab.tabIndex = i === chosen ? 0 : -1;
      panels[i].hidden = i !== chosen;
    });
    onShow();
  };
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = (tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length;
    select(next);
    tabs[next].focus();
  });
  box.prepend(list);
  select(0);
}

// Make the headings sort the table. A second click on a heading reverses the order.
function startSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        const numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        return numbers ? Number(x) - Number(y) : String(x).localeCompare(String(y));
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => (order === "ascending" ? compare(a, b) : compare(b, a)));
      table.tBodies[0].append(...rows);
    });
  });
}

function startSurface(box) {
  const canvas = make("canvas", {
    tabindex: "0",
    role: "img",
    "aria-label": `Surface of ${data.target} over two directions. Arrow keys rotate it, Home resets the view. The map shows the same function.`,
  });
  const view = new RotatingSurface(canvas, data.ramp);
  const show = (i) => {
    view.show(data.surfaces[i], data.target);
    document.querySelectorAll("figure.flat").forEach((figure) => (figure.hidden = Number(figure.dataset.pair) !== i));
  };
  const controls = make("div", { class: "controls" });
  const addButton = (text, name, action) => {
    const button = make("button", { type: "button", "aria-label": name, title: name }, text);
    button.addEventListener("click", action);
    controls.append(button);
  };
  const reset = () => (view.home(), view.draw());
  const step = 0.2;
  addButton("←", "Rotate left", () => view.rotate(-step, 0));
  addButton("→", "Rotate right", () => view.rotate(step, 0));
  addButton("↑", "Tilt up", () => view.rotate(0, step));
  addButton("↓", "Tilt down", () => view.rotate(0, -step));
  addButton("Reset", "Reset the view", reset);
  const dots = make("input", { type: "checkbox", checked: "" });
  dots.addEventListener("change", () => ((view.showDots = dots.checked), view.draw()));
  controls.append(make("label", {}, dots, "rows"));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
    if (!move && event.key !== "Home") return;
    event.preventDefault();
    move ? view.rotate(...move) : reset();
  });
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    last = [event.clientX, event.clientY];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    view.rotate((event.clientX - last[0]) / 150, (event.clientY - last[1]) / 150);
    last = [event.clientX, event.clientY];
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (last = null));
  new ResizeObserver(() => view.draw()).observe(box);

  if (data.surfaces.length > 1) {
    const choices = data.surfaces.map(({ names }, i) => make("option", { value: i }, `${names[0]} and ${names[1]}`));
    const select = make("select", {}, ...choices);
    select.addEventListener("change", () => show(Number(select.value)));
    // The list of direction pairs is above the tabs, because it applies to the tabs "Surface" and "Map".
    box.closest(".tabs").before(make("div", { class: "controls" }, make("label", {}, "Directions", select)));
  }
  const help = make("p", { class: "small" }, "To rotate the surface, drag it, or use the arrow keys or the buttons.");
  box.append(canvas, controls, help);
  show(0);
  return view;
}

// Mark the visible section in the table of contents.
function startContents() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver(
    (entries) => {
      const seen = entries.find((entry) => entry.isIntersecting);
      if (!seen) return;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(seen.target.id).setAttribute("aria-current", "true");
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  document.querySelectorAll("section.part").forEach((part) => watch.observe(part));
}

const view = data.surfaces.length ? startSurface(document.getElementById("surface")) : null;
const redraw = () => view?.draw();
document.querySelectorAll("[data-tabs]").forEach((box, number) => startTabs(box, number, redraw));
document.querySelectorAll("table[data-sortable]").forEach(startSorting);
startTheme(redraw);
startContents();
