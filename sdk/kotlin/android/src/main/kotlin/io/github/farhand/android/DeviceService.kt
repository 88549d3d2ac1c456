package io.github.farhand.android

import android.app.Service
import android.content.Context
import android.content.Intent
import android.os.IBinder
import android.os.PowerManager
import io.github.farhand.device.Device
import io.github.farhand.device.Event
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes

/**
 * A foreground service that keeps the device of a [DeviceOwner] connected, also while the app is not seen and in light
 * Doze. While a call runs it keeps the processor awake. In deep Doze Android gives no app the network: the calls of
 * that time fail or wait, and the device connects in the next maintenance window.
 *
 * Declare it in the manifest, with the foreground service types of what its tools use, and with `remoteMessaging`,
 * which it has while the person has not granted the others; docs/tutorial-kotlin.md does.
 */
public class DeviceService : Service() {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)
    private lateinit var wakes: Wakes
    private lateinit var awake: PowerManager.WakeLock

    override fun onCreate() {
        super.onCreate()
        val owner = owner
        toForeground(NOTIFICATION, owner.notification())
        wakes = Wakes(this, owner.device)
        awake = getSystemService(PowerManager::class.java)
            .newWakeLock(PowerManager.PARTIAL_WAKE_LOCK, "farhand:calls")
            .apply { setReferenceCounted(false) }
        scope.launch { stayAwake(owner.device) }
        scope.launch {
            Runs.share(owner.device)
            stopSelf() // the gateway refuses the device, or the app stopped it
        }
    }

    /** The system starts the service again if it had to end it. */
    override fun onStartCommand(intent: Intent?, flags: Int, startId: Int): Int {
        toForeground(NOTIFICATION, owner.notification()) // with what the person has granted meanwhile
        return START_STICKY
    }

    override fun onBind(intent: Intent?): IBinder? = null

    override fun onDestroy() {
        wakes.close()
        scope.cancel() // which ends the run; it answers its calls first
        awake.release()
        super.onDestroy()
    }

    private suspend fun stayAwake(device: Device) {
        val running = mutableSetOf<String>()
        device.events.collect { event ->
            when (event) {
                is Event.CallBegan -> {
                    running += event.id
                    awake.acquire(longestCall.inWholeMilliseconds)
                }

                is Event.CallAnswered -> if (running.remove(event.id) && running.isEmpty()) awake.release()

                else -> Unit
            }
        }
    }

    public companion object {
        private const val NOTIFICATION = 0xFA4A4D
        private val longestCall: Duration = 10.minutes

        /** Starts the service. Since Android 12, an app can do so only while it is seen, or with an exemption. */
        public fun start(context: Context) {
            context.startForegroundService(Intent(context, DeviceService::class.java))
        }

        /** Ends the service, and the device's run. */
        public fun stop(context: Context) {
            context.stopService(Intent(context, DeviceService::class.java))
        }
    }
}
