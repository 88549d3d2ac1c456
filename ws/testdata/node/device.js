// A device written from protocol.md alone, sharing no code with the server or with package ws/client.
//
//	node device.js ws://host:port/ws/chat TOKEN SESSION_ID
//
// It registers two tools, answers one call of each (one fails), then sends what no device should send, takes its
// tools back and leaves. On stdout it prints what it saw, one JSON object per line: {"saw": frame}, {"closed": code},
// {"problem": text}. It exits with 1 after a problem.
'use strict'

const WebSocket = require('ws')

const [address, token, sessionId] = process.argv.slice(2)
if (!address || !token || !sessionId) {
  console.error('usage: node device.js URL TOKEN SESSION_ID')
  process.exit(2)
}

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n')

// A browser cannot set headers, so the token travels as it would from there.
const url = `${address}?session_id=${encodeURIComponent(sessionId)}&name=node`
const socket = new WebSocket(url, ['clawseed.v1', `bearer.${token}`])
const send = (frame) => socket.send(JSON.stringify(frame))

const tools = [
  {
    name: 'node_echo',
    description: 'Returns the text it was given',
    parameters: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
  },
  { name: 'node_fail', description: 'Always fails', parameters: { type: 'object', properties: {} } }
]

const handlers = {
  node_echo: (args) => `echo: ${args.text}`,
  node_fail: () => { throw new Error('permission denied') }
}

function answer (call) {
  send({ type: 'tool_call_accepted', id: call.id })
  const handler = handlers[call.name]
  if (!handler) {
    send({ type: 'tool_error', id: call.id, error: `unknown tool ${call.name}`, success: false })
    return
  }
  try {
    send({ type: 'tool_result', id: call.id, output: handler(call.args), success: true })
  } catch (err) {
    send({ type: 'tool_error', id: call.id, error: err.message, success: false })
  }
}

// What happens after both calls were acknowledged: each step sends something and waits for the answer.
const steps = [
  { send: '{"type":', expect: (f) => f.type === 'error' && f.code === 'INVALID_JSON' },
  { send: '{"type":"no_such_frame"}', expect: (f) => f.type === 'error' && f.code === 'UNKNOWN_MESSAGE_TYPE' },
  { send: '{"type":"get_registered_tools"}', expect: (f) => f.type === 'registered_tools' && f.tools.length === 2 },
  {
    send: '{"type":"unregister_tools","names":["node_echo","node_fail"]}',
    expect: (f) => f.type === 'tools_registered' && f.count === 2 && f.registered === 0
  }
]

let acknowledged = 0
let waiting = null // the step whose answer is due

function problem (text) {
  print({ problem: text })
  process.exitCode = 1
  socket.terminate()
}

function advance () {
  waiting = steps.shift() ?? null
  if (waiting) socket.send(waiting.send)
  else socket.close(1000)
}

socket.on('open', () => {
  print({ subprotocol: socket.protocol })
  // Back to back, without waiting for session_start.
  send({ type: 'connect', v: 1, session_id: sessionId, device_name: 'Node', capabilities: ['ack'], future_field: { x: 1 } })
  send({ type: 'register_tools', tools })
})

socket.on('message', (data) => {
  const frame = JSON.parse(data.toString('utf8'))
  print({ saw: frame })
  if (waiting) {
    if (!waiting.expect(frame)) return problem(`after ${waiting.send}: ${JSON.stringify(frame)}`)
    return advance()
  }
  switch (frame.type) {
    case 'session_start':
    case 'connected':
    case 'tools_registered':
      break
    case 'tool_call_request':
      answer(frame)
      break
    case 'result_acknowledged':
      if (++acknowledged === 2) advance()
      break
    default:
      problem(`unexpected frame ${frame.type}`)
  }
})

socket.on('close', (code) => print({ closed: code }))
socket.on('error', (err) => problem(String(err)))
