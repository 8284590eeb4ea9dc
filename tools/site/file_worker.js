// Let the search work on a page that was opened from a file, where browsers refuse to start a worker.
// A hidden frame runs the worker's script instead, and messages go between the two windows.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready = new Promise((resolve) => this.#frame.addEventListener("load", resolve, { once: true }));
    #receive = (event) => {
      if (event.source === this.#frame.contentWindow) this.onmessage?.({ data: event.data });
    };

    constructor(script) {
      super();
      const address = new URL(script, document.baseURI).href;
      this.#frame.hidden = true;
      this.#frame.srcdoc =
        `<script>self.postMessage = (data) => parent.postMessage(data, "*")</script><script src="${address}"></script>`;
      window.addEventListener("message", this.#receive);
      document.documentElement.append(this.#frame);
    }

    postMessage(data) {
      this.#ready.then(() => window.postMessage.call(this.#frame.contentWindow, data, "*"));
    }

    terminate() {
      window.removeEventListener("message", this.#receive);
      this.#frame.remove();
    }
  };
}
