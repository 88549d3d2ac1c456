@file:OptIn(DelicateCoroutinesApi::class, ExperimentalCoroutinesApi::class)

package io.github.farhand.device

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.DelicateCoroutinesApi
import kotlinx.coroutines.ExperimentalCoroutinesApi
import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.delay
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.sync.Semaphore
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import okio.utf8Size
import java.io.IOException
import java.time.Instant
import java.util.concurrent.ConcurrentHashMap
import kotlin.coroutines.CoroutineContext
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.TimeSource

/** What [Calls] needs of its device. */
internal interface Host {
    val limits: Limits

    /** Number of the open connection; 0: none. */
    val link: Int

    /** Sends a frame, if there is a connection. It can be called from any thread. */
    fun send(frame: String): Boolean

    /** Waits until the connection has room for an answer. */
    suspend fun room()

    fun tool(name: String): Tool?

    fun tell(event: Event)

    /** Puts a file to an address of the gateway, which an `upload_slot` has named. */
    suspend fun put(path: String, part: Part)
}

/** A call that runs, or waits for its turn. */
internal class Running(val id: String, val tool: String, wait: Duration, val traceparent: String) {
    lateinit var job: Job

    /** For people. [left] does not depend on the system's clock. */
    val deadline: Instant = Instant.now().plusMillis(wait.inWholeMilliseconds)
    private val until = TimeSource.Monotonic.markNow() + wait

    /** Why the call was cancelled; empty: it was not. */
    @Volatile var why = ""

    @Volatile var answered = false

    fun left(): Duration = -until.elapsedNow()

    fun cancel(reason: String) {
        why = why.ifEmpty { reason }
        job.cancel(CancellationException(reason))
    }
}

/**
 * Runs each call once, and keeps the answers. It is confined to the device's dispatcher; handlers run in [handlers].
 */
