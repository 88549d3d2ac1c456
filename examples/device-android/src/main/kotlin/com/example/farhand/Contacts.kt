package com.example.farhand

import android.content.ContentResolver
import android.provider.ContactsContract.CommonDataKinds.Phone
import io.github.farhand.device.Bounds
import io.github.farhand.device.Description
import io.github.farhand.device.SecurityLevel
import io.github.farhand.device.Tool
import io.github.farhand.device.tool
import kotlinx.serialization.Serializable

@Serializable
class Query(
    @Description("Part of a name") val query: String,
    @Description("How many at most") @Bounds(1.0, 50.0) val limit: Int = 10,
)

@Serializable
class Contact(val name: String, val number: String)

/** Finds contacts with a number by a part of their name. */
fun contactsTool(resolver: ContentResolver): Tool = tool<Query>("contacts", "Find phone contacts by name.", {
    securityLevel = SecurityLevel.USER_CONFIRM
    readOnly = true
}) { args ->
    val uri = Phone.CONTENT_FILTER_URI.buildUpon().appendPath(args.query).build()
    val columns = arrayOf(Phone.DISPLAY_NAME, Phone.NUMBER)
    val found = mutableListOf<Contact>()
    val rows = resolver.query(uri, columns, null, null, Phone.DISPLAY_NAME)
    checkNotNull(rows) { "the phone has no contacts" }.use {
        while (found.size < args.limit && it.moveToNext()) {
            found += Contact(it.getString(0).orEmpty(), it.getString(1).orEmpty())
        }
    }
    found
}
