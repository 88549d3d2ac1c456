package com.example.farhand

import android.content.Context
import android.location.Location
import android.location.LocationListener
import android.location.LocationManager
import android.os.Bundle
import android.os.Looper
import io.github.farhand.device.SecurityLevel
import io.github.farhand.device.Tool
import io.github.farhand.device.jsonTool
import kotlinx.coroutines.suspendCancellableCoroutine
import kotlinx.serialization.Serializable
import kotlin.coroutines.resume

@Serializable
class Position(val latitude: Double, val longitude: Double, val accuracyMeters: Float, val source: String)

/** Finds where the phone is. A call that is cancelled, or whose caller has gone, ends the search. */
fun locationTool(context: Context): Tool = jsonTool("location_get", "Find where this phone is.", {
    securityLevel = SecurityLevel.USER_CONFIRM
    readOnly = true
}) {
    val manager = context.getSystemService(LocationManager::class.java)
    val sources = listOf(LocationManager.NETWORK_PROVIDER, LocationManager.GPS_PROVIDER)
    val source = checkNotNull(sources.find(manager::isProviderEnabled)) { "the location is turned off" }
    val found = whileAwaited { manager.next(source) }
    Position(found.latitude, found.longitude, found.accuracy, source)
}

private suspend fun LocationManager.next(source: String): Location = suspendCancellableCoroutine { waiting ->
    val listener = object : LocationListener {
        override fun onLocationChanged(location: Location) {
            if (waiting.isActive) waiting.resume(location)
        }

        @Deprecated("Android calls it until version 10.")
        override fun onStatusChanged(provider: String?, status: Int, extras: Bundle?) = Unit

        override fun onProviderEnabled(provider: String) = Unit

        override fun onProviderDisabled(provider: String) {
            waiting.cancel(IllegalStateException("the location was turned off"))
        }
    }
    waiting.invokeOnCancellation { removeUpdates(listener) }
    // It throws a SecurityException, which is the caller's error, without the permission.
    requestSingleUpdate(source, listener, Looper.getMainLooper())
}