internal class Calls(
    private val host: Host,
    private val answers: Answers,
    private val pace: Pace,
    parallelism: Int,
    private val handlers: CoroutineContext,
) {
    private val running = LinkedHashMap<String, Running>()
    private val slots = ConcurrentHashMap<String, CompletableDeferred<JsonObject>>() // of uploads, by call
    private val permits = Semaphore(parallelism)

    /** Takes a `tool_call_request`. A call that runs goes on, one that ran gets the same answer again. */
    fun start(scope: CoroutineScope, frame: JsonObject) {
        val id = frame["id"].text()
        if (id.isEmpty() || id.length > ID_LENGTH || id in running) return
        val again = answers.frame(id)
        if (again != null || running.size >= MOST_PENDING) {
            host.send(again ?: failure(id, "the device has too many calls waiting"))
            return
        }
        val wait = frame["deadline_ms"].wait(DEFAULT_DEADLINE)
        val call = Running(id, frame["name"].text(), wait, frame["traceparent"].text())
        running[id] = call
        // ATOMIC: a call that is cancelled before its coroutine is dispatched is answered like any other.
        call.job = scope.launch(start = CoroutineStart.ATOMIC) { scope.perform(call, frame["args"]) }
    }

    fun cancel(id: String, reason: String) {
        running[id]?.cancel("cancelled by the gateway: $reason")
    }

    /** Takes an `upload_slot`. */
    fun slot(frame: JsonObject) {
        slots[frame["id"].text()]?.complete(frame)
    }

    /** Cancels what runs. What still runs after [grace] is answered for. */
    suspend fun stop(grace: Duration) {
        for (call in running.values) call.cancel(STOPPED)
        withTimeoutOrNull(grace) { running.values.map { it.job }.joinAll() }
        for (call in running.values.toList()) answer(call, failure(call.id, STOPPED), STOPPED)
    }

    private suspend fun CoroutineScope.perform(call: Running, given: JsonElement?) {
        val outcome = Outcome()
        val late = launch {
            delay(call.left() + resendFor)
            call.cancel("the call's record is no longer kept")
        }
        try {
            handle(call, given, outcome)
        } catch (e: Throwable) { // whatever a handler throws is the caller's error
            val reason = if (e is CancellationException && call.why.isNotEmpty()) call.why else e.text()
            if (outcome.frame == null) outcome.error = (if (outcome.begun) "" else "not started: ") + reason
        } finally {
            late.cancel()
            if (outcome.begun) permits.release()
        }
        withContext(NonCancellable) {
            val error = outcome.error
            answer(call, outcome.frame ?: failure(call.id, error.cut(host.limits.frameBytes / 8)), error)
        }
    }

    /** What came of a call. */
    private class Outcome {
        var begun = false

        @Volatile var frame: String? = null
        var error = ""
    }

    private suspend fun CoroutineScope.handle(call: Running, given: JsonElement?, outcome: Outcome) {
        try {
            withTimeout(maxOf(call.left() + grace, 1.milliseconds)) {
                currentCoroutineContext().ensureActive() // which acquire does not look at if there is a permit
                permits.acquire()
                outcome.begun = true
            }
        } catch (_: TimeoutCancellationException) {
            throw IllegalStateException("the caller no longer waits")
        }
        val args = if (given == null || given is JsonNull) JsonObject(emptyMap()) else given as? JsonObject
        requireNotNull(args) { "the arguments are not an object" }
        val tool = checkNotNull(host.tool(call.tool)) { "Unknown tool ${JsonPrimitive(call.tool)}" }
        val handler = tool.bind(args)
        val accept = launch {
            delay(acceptAfter)
            notify(call, frame("tool_call_accepted", "id" to call.id))
        }
        try {
            begin(call.id)
            call.job.ensureActive()
            host.tell(Event.CallBegan(call.id, call.tool, args, call.deadline))
            withContext(handlers) {
                // Kept here: a cancelled coroutine loses what withContext returns, but a cancelled call may answer.
                outcome.frame = sized(success(call.id, handler(Face(call)), host.limits) { upload(call, it) })
            }
        } finally {
            accept.cancel()
        }
    }

    private suspend fun begin(id: String) {
        try {
            answers.begin(id)
        } catch (e: IOException) {
            throw IllegalStateException("the call cannot be written down: ${e.text()}", e)
        }
    }

    private suspend fun answer(call: Running, frame: String, error: String) {
        if (call.answered) return
        call.answered = true
        answers.put(call.id, frame)
        running.remove(call.id)
        host.room()
        val link = host.link
        if (link != 0 && answers.claim(call.id, link) != null) host.send(frame)
        host.tell(Event.CallAnswered(call.id, call.tool, error.ifEmpty { null }))
    }

    private fun sized(frame: String): String {
        val most = maxOf(host.limits.frameBytes, host.limits.outputBytes)
        val size = frame.utf8Size()
        check(size <= most) { "the output is too large: $size bytes, at most $most can be sent" }
        return frame
    }

    private fun notify(call: Running, frame: String) {
        if (!call.answered) host.send(frame)
    }

    private suspend fun upload(call: Running, part: Part): Part {
        if (part.url != null) return part
        val waiting = CompletableDeferred<JsonObject>()
        check(slots.putIfAbsent(call.id, waiting) == null) { "one file of a call is uploaded at a time" }
        try {
            host.send(
                frame(
                    "upload_request",
                    "id" to call.id,
                    "mime_type" to part.mimeType,
                    "size" to part.size,
                    "name" to part.name,
                ),
            )
            val slot = withTimeoutOrNull(call.left()) { waiting.await() }
            checkNotNull(slot) { "the gateway named no address for the file in time" }
            val url = slot["url"].text()
            check(url.isNotEmpty()) { "the gateway takes no file: ${slot["error"].text()}" }
            // Without the slash it could go on with the host's name or port, and so lead to another server.
            check(url.startsWith("/")) { "the gateway names no path of its own for the file" }
            host.put(url, part)
            return part.uploadedTo(url)
        } finally {
            slots.remove(call.id)
        }
    }

    /** A call as its handler sees it. */
    private inner class Face(private val call: Running) : Call {
        override val id get() = call.id
        override val tool get() = call.tool
        override val deadline get() = call.deadline
        override val traceparent get() = call.traceparent

        override suspend fun <T> whileAwaited(block: suspend () -> T): T = withTimeout(call.left() + grace) { block() }

        override fun progress(done: Number, total: Number?, message: String?) {
            if (call.answered || !done.toDouble().isFinite()) return
            val of = total?.takeIf { it.toDouble() > 0 && it.toDouble().isFinite() }
            val words = message?.cut(MESSAGE_BYTES)?.ifEmpty { null }
            host.tell(Event.CallProgress(id, tool, done, of, words))
            if (!pace.take()) return
            notify(call, frame("tool_progress", "id" to id, "progress" to done, "total" to of, "message" to words))
        }

        override suspend fun chunk(text: String) {
            var rest = text
            while (rest.isNotEmpty()) {
                val chunk = rest.cut(minOf(CHUNK_BYTES, host.limits.frameBytes / 8)).ifEmpty { return }
                rest = rest.substring(chunk.length)
                pace.wait()
                host.room()
                notify(call, frame("tool_progress", "id" to id, "chunk" to chunk))
            }
        }

        override suspend fun upload(part: Part): Part = upload(call, part)
    }

    private companion object {
        const val MOST_PENDING = 1024 // a gateway has far fewer in flight
        const val ID_LENGTH = 256 // of a call, kept long after it; those of a gateway are shorter
        const val DEFAULT_DEADLINE = 30_000.0 // ms
        const val MESSAGE_BYTES = 1L shl 10 // that the gateway keeps
        const val CHUNK_BYTES = 64L shl 10 // that the gateway takes
        const val STOPPED = "the device stopped"

        /** A faster answer makes `tool_call_accepted` unnecessary. */
        val acceptAfter = 200.milliseconds

        /** Of [Call.whileAwaited] beyond the deadline, so as not to race the gateway's timer. */
        val grace = 250.milliseconds
    }
}
