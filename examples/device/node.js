// Makes this machine a device with two tools. See README.md.
//
//   FARHAND_TOKEN=… node node.js http://127.0.0.1:8080 SESSION
import os from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { Device } from './device.js'

const [server = 'http://127.0.0.1:8080', session] = process.argv.slice(2)
const WebSocket = globalThis.WebSocket ?? (await import('ws')).default

const device = new Device(server.replace(/^http/, 'ws') + '/ws/chat', {
  WebSocket,
  token: process.env.FARHAND_TOKEN,
  session,
  deviceId: session,
  name: os.hostname(),
  platform: process.platform,
  tools: {
    host: {
      description: 'Describe this machine: name, system, memory, uptime.',
      run: () => ({ name: os.hostname(), system: os.platform(), free_memory: os.freemem(), uptime_s: Math.round(os.uptime()) })
    },
    count: {
      description: 'Count to a number, a step every so many milliseconds, and report on the way.',
      parameters: {
        type: 'object',
        properties: { to: { type: 'integer', minimum: 1, maximum: 100 }, step_ms: { type: 'integer', minimum: 0, maximum: 1000 } },
        required: ['to']
      },
      async run ({ to, step_ms: step = 100 }, { signal, progress }) {
        for (let n = 1; n <= to; n++) {
          await sleep(step, undefined, { signal })
          progress(n, to, `at ${n}`)
        }
        return `counted to ${to}`
      }
    }
  },
  onEvent (type, detail) {
    const { resumeToken, ...shown } = detail // a secret
    console.log(JSON.stringify({ event: type, ...shown }))
    if (type === 'closed' && detail.code === 1000 && detail.reason === 'session_ended') process.exitCode = 1
  }
})
device.start()
process.on('SIGTERM', () => device.stop())
process.on('SIGINT', () => device.stop())
