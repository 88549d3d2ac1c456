package io.github.farhand.device

import kotlinx.coroutines.Dispatchers
import kotlinx.serialization.json.JsonObject
import okhttp3.OkHttpClient
import java.io.File
import java.time.Instant
import kotlin.coroutines.CoroutineContext
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

/** Who a device is, and how it behaves. */
public class DeviceOptions {
    /** The bearer token. */
    public var token: String? = null

    /**
     * Where [pair] has kept the credential, which replaces [token] and [deviceId]. It is read when the device begins to
     * run; without a credential the device is refused with `pairing_required`.
     */
    public var credentials: CredentialStore? = null

    /** The session's id. Default: the one of the journal, else the gateway chooses one. */
    public var session: String? = null

    /** The label that people see for the session. */
    public var name: String? = null

    /** A stable id of the device. */
    public var deviceId: String? = null
    public var deviceName: String? = null

    /** Default: the system's name. */
    public var platform: String = systemName()

    /** By which callers select devices. */
    public var labels: Map<String, String> = emptyMap()

    /**
     * The file of the session, the calls and the answers, for one device at a time. Null: they are forgotten when the
     * program ends. On Android, take a file of `Context.getNoBackupFilesDir`.
     */
    public var journal: File? = null

    /** Asks the person at the device about calls that need approval. Without it, only other approvers are asked. */
    public var approver: Approver? = null

    /**
     * Says how the gateway wakes the device while it sleeps. It is called on each connection to a gateway that can.
     * Null: the gateway forgets how. The device needs a [deviceId], or is paired.
     */
    public var wake: (suspend (WakeOffer) -> Wake?)? = null

    /** How many handlers run at once, at least one. Further calls wait. */
    public var parallelism: Int = 16

    /** Where handlers, the approver and [wake] run. */
    public var handlers: CoroutineContext = Dispatchers.IO

    /** The first delay before a reconnect is random up to [leastBackoff]; its bound doubles up to [mostBackoff]. */
    public var leastBackoff: Duration = 500.milliseconds
    public var mostBackoff: Duration = 30.seconds

    /** How long the gateway may show no sign of life. */
    public var silence: Duration = 60.seconds

    /** The HTTP client, for a proxy or certificates; null: one of its own. */
    public var client: OkHttpClient? = null
}

/** What a device tells beside its state. */
public sealed interface Event {
    /** The state has changed. [Device.state] may skip states that last too short; this does not. */
    public data class StateChanged(val state: State) : Event

    /** A handler begins. */
    public data class CallBegan(val id: String, val tool: String, val args: JsonObject, val deadline: Instant) : Event

    /** A handler reports progress. */
    public data class CallProgress(
        val id: String,
        val tool: String,
        val done: Number,
        val total: Number?,
        val message: String?,
    ) : Event

    /** A call has its answer: an error, or a result. */
    public data class CallAnswered(val id: String, val tool: String, val error: String?) : Event

    /** The gateway knows how to wake the device: by this kind, empty if it does not any more. */
    public data class WakeRegistered(val kind: String) : Event

    /** The device is its user's default. */
    public data class DefaultSet(val deviceId: String) : Event

    /** The conversation has a title. */
    public data class Titled(val title: String) : Event

    /**
     * The gateway rejects a frame, or the journal, the approver or the option wake fails (`journal`, `approver`,
     * `wake`). The device goes on.
     */
    public data class Trouble(val error: FarhandException) : Event
}
