/** Tabs by the pattern of ARIA: arrow keys move, the address names the tab, so that "back" goes back. */

const NAMES = ["adapt", "gallery", "results"];

export class Tabs {
  /** @param {(name: string) => void} opened called whenever a tab is shown */
  constructor(opened) {
    this.opened = opened;
    this.tabs = NAMES.map((name) => document.getElementById(`tab-${name}`));
    for (const [index, tab] of this.tabs.entries()) {
      tab.addEventListener("click", () => this.open(NAMES[index]));
      tab.addEventListener("keydown", (event) => this.move(event, index));
    }
    addEventListener("hashchange", () => this.show());
  }

  get current() {
    const name = location.hash.slice(1);
    return NAMES.includes(name) ? name : NAMES[0];
  }

  open(name) {
    if (name === this.current) this.show();
    else location.hash = name;
  }

  show() {
    for (const [index, tab] of this.tabs.entries()) {
      const here = NAMES[index] === this.current;
      tab.setAttribute("aria-selected", String(here));
      tab.tabIndex = here ? 0 : -1;
      document.getElementById(`panel-${NAMES[index]}`).hidden = !here;
    }
    this.opened(this.current);
  }

  move(event, index) {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const next = (index + way + NAMES.length) % NAMES.length;
    this.tabs[next].focus();
    this.open(NAMES[next]);
  }
}
