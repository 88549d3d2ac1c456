package io.github.farhand.device

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.async
import kotlinx.coroutines.cancel
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.channels.BufferOverflow
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.MutableSharedFlow
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.SharedFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.asSharedFlow
import kotlinx.coroutines.flow.asStateFlow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.job
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.selects.select
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.serialization.json.JsonObject
import okhttp3.Request
import java.io.File
import java.io.IOException
import java.time.Instant
import java.util.concurrent.atomic.AtomicReference
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds

/**
 * A device of a Farhand gateway: it connects to an address, a ws, wss, http or https URL, offers tools, and answers
 * calls while [run] runs. Each call runs once, however often the gateway sends it. Answers are kept, and sent again
 * until the gateway acknowledges them. It can be used from any thread.
 */
public class Device(address: String, options: DeviceOptions.() -> Unit = {}) {
    private val options = DeviceOptions().apply(options)
    private val address = Address(address)
    private val states = MutableStateFlow<State>(State.Closed)
    private val told = MutableSharedFlow<Event>(0, MOST_EVENTS, BufferOverflow.DROP_OLDEST)
    private val session: Session
    private val running = AtomicReference<Run?>()
    private val wakes = Channel<Unit>(Channel.CONFLATED)
    private var links = 0

    /** What the device does is confined to this; handlers are not. */
    private val loop = Dispatchers.Default.limitedParallelism(1)

    init {
        require(this.options.parallelism > 0) { "the parallelism is ${this.options.parallelism}, not at least 1" }
        session = Session(
            this.address,
            this.options,
            object : Observer {
                override val state get() = states.value

                override fun become(state: State) = this@Device.become(state)

                override fun tell(event: Event) {
                    told.tryEmit(event)
                }
            },
        )
    }

    /** The state of the connection. */
    public val state: StateFlow<State> = states.asStateFlow()

    /** What else happens. If more than a thousand events wait for a collector, the oldest are dropped. */
    public val events: SharedFlow<Event> = told.asSharedFlow()

    /** The conversation of the person at the device with the gateway's model. */
    public val chat: Chat get() = session.chat

    /** Empty until the gateway has chosen one. */
    public val sessionId: String get() = session.id

    /** Names of the offered tools. */
    public val tools: List<String> get() = synchronized(session.tools) { session.tools.keys.toList() }

    /**
     * Offers a tool from now on, or replaces the tool of that name. The next state shows whether the gateway accepts
     * it.
     */
    public fun add(tool: Tool) {
        session.tools[tool.name] = tool
        if (running.get()?.begun == true) session.offer(tool)
    }

    /** Stops offering a tool. Running calls of it are still answered. */
    public fun remove(name: String) {
        if (session.tools.remove(name) != null) session.send(frame("unregister_tools", "names" to listOf(name)))
    }

    /** Offers a tool whose arguments are a `@Serializable` class; see the function [tool] of the package. */
    public inline fun <reified A : Any> tool(
        name: String,
        description: String,
        noinline options: ToolOptions.() -> Unit = {},
        noinline handler: suspend Call.(A) -> Any?,
    ) {
        add(io.github.farhand.device.tool<A>(name, description, options, handler))
    }

    /** Offers a tool whose arguments are JSON; see the function [jsonTool] of the package. */
    public fun jsonTool(
        name: String,
        description: String,
        options: ToolOptions.() -> Unit = {},
        handler: suspend Call.(JsonObject) -> Any?,
    ) {
        add(io.github.farhand.device.jsonTool(name, description, options, handler))
    }

    /**
     * Connects, and stays connected until [stop] or cancellation. Then it cancels running handlers, answers their calls
     * and disconnects, which takes five seconds at most; what the gateway has not acknowledged is sent by the next run.
     *
     * It throws a [FarhandException] if another connection would not help or the device fails ([State.Refused]), and
     * an [IllegalStateException] if the device runs already.
     */
    public suspend fun run() {
        val run = Run()
        check(running.compareAndSet(null, run)) { "the device runs already" }
        try {
            withContext(loop) { serve(run) }
        } finally {
            running.set(null)
            run.ended.complete(Unit)
        }
    }

    /** Runs the device in a scope. If the gateway refuses it, the job ends and [state] has the error. */
    public fun start(scope: CoroutineScope): Job = scope.launch {
        try {
            run()
        } catch (_: FarhandException) {
            // State.Refused has it
        }
    }

    /**
     * Waits until the tools can be called, in a run that has begun or will. It throws the [FarhandException] of
     * [State.Refused].
     */
    public suspend fun ready(): State.Connected =
        when (val state = state.first { it is State.Connected || it is State.Refused }) {
            is State.Refused -> throw state.error
            else -> state as State.Connected
        }

    /** Ends [run], and waits for its end. */
    public suspend fun stop() {
        val run = running.get() ?: return
        run.stop.complete(Unit)
        run.ended.await()
    }

    /** Tries to connect now instead of after the random delay, but not before the gateway allows it. */
    public fun reconnect() {
        wakes.trySend(Unit)
    }

    /**
     * Call it when the network may be back, or the system awoke: it looks whether the connection still lives, or
     * connects now, unless another connection has the session.
     */
    public fun wake() {
        session.probe()
        val waiting = state.value as? State.Waiting
        if (waiting != null && !waiting.error.isRival()) reconnect()
    }

    /**
     * Asks the option wake again how the device is woken, as when its push token has changed, and tells the gateway.
     * Each connection begins with it.
     */
    public fun registerWake() {
        if (running.get()?.begun == true) session.registerWake()
    }

