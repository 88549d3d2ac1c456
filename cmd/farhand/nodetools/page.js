"use strict"
// The canvas of farhand device. It shows the state that the server sends, and runs the code of canvas_eval.
const find = (id) => document.getElementById(id)
const source = new EventSource("events")
const loadGrace = 1000 // ms after loading, within which a page reports that it listens
const waiting = new Map() // open evals of the presented page, by id
let url = ""
let listens = Promise.resolve(false) // whether the presented page runs code
let heard = () => {}

source.onerror = () => { find("status").textContent = "not connected" }

source.addEventListener("state", (e) => {
  const state = JSON.parse(e.data)
  find("status").textContent = state.visible ? "canvas of farhand device" : "canvas of farhand device, hidden"
  find("content").hidden = !state.visible
  find("content").replaceChildren(...state.content.map((object) => {
    const row = document.createElement("div")
    row.textContent = typeof object.text === "string" ? object.text : JSON.stringify(object, null, 2)
    return row
  }))
  find("page").hidden = !state.visible || state.url === ""
  if (state.url !== url) {
    url = state.url
    present()
  }
})

function present() {
  listens = new Promise((resolve) => {
    heard = () => resolve(true)
    find("page").onload = () => setTimeout(resolve, loadGrace, false)
  })
  fetch("frame").then((answer) => answer.text()).then((at) => { find("page").src = at })
}

addEventListener("message", (e) => {
  if (e.source !== find("page").contentWindow) return
  if (e.data?.ready === true) return heard()
  waiting.get(e.data?.id)?.(e.data)
})

// inPage runs code in the presented page.
async function inPage(id, code) {
  if (!await listens) {
    return { id, ok: false, value: "the presented page cannot run scripts: it is not HTML, or could not be fetched" }
  }
  const answer = new Promise((resolve) => waiting.set(id, resolve))
  find("page").contentWindow.postMessage({ id, code }, "*")
  const { ok, value } = await answer
  waiting.delete(id)
  return { id, ok: ok === true, value: String(value) }
}

// here runs code in the canvas itself, which presents no page.
async function here(id, code) {
  try {
    const value = await (0, eval)(code)
    return { id, ok: true, value: JSON.stringify(value) ?? JSON.stringify(String(value)) }
  } catch (err) {
    return { id, ok: false, value: String(err) }
  }
}

source.addEventListener("eval", async (e) => {
  const { id, code } = JSON.parse(e.data)
  const answer = await (url === "" ? here(id, code) : inPage(id, code))
  await fetch("value", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(answer),
  })
})
