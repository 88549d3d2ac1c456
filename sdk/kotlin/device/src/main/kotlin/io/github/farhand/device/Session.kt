package io.github.farhand.device

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.booleanOrNull
import okio.utf8Size
import java.io.IOException
import java.time.Instant
import java.util.Collections
import kotlin.time.Duration.Companion.seconds
import kotlin.time.TimeSource

/** What a [Session] tells its device. */
internal interface Observer {
    val state: State

    fun become(state: State)

    fun tell(event: Event)
}

/**
 * What outlives the connections: tools, calls, answers, and who the device is. It is confined to the device's
 * dispatcher, except where it says otherwise.
 */
internal class Session(private val address: Address, private val options: DeviceOptions, private val device: Observer) :
    Receiver,
    Host {
    /** Of the device's user, in the order of registration. It can be used from any thread. */
    val tools: MutableMap<String, Tool> = Collections.synchronizedMap(LinkedHashMap())

    /** It can be used from any thread. */
    val chat = Chat { frame ->
        if (frame.utf8Size() > limits.frameBytes) {
            throw FarhandException("MESSAGE_TOO_BIG", "a message has at most ${limits.frameBytes} bytes")
        }
        send(frame)
    }

    /** The session's id; empty: the gateway has not chosen one yet. */
    @Volatile var id = options.session.orEmpty()
        private set

    /** Of the first connection; later ones are ignored. Empty: there is none. */
    var resumeToken = ""
        private set

    /** Whether the app is in the foreground, as last reported; null: never. It can be used from any thread. */
    @Volatile var foreground: Boolean? = null

    private var wakeOffer: WakeOffer? = null // of the last connection

    @Volatile override var limits = Limits()
        private set

    @Volatile private var open: Link? = null
    override val link: Int get() = open?.number ?: 0

    private val answers = Answers { trouble("journal", it) }
    private val pace = Pace { limits }
    private val calls = Calls(this, answers, pace, options.parallelism, options.handlers)
    private val questions = Questions(options.approver, ::send, { trouble("approver", it) }, options.handlers, ::works)
    private val registration = Registration(::send)
    private val settled = Channel<Unit>(Channel.CONFLATED) // an acknowledgement came, or a connection ended

    @Volatile private var stopping = false
    private var journal: Journal? = null
    private lateinit var works: CoroutineScope
    private lateinit var http: Http

    /** Of a paired device. */
    var credential: Credential? = null
        private set

    /** Begins a run, whose handlers and requests are the scope's and the client's. */
    suspend fun begin(scope: CoroutineScope, client: Http, paired: Credential?, kept: Journal?) {
        works = scope
        credential = paired
        http = client
        journal = kept
        stopping = false
        val session = kept?.get(SESSION) as? JsonObject
        if (session != null && (id.isEmpty() || id == session["id"].text())) {
            id = session["id"].text()
            resumeToken = session["token"].text()
        }
        answers.use(kept)
    }

    /** Ends what runs, answers it, and waits for the gateway to acknowledge. */
    suspend fun leave() {
        stopping = true
        questions.stop()
        calls.stop(stopWait)
        withTimeoutOrNull(stopWait) {
            while (open?.let { answers.waiting(it.number) } == true) settled.receive()
        }
    }

    /** Offers a tool on the open connection. It can be called from any thread, while a run runs. */
    fun offer(tool: Tool) {
        works.launch { open?.takeIf { it.registering >= 0 }?.let { registration.register(it, listOf(tool), limits) } }
    }

    /** Tells the gateway how the device is woken. It can be called from any thread, while a run runs. */
    fun registerWake() {
        works.launch {
            val (link, offer, wake) = Triple(open, wakeOffer, options.wake)
            if (link == null || offer == null || wake == null) return@launch
            try {
                val chosen = withContext(options.handlers) { wake(offer) }
                if (open === link) send(frame("register_wake", "wake" to chosen?.toMap()))
            } catch (e: CancellationException) {
                throw e
            } catch (e: Exception) {
                trouble("wake", e)
            }
        }
    }

    /** Reports [foreground] on the open connection. It can be called from any thread, while a run runs. */
    fun reportForeground() {
        works.launch {
            if ((open?.registering ?: -1) >= 0) foreground?.let { send(frame("presence", "foreground" to it)) }
        }
    }

    /** Asks the gateway for a sign of life. It can be called from any thread. */
    fun probe() {
        open?.probe()
    }

    // What calls need. These can be called from any thread.

    override fun send(frame: String): Boolean = open?.send(frame) == true

    override suspend fun room() {
        if (!stopping) open?.room()
    }

    override fun tool(name: String): Tool? = tools[name]

    override fun tell(event: Event) = device.tell(event)

    override suspend fun put(path: String, part: Part) = http.put(address.base + path, part)

    // What comes from a connection.

    override fun opened(link: Link) {
        open = link
        // The gateway decides with this which connection gets the session.
        send(
            frame(
                "connect",
                "v" to PROTOCOL_VERSION,
                "device_name" to options.deviceName,
                "device_id" to (credential?.deviceId ?: options.deviceId),
                "platform" to options.platform,
                "labels" to options.labels.ifEmpty { null },
                "resume_token" to resumeToken.ifEmpty { null },
                "capabilities" to capabilities + listOfNotNull(
                    "approval".takeIf { options.approver != null },
                    "wake".takeIf { options.wake != null },
                ),
            ),
        )
    }

    override fun askForLife(link: Link) = registration.register(link, emptyList(), limits)

    override fun ended(link: Link) {
        if (open === link) open = null
        settled.trySend(Unit)
        chat.disconnected()
    }

    override fun take(link: Link, frame: JsonObject) {
        val id = frame["id"].text()
        when (frame["type"].text()) {
            "session_start" -> start(link, frame)
            "connected" -> {
                wakeOffer = WakeOffer.of(frame["wake"])
                registerWake()
            }
            "wake_registered" -> tell(Event.WakeRegistered(frame["kind"].text()))
            "default_set" -> tell(Event.DefaultSet(frame["device_id"].text()))
            "tools_registered" -> registered(link, frame)
            "tool_call_request" -> if (!stopping) calls.start(works, frame)
            "tool_call_cancel" -> calls.cancel(id, frame["reason"].text())
            "result_acknowledged" -> acknowledged(id)
            "upload_slot" -> calls.slot(frame)
            "approval_request" -> if (!stopping) questions.ask(frame)
            "approval_decided" -> questions.end(id)
            "server_draining" -> {
                val wait = frame["retry_after_ms"].wait()
                link.backAt = TimeSource.Monotonic.markNow() + wait
                device.become(State.Draining(Instant.now().plusMillis(wait.inWholeMilliseconds)))
            }
            "title_updated" -> tell(Event.Titled(frame["title"].text()))
            "error" -> failed(link, frame)
            else -> chat.take(frame) // which ignores the frames of newer gateways
        }
    }

    private fun start(link: Link, frame: JsonObject) {
        if (link.registering >= 0) return
        limits = Limits.of(frame["limits"])
        link.resumed = (frame["resumed"] as? JsonPrimitive)?.booleanOrNull == true
        val given = frame["session_id"].text()
        if (given != id || resumeToken.isEmpty()) {
            if (id.isNotEmpty() && given != id) resumeToken = ""
            id = given
            resumeToken = resumeToken.ifEmpty { frame["resume_token"].text() }
            works.launch { remember() }
        }
        foreground?.let { send(frame("presence", "foreground" to it)) }
        registration.start(link, synchronized(tools) { tools.values.toList() }, limits)
        works.launch { resend(link) }
    }

    /** Keeps the session in the journal. */
    private suspend fun remember() {
        try {
            journal?.put(SESSION, jsonOf(mapOf("id" to id, "token" to resumeToken)))
        } catch (e: IOException) {
            trouble("journal", e)
        }
    }

    /** Sends the answers that were not acknowledged on an earlier connection. */
    private suspend fun resend(link: Link) {
        for (id in answers.unsent(link.number)) {
            pace.wait()
            link.room()
            if (open !== link) return
            answers.claim(id, link.number)?.let(link::send)
        }
    }

    private fun registered(link: Link, frame: JsonObject) {
        val names = synchronized(tools) { tools.keys.toSet() }
        val count = registration.registered(link, frame, names, device.state) ?: return
        device.become(State.Connected(id, link.resumed, count, registration.rejected))
    }

    private fun acknowledged(id: String) {
        if (!answers.acknowledge(id)) return
        settled.trySend(Unit)
        works.launch { answers.settle(id) }
    }

    private fun failed(link: Link, frame: JsonObject) {
        val (code, message) = frame["code"].text() to frame["message"].text()
        if (code == "PAIRING_REQUIRED" || code == "SESSION_OWNER_MISMATCH") {
            link.error = FarhandException(code.lowercase(), message)
        }
        val error = FarhandException(code, message, retryAfter = frame["retry_after_ms"].wait())
        if (!chat.fail(error)) tell(Event.Trouble(error))
    }

    private fun trouble(code: String, cause: Throwable) {
        tell(Event.Trouble(FarhandException(code, cause.text(), cause = cause)))
    }

    private companion object {
        const val SESSION = "session" // key of the journal
        val capabilities =
            "ack progress cancel drain resume resume_token call_status traceparent presence".split(' ')

        /** What [leave] gives handlers to end, and then the gateway to acknowledge. */
        val stopWait = 2.seconds
    }
}
