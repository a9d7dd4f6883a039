/** What is adapted to: an embedded image, one of the user's own or one of a stored result; and the damage done to it. */

export class Subject extends EventTarget {
  constructor() {
    super();
    this.source = {};
    this.corruption = "gaussian_noise";
    this.severity = 5;
  }

  /** The subject as the service reads it. */
  get request() {
    const damage = this.severity && !this.source.result ? { corruption: this.corruption, severity: this.severity } : {};
    return { ...this.source, ...damage };
  }

  /** A stored result is damaged already: its corruption is part of it. */
  get fixed() {
    return Boolean(this.source.result);
  }

  /**
   * Take another image.
   * @param {object} source {sample}, {image} (base64) or {result}
   * @param {{url?: string, label?: string, name?: string}} about how to show it
   */
  take(source, about) {
    this.source = source;
    this.about = about;
    this.dispatchEvent(new Event("image"));
    this.dispatchEvent(new Event("change"));
  }

  damage(corruption, severity) {
    this.corruption = corruption;
    this.severity = severity;
    this.dispatchEvent(new Event("change"));
  }
}
