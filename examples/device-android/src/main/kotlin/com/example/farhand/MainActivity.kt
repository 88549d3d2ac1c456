package com.example.farhand

import android.Manifest.permission
import android.app.Activity
import android.os.Build
import android.os.Bundle
import android.widget.TextView
import io.github.farhand.android.DeviceService
import io.github.farhand.device.FarhandException
import io.github.farhand.device.State
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.cancel
import kotlinx.coroutines.launch
import java.io.IOException

/** Shows the pairing code, and then the state of the device. */
class MainActivity : Activity() {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)
    private lateinit var view: TextView

    override fun onCreate(saved: Bundle?) {
        super.onCreate(saved)
        view = TextView(this).apply { textSize = TEXT_SIZE }
        setContentView(view)
        val wanted = mutableListOf(permission.CAMERA, permission.ACCESS_FINE_LOCATION, permission.READ_CONTACTS)
        if (Build.VERSION.SDK_INT >= TIRAMISU) wanted += "android.permission.POST_NOTIFICATIONS"
        requestPermissions(wanted.toTypedArray(), PERMISSIONS)
    }

    /** The service declares camera and location: it starts when the person has decided about them. */
    override fun onRequestPermissionsResult(request: Int, permissions: Array<String>, results: IntArray) {
        scope.launch { connect() }
    }

    override fun onDestroy() {
        scope.cancel()
        super.onDestroy()
    }

    private suspend fun connect() {
        val app = application as ExampleApp
        try {
            app.pairOnce { code -> show("Approve this phone:\nfarhand pair approve $code") }
        } catch (e: FarhandException) {
            return show("Not paired: ${e.message}")
        } catch (e: IOException) {
            return show("Not paired: ${e.message}")
        }
        DeviceService.start(this)
        app.device.state.collect { show(words(it)) }
    }

    private fun words(state: State): String = when (state) {
        is State.Connected -> "Agents can use ${state.registered} tools of this phone."
        is State.Waiting -> "Offline: ${state.error.message}"
        is State.Refused -> "The gateway refuses this phone: ${state.error.message}"
        is State.Draining -> "The gateway restarts."
        State.Connecting -> "Connecting …"
        State.Closed -> "Stopped."
    }

    private fun show(text: String) = runOnUiThread { view.text = text }

    private companion object {
        const val PERMISSIONS = 1
        const val TIRAMISU = 33 // Android 13
        const val TEXT_SIZE = 20f
    }
}
