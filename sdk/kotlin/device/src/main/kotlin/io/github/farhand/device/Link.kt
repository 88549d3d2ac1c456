@file:OptIn(ExperimentalCoroutinesApi::class)

package io.github.farhand.device

import kotlinx.coroutines.ExperimentalCoroutinesApi
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.trySendBlocking
import kotlinx.coroutines.delay
import kotlinx.coroutines.selects.onTimeout
import kotlinx.coroutines.selects.select
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.serialization.json.JsonObject
import okhttp3.OkHttpClient
import okhttp3.Request
import okhttp3.Response
import okhttp3.WebSocket
import okhttp3.WebSocketListener
import java.io.IOException
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.nanoseconds
import kotlin.time.Duration.Companion.seconds
import kotlin.time.TimeMark

/** How a connection ended. */
internal class Ended(
    val error: FarhandException,
    /** How long it was open. */
    val lasted: Duration = Duration.ZERO,
    /** Code of the close frame; 0: there was none, or no connection. */
    val close: Int = 0,
)

/** What takes the frames of a connection. */
internal interface Receiver {
    fun opened(link: Link)

    fun take(link: Link, frame: JsonObject)

    /** Sends a frame that the gateway answers. */
    fun askForLife(link: Link)

    fun ended(link: Link)
}

/** One connection. It is confined to the device's dispatcher, except [send]. */
internal class Link(val number: Int, private val silence: Duration, private val receiver: Receiver) {
    var resumed = false

    /** Answers to registrations that are due: the device is connected when there are none. -1: before session_start. */
    var registering = -1

    /** When a draining gateway wants the device back, null: it does not drain. */
    var backAt: TimeMark? = null

    /** An error frame that is followed by the end of the connection. */
    var error: FarhandException? = null

    private sealed interface Signal {
        data object Opened : Signal

        data object Probe : Signal

        class Message(val text: String) : Signal

        class Closed(val code: Int, val reason: String, val error: FarhandException?) : Signal
    }

    /** When it is full, the connection is not read. */
    private val inbox = Channel<Signal>(INBOX)

    @Volatile private var socket: WebSocket? = null

    fun send(frame: String): Boolean = socket?.send(frame) == true

    /** Waits until the frames that are not sent are few enough for a further answer. OkHttp takes 16 MiB. */
    suspend fun room() {
        withTimeoutOrNull(roomWait) {
            while ((socket?.queueSize() ?: 0) > MOST_QUEUED) delay(10.milliseconds)
        }
    }

    /** Asks for a sign of life now. */
    fun probe() {
        inbox.trySend(Signal.Probe) // a full inbox is a sign of life
    }

    /** Makes the connection, and returns when it has ended. */
    suspend fun serve(client: OkHttpClient, request: Request): Ended {
        var ended: Ended? = null
        socket = client.newWebSocket(request, Listener())
        try {
            return receive().also { ended = it }
        } finally {
            receiver.ended(this)
            withContext(NonCancellable) { close(graceful = ended?.error?.code != SILENT) }
        }
    }

    private suspend fun receive(): Ended {
        var opened = 0L // System.nanoTime
        var asked = true // for a sign of life, which is the first frame at first
        var due = System.nanoTime() + minOf(silence, helloWait).inWholeNanoseconds
        fun over(error: FarhandException, close: Int = 0): Ended {
            val lasted = if (opened == 0L) Duration.ZERO else (System.nanoTime() - opened).nanoseconds
            return Ended(this.error ?: error, lasted, close)
        }
        while (true) {
            val left = (due - System.nanoTime()).nanoseconds.coerceAtLeast(Duration.ZERO)
            val signal = select<Signal?> {
                inbox.onReceive { it }
                onTimeout(left) { null }
            }
            when (signal) {
                is Signal.Opened -> {
                    opened = System.nanoTime()
                    receiver.opened(this)
                }
                is Signal.Message -> {
                    asked = false
                    due = System.nanoTime() + (silence / 2).inWholeNanoseconds
                    parseFrame(signal.text)?.let { receiver.take(this, it) }
                }
                is Signal.Closed -> {
                    if (signal.error != null) return over(if (opened == 0L) signal.error else gone(signal.error))
                    return over(ending(signal.code, signal.reason), signal.code)
                }
                is Signal.Probe, null -> {
                    if (signal == null && asked) return over(FarhandException(SILENT, "no sign of life of the gateway"))
                    if (!asked) due = System.nanoTime() + (silence / 4).inWholeNanoseconds
                    asked = true
                    if (registering >= 0) receiver.askForLife(this)
                }
            }
        }
    }

    /** Ends the connection with a close frame, unless the other side is dead, and its threads. */
    private suspend fun close(graceful: Boolean) {
        val open = socket ?: return
        if (graceful && open.close(NORMAL, null)) {
            withTimeoutOrNull(closeWait) {
                while (inbox.receive() !is Signal.Closed) Unit // what comes now is sent again
            }
        }
        inbox.cancel()
        open.cancel()
    }

    /** Hands what comes to the device. It is called by a thread of OkHttp, which waits while the inbox is full. */
    private inner class Listener : WebSocketListener() {
        override fun onOpen(webSocket: WebSocket, response: Response) = put(Signal.Opened)

        override fun onMessage(webSocket: WebSocket, text: String) = put(Signal.Message(text))

        override fun onClosing(webSocket: WebSocket, code: Int, reason: String) {
            put(Signal.Closed(code, reason, null))
            webSocket.close(NORMAL, null)
        }

        override fun onClosed(webSocket: WebSocket, code: Int, reason: String) = put(Signal.Closed(code, reason, null))

        override fun onFailure(webSocket: WebSocket, t: Throwable, response: Response?) {
            val refusal = try {
                response?.takeIf { it.code != SWITCHING }?.let { Reply.of(it).refusal() }
            } catch (_: IOException) {
                null
            }
            put(Signal.Closed(0, "", refusal ?: unreachable(t)))
        }

        private fun put(signal: Signal) {
            inbox.trySendBlocking(signal)
        }
    }

    private companion object {
        const val INBOX = 64
        const val MOST_QUEUED = 4L shl 20
        const val NORMAL = 1000
        const val SWITCHING = 101
        const val SILENT = "silent"

        /** How long the handshake and the first frame may take together. */
        val helloWait = 20.seconds

        /** How long an answer waits for room. Without it OkHttp ends the connection, and the next one has the answer. */
        val roomWait = 10.seconds

        /** How long the gateway may take to end a connection after the close frames. */
        val closeWait = 1.seconds

        fun gone(cause: Throwable) =
            FarhandException("disconnected", "the connection ended: ${(cause.cause ?: cause).text()}", cause = cause)

        fun ending(code: Int, reason: String) =
            FarhandException(reason.ifEmpty { "disconnected" }, "the connection ended: $code $reason".trim())
    }
}
