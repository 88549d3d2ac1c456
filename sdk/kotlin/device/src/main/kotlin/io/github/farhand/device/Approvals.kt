package io.github.farhand.device

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import java.time.Instant
import java.util.concurrent.ConcurrentHashMap
import kotlin.coroutines.CoroutineContext

/** Asks the person at the device whether a call may run. */
public class Question(
    /** Of the approval, as `farhand approve` takes it. */
    public val id: String,
    public val callId: String,
    public val tool: String,
    /** As the tool receives them. Show [text], not these. */
    public val args: JsonElement,
    /** The arguments for people, with nothing hidden. Show all of it, as plain text. */
    public val text: String,
    /** Why the call needs approval. */
    public val reason: String,
    /** What needs attention: `long`, `multiline`, `hidden` (invisible characters), `foreign` (look-alike letters). */
    public val remarks: List<String>,
    public val expires: Instant,
)

/** The person's answer. */
public enum class Decision(internal val word: String) {
    ALLOW_ONCE("allow-once"),

    /** This tool with these arguments, until the gateway forgets it. */
    ALLOW_ALWAYS("allow-always"),
    DENY("deny"),
}

/**
 * Asks the person. Its coroutine, which runs in the handlers' context, is cancelled when the answer is no longer
 * needed: another approver has decided, the question has expired, or the device stops. Null decides nothing; other
 * approvers still can. A question whose answer may have been lost with the connection is asked again.
 */
public fun interface Approver {
    public suspend fun decide(question: Question): Decision?
}

/** Asks an approver, each question once at a time. */
internal class Questions(
    private val approver: Approver?,
    private val send: (String) -> Unit,
    private val trouble: (Throwable) -> Unit,
    private val handlers: CoroutineContext,
    private val scope: () -> CoroutineScope,
) {
    private val asked = ConcurrentHashMap<String, Job>()

    /** Takes an `approval_request`. */
    fun ask(frame: JsonObject) {
        val id = frame["id"].text()
        if (approver == null || id.isEmpty() || asked.containsKey(id) || asked.size >= MOST) return
        val left = frame["expires_ms"].wait()
        val question = Question(
            id,
            frame["call_id"].text(),
            frame["tool"].text(),
            frame["args"] ?: JsonNull,
            frame["args_text"].text(),
            frame["reason"].text(),
            frame["remarks"].items().map { it.text() },
            Instant.now().plusMillis(left.inWholeMilliseconds),
        )
        val job = scope().launch(handlers, CoroutineStart.LAZY) {
            try {
                withTimeoutOrNull(left) { approver.decide(question) }?.let {
                    send(frame("approval_response", "id" to id, "decision" to it.word))
                }
            } catch (e: CancellationException) {
                throw e
            } catch (e: Exception) {
                trouble(e) // decides nothing
            }
        }
        asked[id] = job
        job.invokeOnCompletion { asked.remove(id, job) }
        job.start()
    }

    /** Ends a question, since it is decided. */
    fun end(id: String) {
        asked.remove(id)?.cancel()
    }

    fun stop() {
        for (id in asked.keys.toList()) end(id)
    }

    private companion object {
        /** Questions that wait; other approvers can answer the rest. */
        const val MOST = 64
    }
}
