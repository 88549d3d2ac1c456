package com.example.farhand

import android.app.Application
import android.app.Notification
import android.os.Build
import io.github.farhand.android.DeviceJob
import io.github.farhand.android.DeviceOwner
import io.github.farhand.android.KeystoreCredentialStore
import io.github.farhand.device.Device
import io.github.farhand.device.pair
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import java.io.File

/** The gateway of this app. */
const val GATEWAY = "https://gateway.example.com"

/** Has the app's device, which [DeviceService][io.github.farhand.android.DeviceService] keeps connected. */
class ExampleApp :
    Application(),
    DeviceOwner {
    private val store by lazy { KeystoreCredentialStore(this) }
    private val notices by lazy { Notices(this) }
    private val pairing = Mutex()

    override val device: Device by lazy {
        Device(GATEWAY) {
            credentials = store
            journal = File(noBackupFilesDir, "device.jsonl")
            deviceName = Build.MODEL
        }.apply {
            add(cameraTool(this@ExampleApp))
            add(locationTool(this@ExampleApp))
            add(contactsTool(contentResolver))
            add(notices.tool())
        }
    }

    override fun onCreate() {
        super.onCreate()
        notices.createChannel()
    }

    override fun notification(): Notification = notices.ofService()

    /** Pairs the phone, unless it is, and has the device run from time to time. */
    suspend fun pairOnce(show: (code: String) -> Unit) {
        pairing.withLock {
            pair(GATEWAY, store, {
                deviceName = Build.MODEL
                tools = listOf("camera_snap", "location_get", "contacts", "notify")
            }) { code, _ -> show(code) }
            DeviceJob.schedule(this, JOB, afterRestart = true)
        }
    }

    private companion object {
        const val JOB = 1
    }
}
