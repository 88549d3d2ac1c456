// A bare pipe between an MCP server and a gateway, with nothing but Node.js 22: pipe.mjs URL COMMAND ARGUMENT…
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"

const [, , url, command, ...args] = process.argv
const server = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] })
const socket = new WebSocket(url)
socket.onmessage = m => server.stdin.write(m.data + "\n")
socket.onopen = () => createInterface({ input: server.stdout }).on("line", line => socket.send(line))
socket.onclose = () => process.exit(1)
