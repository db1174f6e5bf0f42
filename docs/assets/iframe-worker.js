/* Browsers start no Worker from file:// pages.  The search of the theme runs in one, so that on such pages a hidden frame
   takes its place: the same script, messages passed by postMessage.  Written for this site; loads nothing. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.frame = frame
      const inside = frame.contentWindow
      window.addEventListener("message", event => {
        if (event.source !== inside) return
        const message = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(message)
        if (this.onmessage) this.onmessage(message)
      })
      const script = document.createElement("script")
      inside.document.open()
      inside.document.write("<!doctype html><base href=\"" + location.href + "\"><body></body>")
      inside.document.close()
      inside.postMessage = data => parent.dispatchEvent(new MessageEvent("message", { data, source: inside }))
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => new Promise((done, failed) => {
        const part = inside.document.createElement("script")
        part.src = next
        part.onload = done
        part.onerror = failed
        inside.document.body.appendChild(part)
      })), Promise.resolve())
      script.src = url
      script.onload = () => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.deliver(data))
      }
      inside.document.body.appendChild(inside.document.importNode(script, true)).onload = script.onload
    }

    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data, source: window }))
    }

    postMessage(data) {
      this.ready ? this.deliver(data) : this.waiting.push(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
