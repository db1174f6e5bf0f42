/* Browsers start no Worker from file:// pages.  The search of the theme runs in one, so that on such pages a hidden frame
   takes its place: the same script, its messages passed as events.  Loads nothing from elsewhere. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.ready = false
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve())
      this.load(url).then(() => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.deliver(data))
      })
    }

    load(url) {
      const page = this.frame.contentDocument
      const script = page.createElement("script")
      script.src = url
      return new Promise((loaded, failed) => {
        script.onload = loaded
        script.onerror = failed
        page.body.appendChild(script)
      })
    }

    deliver(data) {
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }

    postMessage(data) {
      if (this.ready) this.deliver(data)
      else this.waiting.push(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
