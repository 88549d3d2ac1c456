package io.github.farhand.device

import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.flow
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import java.util.concurrent.atomic.AtomicReference

/** What a turn of the conversation shows as it runs, in order. */
public sealed interface TurnEvent {
    /** A piece of the answer. */
    public data class Chunk(val content: String) : TurnEvent

    /** A piece of the model's reasoning. */
    public data class Thinking(val content: String) : TurnEvent

    /** Discard the chunks: [Done] has the whole text. */
    public data object ChunkReset : TurnEvent

    /** The model calls a tool. With [pending] it waits, and comes again when it begins. */
    public data class ToolCall(val id: String, val name: String, val args: JsonElement, val pending: Boolean) :
        TurnEvent

    /** A call has ended; [parts] as in docs/protocol.md. */
    public data class ToolResult(
        val id: String,
        val name: String,
        val output: String,
        val failed: Boolean,
        val parts: List<JsonElement>,
    ) : TurnEvent

    /** With debug: the coming request to the model, as JSON. */
    public data class DebugPrompt(val messages: String, val estimatedTokens: Int) : TurnEvent

    /** The last event: the whole answer. */
    public data class Done(val text: String) : TurnEvent
}

/**
 * The conversation of the person at the device with the gateway's model. One turn runs at a time. A turn that fails
 * throws a [FarhandException]: `aborted`, `busy`, `disconnected` (the turn has ended, too), `slow` (its events were not
 * collected in time), or a code of docs/protocol.md. It can be used from any thread.
 */
public class Chat internal constructor(private val transmit: (String) -> Boolean) {
    private val turn = AtomicReference<Channel<TurnEvent>?>()

    /** Sends a message when the flow is collected. Ending the collection aborts the turn. */
    public fun send(content: String, debug: Boolean = false): Flow<TurnEvent> =
        begin(frame("message", "content" to content, "debug" to true.takeIf { debug }))

    /** Answers the last message again. */
    public fun regenerate(debug: Boolean = false): Flow<TurnEvent> =
        begin(frame("regenerate", "debug" to true.takeIf { debug }))

    /** Sends a message, and returns the whole answer. */
    public suspend fun ask(content: String): String =
        (send(content).first { it is TurnEvent.Done } as TurnEvent.Done).text

    /** Ends the running turn, whose flow throws `aborted`. */
    public fun abort() {
        if (turn.get() != null) transmit(frame("abort"))
    }

    private fun begin(message: String): Flow<TurnEvent> = flow {
        val events = Channel<TurnEvent>(MOST_EVENTS)
        if (!turn.compareAndSet(null, events)) throw FarhandException("busy", "a turn is running")
        try {
            if (!transmit(message)) throw lost()
        } catch (e: FarhandException) {
            turn.compareAndSet(events, null)
            throw e
        }
        try {
            for (event in events) emit(event)
        } finally {
            events.cancel()
            // The collector has gone: the turn is over when the gateway says so.
            if (turn.get() === events && !transmit(frame("abort"))) turn.compareAndSet(events, null)
        }
    }

    /** Takes a frame of a turn. */
    internal fun take(frame: JsonObject) {
        fun field(name: String) = frame[name].text()
        when (field("type")) {
            "done" -> turn.getAndSet(null)?.let { events ->
                val sent = events.trySend(TurnEvent.Done(field("full_response")))
                events.close(if (sent.isSuccess) null else slow())
            }
            "aborted" -> end(FarhandException("aborted", "the turn was aborted"))
            "chunk" -> tell(TurnEvent.Chunk(field("content")))
            "thinking" -> tell(TurnEvent.Thinking(field("content")))
            "chunk_reset" -> tell(TurnEvent.ChunkReset)
            "tool_call" -> {
                val pending = field("status") == "pending"
                tell(TurnEvent.ToolCall(field("id"), field("name"), frame["args"] ?: JsonNull, pending))
            }
            "tool_result" -> {
                val failed = field("status") == "failed"
                val parts = frame["parts"].items()
                tell(TurnEvent.ToolResult(field("id"), field("name"), field("output"), failed, parts))
            }
            "debug_prompt" -> {
                tell(TurnEvent.DebugPrompt(field("messages"), frame["estimated_tokens"].number().toInt()))
            }
        }
    }

    /** Takes an error frame. Returns whether it ended a turn. */
    internal fun fail(error: FarhandException): Boolean {
        if (turn.get() == null || error.code in notOfTurns) return false
        end(error)
        return true
    }

    /** The connection is gone, and the turn with it. */
    internal fun disconnected() = end(lost())

    private fun end(error: FarhandException) {
        turn.getAndSet(null)?.close(error)
    }

    private fun tell(event: TurnEvent) {
        val events = turn.get() ?: return
        val sent = events.trySend(event)
        if (!sent.isFailure || sent.isClosed) return
        transmit(frame("abort"))
        events.close(slow())
    }

    private companion object {
        /** Events that may wait to be collected. */
        const val MOST_EVENTS = 4096

        /** Errors of other frames, which come while a turn runs. */
        val notOfTurns = setOf(
            "INVALID_JSON",
            "UNKNOWN_MESSAGE_TYPE",
            "MESSAGE_TOO_BIG",
            "RATE_LIMITED",
            "PROGRESS_REFUSED",
            "APPROVAL_NOT_FOUND",
            "SESSION_OWNER_MISMATCH",
            "PAIRING_REQUIRED",
        )

        fun slow() = FarhandException("slow", "the events of the turn are not collected")

        fun lost() = FarhandException("disconnected", "the connection to the gateway is gone, and the turn with it")
    }
}
