// A complete device in JavaScript, for browsers and Node.js, without dependencies. The protocol: docs/protocol.md.
//
//   const device = new Device('wss://gateway.example.com/ws/chat', {
//     token, session: 'kiosk-1', deviceId: 'kiosk-1', name: 'Kiosk in the hall',
//     tools: { lamp: { description: 'Switch the lamp on or off.', parameters: {…}, run: async (args, call) => ({ on: args.on }) } }
//   })
//   device.start()
//
// It comes back with growing delays and its old session, proves with its resume_token that it is the same device, runs
// each call once, keeps its answers until they are acknowledged, and stops for good when an operator ended the session.
// A browser is not told why a connection is refused: while its token is wrong it tries again, later and later.

const CAPABILITIES = ['ack', 'progress', 'cancel', 'drain', 'resume', 'resume_token']
const ANSWERS_KEPT = 256 // acknowledged ones, so that a call that is asked again is answered again and not run
const SETTLED_MS = 10_000 // a connection that lasted this long starts the delays anew

/**
 * Result is what a tool returns if there are images, sounds or files beside its output. Each part is
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
  #notBefore = 0 // a draining gateway asks to be left alone until then
  #session
  #resumeToken
  #calls = new Map() // id → AbortController of a running call
  #answers = new Map() // id → frame; acknowledged ones are kept for a while
  #unacknowledged = new Set()

  /**
   * @param {string} url of the gateway's /ws/chat
   * @param {object} options token, tools; optional session, deviceId, name, platform, labels, resumeToken (of an earlier
   *   life, see the event 'session'), minDelay and maxDelay in ms, onEvent(type, detail), WebSocket (a constructor)
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

  /** stop leaves the gateway. Calls that run are told by their signal. */
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
    socket.onerror = () => {} // a close follows, and says more
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
        this.#resumeToken ??= frame.resume_token // the first one stays the proof
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
      // Frames it does not know are from a newer gateway, or of a conversation, and mean nothing here.
    }
  }

  async #run ({ id, name, args, deadline_ms: deadline }) {
    if (this.#answers.has(id)) return this.#send(this.#answers.get(id)) // asked again: answered again
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

  // What cannot be sent now is either an answer, which is kept for the next connection, or not worth keeping.
  #send (frame) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(frame))
  }

  #closed ({ code, reason }, lasted) {
    this.#options.onEvent('closed', { code, reason })
    // 1000 with another reason means that another connection has the session: with the token it can be had again.
    if (code === 1000 && reason !== 'session_replaced' && reason !== 'session_owner_mismatch') this.#stopped = true
    if (this.#stopped) return
    if (lasted >= SETTLED_MS) this.#attempt = 0
    const most = Math.min(this.#options.maxDelay, this.#options.minDelay * 2 ** this.#attempt++)
    const delay = Math.max(Math.random() * most, this.#notBefore - Date.now())
    this.#options.onEvent('waiting', { delay })
    this.#timer = setTimeout(() => this.#connect(), delay)
  }
}
