// A complete device in JavaScript, for browsers and Node.js, without dependencies. The protocol: docs/protocol.md.
//
//   const device = new Device('wss://gateway.example.com/ws/chat', {
//     token, session: 'kiosk-1', deviceId: 'kiosk-1', name: 'Kiosk in the hall',
//     tools: { lamp: { description: 'Switch the lamp on or off.', parameters: {…}, run: async (args, call) => ({ on: args.on }) } }
//   })
//   device.start()
//
// It reconnects with backoff, resumes its session with its resume_token, runs each call once, resends unacknowledged
// answers, and stops if an operator ends the session. Browsers do not show why a connection was rejected: in them it
// retries a wrong token, with backoff.

const CAPABILITIES = ['ack', 'progress', 'cancel', 'drain', 'resume', 'resume_token']
const ANSWERS_KEPT = 256 // acknowledged ones, to answer a repeated call without running it again
const SETTLED_MS = 10_000 // a connection that lasted this long resets the backoff

/**
 * Result is a tool's result with images, sounds or files. Each part is
 * { type: 'image' | 'audio' | 'file', mime_type, data, name? } with data in base64, 1 MiB of all parts together.
 */
export class Result {
  constructor (output, parts) {
    this.output = output
    this.parts = parts
  }
}

export class Device {
  #url
  #options
  #socket = null
  #stopped = true
  #timer = null
  #attempt = 0
  #notBefore = 0 // a draining gateway asks devices not to reconnect before
  #session
  #resumeToken
  #calls = new Map() // id → AbortController of a running call
  #answers = new Map() // id → frame; acknowledged ones are kept for a while
  #unacknowledged = new Set()

  /**
   * @param {string} url of the gateway's /ws/chat
   * @param {object} options token, tools; optional session, deviceId, name, platform, labels, resumeToken (stored from
   *   an earlier event 'session'), minDelay and maxDelay in ms, onEvent(type, detail), WebSocket (a constructor)
   */
  constructor (url, options) {
    this.#url = url
    this.#options = { minDelay: 500, maxDelay: 30_000, onEvent () {}, WebSocket: globalThis.WebSocket, ...options }
    this.#session = options.session
    this.#resumeToken = options.resumeToken
  }

  start () {
    if (!this.#stopped) return
    this.#stopped = false
    this.#connect()
  }

  /** stop disconnects, and aborts the signals of running calls. */
  stop () {
    this.#stopped = true
    clearTimeout(this.#timer)
    for (const controller of this.#calls.values()) controller.abort()
    this.#socket?.close(1000)
  }

  #connect () {
    const url = new URL(this.#url)
    if (this.#session) url.searchParams.set('session_id', this.#session)
    if (this.#options.name) url.searchParams.set('name', this.#options.name)
    // A browser's script cannot set headers, so the token travels as a subprotocol.
    const protocols = this.#options.token ? ['clawseed.v1', `bearer.${this.#options.token}`] : ['clawseed.v1']
    const socket = new this.#options.WebSocket(url, protocols)
    const since = Date.now()
    this.#socket = socket
    socket.onopen = () => this.#open()
    socket.onmessage = (event) => { if (socket === this.#socket) this.#receive(JSON.parse(event.data)) }
    socket.onerror = () => {} // a close follows, with the reason
    socket.onclose = (event) => this.#closed(event, Date.now() - since)
  }

  #open () {
    const { deviceId, name, platform, labels, tools } = this.#options
    this.#send({
      type: 'connect', v: 1, capabilities: CAPABILITIES, device_name: name, device_id: deviceId, platform, labels,
      resume_token: this.#resumeToken
    })
    this.#send({
      type: 'register_tools',
      tools: Object.entries(tools).map(([name, { run, ...definition }]) => ({ name, ...definition }))
    })
    for (const id of this.#unacknowledged) this.#send(this.#answers.get(id))
  }

  #receive (frame) {
    switch (frame.type) {
      case 'session_start':
        this.#session = frame.session_id
        this.#resumeToken ??= frame.resume_token // the first one stays valid
        this.#options.onEvent('session', { session: this.#session, resumeToken: this.#resumeToken, resumed: frame.resumed })
        break
      case 'tools_registered':
        this.#options.onEvent('ready', { registered: frame.registered, rejected: frame.rejected ?? [] })
        break
      case 'tool_call_request':
        this.#run(frame)
        break
      case 'tool_call_cancel':
        this.#calls.get(frame.id)?.abort(frame.reason)
        break
      case 'result_acknowledged':
        this.#unacknowledged.delete(frame.id)
        this.#forgetOldAnswers()
        break
      case 'server_draining':
        this.#notBefore = Date.now() + frame.retry_after_ms
        break
      case 'error':
        this.#options.onEvent('error', { code: frame.code, message: frame.message })
        break
      // Other frames belong to conversations or to newer gateways, and are ignored.
    }
  }

  async #run ({ id, name, args, deadline_ms: deadline }) {
    if (this.#answers.has(id)) return this.#send(this.#answers.get(id)) // a repeated call
    if (this.#calls.has(id)) return // it runs
    const tool = Object.hasOwn(this.#options.tools, name) ? this.#options.tools[name] : null
    const controller = new AbortController()
    this.#calls.set(id, controller)
    this.#send({ type: 'tool_call_accepted', id })
    const progress = (progress, total, message) => this.#send({ type: 'tool_progress', id, progress, total, message })
    try {
      if (!tool) throw new Error(`this device has no tool ${name}`)
      const output = await tool.run(args, { id, signal: controller.signal, deadline: Date.now() + (deadline ?? 30_000), progress })
      const result = output instanceof Result ? output : { output }
      this.#answer({ type: 'tool_result', id, output: result.output ?? '', success: true, parts: result.parts })
    } catch (error) {
      this.#answer({ type: 'tool_error', id, error: String(error?.message ?? error), success: false })
    } finally {
      this.#calls.delete(id)
    }
  }

  #answer (frame) {
    this.#answers.set(frame.id, frame)
    this.#unacknowledged.add(frame.id)
    this.#send(frame)
  }

  #forgetOldAnswers () {
    for (const id of this.#answers.keys()) {
      if (this.#answers.size <= ANSWERS_KEPT) return
      if (!this.#unacknowledged.has(id)) this.#answers.delete(id)
    }
  }

  // Unsent answers are resent on the next connection; other frames are dropped.
  #send (frame) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(frame))
  }

  #closed ({ code, reason }, lasted) {
    this.#options.onEvent('closed', { code, reason })
    // With these reasons another connection has the session, and the token can reclaim it. Else 1000 is final.
    if (code === 1000 && reason !== 'session_replaced' && reason !== 'session_owner_mismatch') this.#stopped = true
    if (this.#stopped) return
    if (lasted >= SETTLED_MS) this.#attempt = 0
    const most = Math.min(this.#options.maxDelay, this.#options.minDelay * 2 ** this.#attempt++)
    const delay = Math.max(Math.random() * most, this.#notBefore - Date.now())
    this.#options.onEvent('waiting', { delay })
    this.#timer = setTimeout(() => this.#connect(), delay)
  }
}
