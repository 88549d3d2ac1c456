package io.github.farhand.android

import android.content.BroadcastReceiver
import android.content.Context
import android.content.Intent
import android.content.IntentFilter
import android.net.ConnectivityManager
import android.net.Network
import android.os.PowerManager
import io.github.farhand.device.Device

/**
 * Calls [Device.wake] when the phone has another network, and when it leaves Doze. The device then looks whether its
 * connection still lives, or connects without waiting: a phone that slept has missed its timers. It needs the
 * permission `ACCESS_NETWORK_STATE`. [DeviceService] and [DeviceJob] use it.
 */
public class Wakes(context: Context, private val device: Device) : AutoCloseable {
    private val context = context.applicationContext
    private val networks = context.getSystemService(ConnectivityManager::class.java)
    private val power = context.getSystemService(PowerManager::class.java)

    private val network = object : ConnectivityManager.NetworkCallback() {
        override fun onAvailable(network: Network) = device.wake()
    }

    private val doze = object : BroadcastReceiver() {
        override fun onReceive(context: Context, intent: Intent) {
            if (!power.isDeviceIdleMode) device.wake()
        }
    }

    init {
        networks.registerDefaultNetworkCallback(network)
        this.context.registerReceiver(doze, IntentFilter(PowerManager.ACTION_DEVICE_IDLE_MODE_CHANGED))
    }

    /** Stops listening. */
    override fun close() {
        networks.unregisterNetworkCallback(network)
        context.unregisterReceiver(doze)
    }
}
