"use strict"
// The canvas of farhand device: it shows what the server says, and runs what it is told to.
const find = (id) => document.getElementById(id)
const source = new EventSource("events")
let url = ""

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
  if (state.url !== url) find("page").src = url = state.url
})

source.addEventListener("eval", async (e) => {
  const { id, code } = JSON.parse(e.data)
  let answer
  try {
    const value = await (0, eval)(code)
    answer = { id, ok: true, value: JSON.stringify(value) ?? JSON.stringify(String(value)) }
  } catch (err) {
    answer = { id, ok: false, value: String(err) }
  }
  await fetch("value", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(answer),
  })
})