    /**
     * Reports whether the app is in the foreground, now and on each later connection. Without a report the gateway does
     * not know. In the background it refuses calls of tools whose [Effects] need the foreground, and it prefers a
     * user's device in the foreground.
     */
    public fun setForeground(foreground: Boolean) {
        session.foreground = foreground
        if (running.get()?.begun == true) session.reportForeground()
    }

    /**
     * Asks the gateway to make this device the default of its user: it gets calls for the user that could go to several
     * devices. The device needs a device id, and a token that names the user. False: there is no connection. The answer
     * is an event: [Event.DefaultSet], or [Event.Trouble].
     */
    public fun setDefault(): Boolean = session.send(frame("set_default"))

    private class Run {
        val stop = CompletableDeferred<Unit>()
        val ended = CompletableDeferred<Unit>()

        /** The session has what it needs to run. */
        @Volatile var begun = false
    }

    private suspend fun serve(run: Run) {
        val http = Http(options.client)
        // Handlers that do not end when they are cancelled must not keep run from ending.
        val works = CoroutineScope(SupervisorJob() + loop)
        var journal: Journal? = null
        var last: State = State.Closed
        try {
            become(State.Connecting)
            val credential = options.credentials?.let { credentialOf(it) }
            // A cancelled coroutine would lose an open journal, and the lock with it.
            withContext(NonCancellable) { journal = options.journal?.let { open(it) } }
            session.begin(works, http, credential, journal)
            run.begun = true
            stayUntil(run.stop, works, http)?.let { throw it }
        } catch (e: CancellationException) {
            throw e
        } catch (e: Exception) {
            throw e.asFarhand().also { last = State.Refused(it) }
        } catch (e: Throwable) {
            last = State.Refused(e.asFarhand())
            throw e
        } finally {
            withContext(NonCancellable) {
                run.begun = false
                withTimeoutOrNull(settleWait) { works.coroutineContext.job.children.toList().joinAll() }
                works.cancel()
                http.close()
                try {
                    journal?.close()
                } finally {
                    become(last)
                }
            }
        }
    }

    /** Stays connected until the run is stopped, then it returns null, or until it would not help: it returns why. */
    private suspend fun stayUntil(stop: Deferred<Unit>, works: CoroutineScope, http: Http): FarhandException? {
        val staying = works.async { stay(http) }
        try {
            return select {
                staying.onAwait { it }
                stop.onAwait { null }
            }
        } finally {
            withContext(NonCancellable) {
                session.leave()
                staying.cancelAndJoin()
            }
        }
    }

    private suspend fun open(file: File): Journal = try {
        Journal.open(file)
    } catch (e: IOException) {
        throw FarhandException("journal", "the journal cannot be used: ${e.text()}", cause = e)
    }

    private suspend fun credentialOf(store: CredentialStore): Credential {
        val stored = try {
            store.load()
        } catch (e: IOException) {
            throw FarhandException("store", "the credential cannot be read: ${e.text()}", cause = e)
        }
        return stored ?: throw FarhandException("pairing_required", "the store has no credential: pair the device")
    }

    /** Makes connections, until one ends so that a further one would not help. It returns why. */
    private suspend fun stay(http: Http): FarhandException {
        val backoff = Backoff(options.leastBackoff, options.mostBackoff)
        while (true) {
            if (states.value != State.Connecting) become(State.Connecting)
            val link = Link(++links, options.silence, session)
            val ended = connect(http, link)
            backoff.lasted(ended.lasted, ended.close == RESTART)
            val taken = ended.error.isRival() && session.resumeToken.isNotEmpty()
            if (!taken && ended.isFinal()) return ended.error
            val drained = link.backAt?.let { -it.elapsedNow() } ?: Duration.ZERO
            val allowed = ended.error.retryAfter + maxOf(drained, Duration.ZERO)
            val atLeast = if (taken) Duration.ZERO else allowed
            val more = if (taken) backoff.nextRival() else backoff.next()
            wakes.tryReceive() // of an earlier wait
            become(State.Waiting(Instant.now().plusMillis((atLeast + more).inWholeMilliseconds), ended.error))
            delay(atLeast)
            withTimeoutOrNull(more) { wakes.receive() }
        }
    }

    /** Makes one connection, and serves it until it ends. */
    private suspend fun connect(http: Http, link: Link): Ended {
        val credential = session.credential
        val signature = try {
            credential?.let { sign(http, address, it) }.orEmpty()
        } catch (e: CancellationException) {
            throw e
        } catch (e: Exception) { // a key of the user's store may fail in any way
            return Ended(e.asFarhand())
        }
        val url = address.socket.newBuilder()
        if (session.id.isNotEmpty()) url.setQueryParameter("session_id", session.id)
        options.name?.let { url.setQueryParameter("name", it) }
        val request = Request.Builder().url(url.build())
            .header("Sec-WebSocket-Protocol", SUBPROTOCOL)
            .bearer(credential?.token ?: options.token.orEmpty())
        if (signature.isNotEmpty()) request.header("Farhand-Signature", signature)
        return link.serve(http.client, request.build())
    }

    private fun become(state: State) {
        states.value = state
        told.tryEmit(Event.StateChanged(state))
    }

    private companion object {
        const val MOST_EVENTS = 1024
        const val SUBPROTOCOL = "clawseed.v1"
        const val RESTART = 1012 // close code of a pod that stops
        const val NORMAL = 1000

        /** How long the journal may take to have the last acknowledgements. */
        val settleWait = 1.seconds
        val finalStatus = setOf(400, 401, 403)

        /** Whether another connection has the session. */
        fun FarhandException.isRival() = code == "session_replaced" || code == "session_owner_mismatch"

        /** Whether another connection would not help. */
        fun Ended.isFinal() = close == NORMAL || error.status in finalStatus
    }
}
