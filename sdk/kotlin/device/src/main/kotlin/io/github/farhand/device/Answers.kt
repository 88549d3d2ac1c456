package io.github.farhand.device

import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.booleanOrNull
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.put
import java.io.IOException
import java.util.concurrent.atomic.AtomicReference
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes
import kotlin.time.TimeSource

/** How long an answer is sent again. Gateways keep the records of calls about as long. */
internal val resendFor = 15.minutes

/**
 * Remembers which calls ran, and their answers until they are acknowledged, in a journal too if there is one. It is
 * confined to the device's dispatcher.
 */
internal class Answers(private val trouble: (Throwable) -> Unit) {
    private class Answer(val id: String, val at: Long, val frame: String) {
        var acknowledged = false
        var link = 0 // number of the last connection it was sent on

        /** Not of the system's clock, which may jump while the program runs. */
        private val since = TimeSource.Monotonic.markNow() - (System.currentTimeMillis() - at).milliseconds

        fun age(): Duration = since.elapsedNow()
    }

    private val byId = LinkedHashMap<String, Answer>() // oldest first
    private var size = 0L
    private val journal = AtomicReference<Journal?>()

    /**
     * Uses a journal from now on, and reads what it has. A call that had begun and has no answer gets one that says so.
     * What is too much to remember is removed from the journal.
     */
    suspend fun use(next: Journal?) {
        journal.set(next)
        val dropped = mutableListOf<String>()
        val kept = next?.entries(PREFIX).orEmpty().sortedBy { (_, value) -> (value as? JsonObject)?.get("at").number() }
        for ((key, value) in kept) {
            val id = key.removePrefix(PREFIX)
            val call = value as? JsonObject ?: continue
            if (id in byId) continue
            val acknowledged = call["acknowledged"]?.jsonPrimitive?.booleanOrNull == true
            val frame = call["frame"].text().ifEmpty { failure(id, if (acknowledged) REPEATED else LOST) }
            dropped += add(Answer(id, call["at"].number().toLong(), frame).also { it.acknowledged = acknowledged })
        }
        for (oldest in dropped) note(PREFIX + oldest, null)
    }

    /** Returns the answer of a call, null if it has none. */
    fun frame(id: String): String? = byId[id]?.frame

    /** Writes down that a call begins. It throws if that is not on the disk, or the call has begun before. */
    suspend fun begin(id: String) {
        journal.get()?.add(PREFIX + id, buildJsonObject { put("at", System.currentTimeMillis()) })
    }

    /** Keeps the first answer of a call. It is on the disk when [put] returns. */
    suspend fun put(id: String, frame: String) {
        if (id in byId) return
        val at = System.currentTimeMillis()
        val dropped = add(Answer(id, at, frame))
        note(
            PREFIX + id,
            buildJsonObject {
                put("at", at)
                put("frame", frame)
            },
        )
        for (oldest in dropped) note(PREFIX + oldest, null)
    }

    /** Takes the gateway's acknowledgement. Returns whether it was the first. */
    fun acknowledge(id: String): Boolean {
        val answer = byId[id] ?: return false
        return !answer.acknowledged.also { answer.acknowledged = true }
    }

    /** Writes down that an answer is acknowledged. */
    suspend fun settle(id: String) {
        val answer = byId[id] ?: return
        note(
            PREFIX + id,
            buildJsonObject {
                put("at", answer.at)
                put("acknowledged", true)
            },
        )
    }

    /** Returns the calls whose answers are to be sent on a connection. */
    fun unsent(link: Int): List<String> =
        byId.values.filter { !it.acknowledged && it.link != link && it.age() <= resendFor }.map { it.id }

    /** Returns the answer to send on a connection, null if it was sent there or is acknowledged. */
    fun claim(id: String, link: Int): String? {
        val answer = byId[id]?.takeUnless { it.acknowledged || it.link == link } ?: return null
        answer.link = link
        return answer.frame
    }

    /** Whether answers that were sent on a connection wait for their acknowledgement. */
    fun waiting(link: Int): Boolean = byId.values.any { !it.acknowledged && it.link == link }

    /** Adds an answer, and returns the calls that are forgotten instead. */
    private fun add(answer: Answer): List<String> {
        byId[answer.id] = answer
        size += answer.frame.length
        val dropped = mutableListOf<String>()
        val oldest = byId.values.iterator()
        while (byId.size > MOST || (size > MOST_CHARACTERS && byId.size > 1)) {
            val first = oldest.next()
            oldest.remove()
            size -= first.frame.length
            dropped += first.id
        }
        return dropped
    }

    private suspend fun note(key: String, value: JsonObject?) {
        try {
            journal.get()?.put(key, value)
        } catch (e: IOException) {
            trouble(e)
        }
    }

    private companion object {
        const val PREFIX = "call/"
        const val MOST = 1024
        const val MOST_CHARACTERS = 16L shl 20
        const val LOST = "The device restarted during this call. What it did until then is not known."
        const val REPEATED = "This call was answered before. It is not run again."
    }
}
