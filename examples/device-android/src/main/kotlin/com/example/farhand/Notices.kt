package com.example.farhand

import android.app.Notification
import android.app.NotificationChannel
import android.app.NotificationManager
import android.content.Context
import io.github.farhand.device.Description
import io.github.farhand.device.Tool
import io.github.farhand.device.tool
import kotlinx.serialization.Serializable
import java.util.concurrent.atomic.AtomicInteger

@Serializable
class Notify(@Description("What the notification says") val body: String, val title: String = "From an agent")

/** The app's notifications: of its service, and of agents. */
class Notices(private val context: Context) {
    private val manager = context.getSystemService(NotificationManager::class.java)
    private val last = AtomicInteger()

    fun createChannel() {
        val channel = NotificationChannel(CHANNEL, "Agents", NotificationManager.IMPORTANCE_DEFAULT)
        manager.createNotificationChannel(channel)
    }

    fun ofService(): Notification = notification("Agents can use this phone", "")

    fun tool(): Tool = tool<Notify>("notify", "Show a notification on this phone.") { args ->
        check(manager.areNotificationsEnabled()) { "the person has turned off notifications" }
        manager.notify(last.incrementAndGet(), notification(args.title, args.body))
        "shown"
    }

    private fun notification(title: String, body: String): Notification = Notification.Builder(context, CHANNEL)
        .setSmallIcon(android.R.drawable.ic_dialog_info)
        .setContentTitle(title)
        .setContentText(body)
        .build()

    private companion object {
        const val CHANNEL = "agents"
    }
}
