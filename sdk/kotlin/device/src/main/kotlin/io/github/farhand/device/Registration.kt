package io.github.farhand.device

import kotlinx.serialization.json.JsonObject
import okio.utf8Size

/** Registers tools, within the limits of frames. It is confined to the device's dispatcher. */
internal class Registration(private val send: (String) -> Unit) {
    /** Tools that the gateway does not offer. */
    var rejected: List<Rejection> = emptyList()
        private set

    /** Registers all tools, on a new connection. */
    fun start(link: Link, tools: List<Tool>, limits: Limits) {
        link.registering = 0
        rejected = emptyList()
        register(link, tools, limits)
    }

    /** Registers tools, in as many frames as needed. No tools are a frame, too: its answer is a sign of life. */
    fun register(link: Link, tools: List<Tool>, limits: Limits) {
        val batch = mutableListOf<String>()
        var size = FRAME_BYTES
        fun flush() {
            link.registering++
            send("""{"type":"register_tools","tools":[${batch.joinToString(",")}]}""")
            batch.clear()
            size = FRAME_BYTES
        }
        for (tool in tools) {
            val more = tool.definition.utf8Size() + 1
            if (FRAME_BYTES + more > limits.frameBytes) { // it would end the connection
                rejected += Rejection(tool.name, "the definition is larger than the gateway's frames")
                continue
            }
            if (batch.size == DEFINITIONS || (batch.isNotEmpty() && size + more > limits.frameBytes)) flush()
            batch += tool.definition
            size += more
        }
        flush()
    }

    /**
     * Takes a `tools_registered`. It returns how many tools the session offers if that is to be said; null: answers to
     * further frames are due, or it is a sign of life.
     */
    fun registered(link: Link, frame: JsonObject, tools: Set<String>, last: State): Int? {
        val count = frame["registered"].number().toInt()
        val now = frame["rejected"].items().mapNotNull { it as? JsonObject }
            .map { Rejection(it["name"].text(), it["reason"].text()) }
        val named = now.map { it.name }.toSet()
        rejected = if (count >= tools.size) now else rejected.filter { it.name !in named && it.name in tools } + now
        if (link.registering > 0) link.registering--
        val same = last is State.Connected && last.registered == count && now.isEmpty()
        val lifeSign = same && frame["count"].number() == 0.0
        return count.takeUnless { link.registering > 0 || last is State.Draining || last is State.Closed || lifeSign }
    }

    private companion object {
        const val FRAME_BYTES = 64L // around the definitions in a frame
        const val DEFINITIONS = 1024 // in a frame
    }
}
